//! Type and metadata of an object.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

use super::{
    cause::{Cause, CauseKind},
    go, names,
};

/// Annotations of one object, in bytes.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;

/// The fields of metadata; others are dropped.
const FIELDS: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Whether objects of a kind live in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scoped {
    Namespace,
    Cluster,
}

impl Scoped {
    pub(super) fn parse(scope: &str) -> Self {
        if scope == "Cluster" {
            Self::Cluster
        } else {
            Self::Namespace
        }
    }
}

/// Checks the types of type and metadata and drops unknown metadata, whose paths are returned.
pub(super) fn decode(
    mut object: Map<String, Value>,
) -> Result<(Map<String, Value>, Vec<String>), Cause> {
    for key in ["apiVersion", "kind"] {
        match object.get(key) {
            None | Some(Value::String(_)) => {}
            Some(other) => return Err(Cause::invalid(key, other, "must be a string")),
        }
    }
    let mut unknown = Vec::new();
    if let Some(metadata) = object.get_mut("metadata") {
        if metadata.is_null() {
            *metadata = Value::Object(Map::new());
        }
        typed(metadata).map_err(|problem| Cause::invalid("metadata", metadata, &problem))?;
        if let Value::Object(fields) = metadata {
            fields.retain(|key, value| {
                let known = FIELDS.contains(&key.as_str());
                if !known {
                    unknown.push(format!("metadata.{key}"));
                }
                known && !value.is_null()
            });
        }
    }
    Ok((object, unknown))
}

fn typed(metadata: &Value) -> Result<ObjectMeta, String> {
    serde_json::from_value(metadata.clone()).map_err(|error| error.to_string())
}

/// Whether the object is of the kind and version that the schema is for.
pub(super) fn check_type(
    object: &Map<String, Value>,
    group: &str,
    version: &str,
    kind: &str,
) -> Vec<Cause> {
    let expected = [
        ("kind", kind.to_owned()),
        ("apiVersion", format!("{group}/{version}")),
    ];
    expected
        .into_iter()
        .filter_map(|(field, wanted)| {
            let is = object
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default();
            (is != wanted)
                .then(|| Cause::invalid(field, &Value::from(is), &format!("must be {wanted}")))
        })
        .collect()
}

/// What is wrong with the metadata of a new object.
pub(super) fn check(object: &Value, scope: Scoped) -> Vec<Cause> {
    let metadata = object.get("metadata").unwrap_or(&Value::Null);
    let mut causes = Vec::new();
    if let Some(prefix) = text(metadata, "generateName") {
        // What comes after the prefix may follow a dash.
        let masked = match prefix.strip_suffix('-') {
            Some(rest) if !rest.is_empty() => format!(
                "{}a",
                &rest[..rest.len() - rest.chars().next_back().map_or(0, char::len_utf8)]
            ),
            _ => prefix.to_owned(),
        };
        push(
            &mut causes,
            "metadata.generateName",
            prefix,
            names::object_name(&masked),
        );
    }
    match text(metadata, "name") {
        Some(name) => push(&mut causes, "metadata.name", name, names::object_name(name)),
        None => causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        )),
    }
    match (scope, text(metadata, "namespace")) {
        (Scoped::Namespace, None) => causes.push(Cause::required("metadata.namespace", "")),
        (Scoped::Namespace, Some(namespace)) => push(
            &mut causes,
            "metadata.namespace",
            namespace,
            names::dns_label(namespace),
        ),
        (Scoped::Cluster, Some(_)) => causes.push(Cause::without_value(
            CauseKind::Forbidden,
            "metadata.namespace",
            "not allowed on this type",
        )),
        (Scoped::Cluster, None) => {}
    }
    causes.extend(check_common(metadata, "metadata"));
    causes
}

/// What is wrong with labels, annotations, finalizers and owners; `path` is the metadata's.
pub(super) fn check_common(metadata: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(generation) = metadata.get("generation").and_then(Value::as_i64)
        && generation < 0
    {
        causes.push(Cause::invalid(
            &format!("{path}.generation"),
            &Value::from(generation),
            "must be greater than or equal to 0",
        ));
    }
    let labels = format!("{path}.labels");
    for (key, value) in entries(metadata, "labels") {
        push(&mut causes, &labels, key, names::qualified_name(key));
        push(&mut causes, &labels, value, names::label_value(value));
    }
    let annotations = format!("{path}.annotations");
    let mut bytes = 0;
    for (key, value) in entries(metadata, "annotations") {
        bytes += key.len() + value.len();
        push(
            &mut causes,
            &annotations,
            key,
            names::qualified_name(&key.to_lowercase()),
        );
    }
    if bytes > ANNOTATIONS_BYTES_MAX {
        causes.push(Cause::without_value(
            CauseKind::TooLong,
            &annotations,
            &format!("may not be more than {ANNOTATIONS_BYTES_MAX} bytes"),
        ));
    }
    let finalizers = format!("{path}.finalizers");
    for finalizer in items(metadata, "finalizers").filter_map(Value::as_str) {
        push(
            &mut causes,
            &finalizers,
            finalizer,
            names::qualified_name(finalizer),
        );
    }
    causes.extend(check_owners(metadata, path));
    causes
}

fn check_owners(metadata: &Value, path: &str) -> Vec<Cause> {
    let path = format!("{path}.ownerReferences");
    let mut causes = Vec::new();
    let mut controller: Option<String> = None;
    for owner in owners(metadata) {
        for (field, problem) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(owner, field).is_none() {
                causes.push(Cause::with_value(
                    CauseKind::Invalid,
                    &format!("{path}.{field}"),
                    "\"\"",
                    problem,
                ));
            }
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let part = |field| text(owner, field).unwrap_or_default();
            let name = format!("{}/{}", part("kind"), part("name"));
            match &controller {
                None => controller = Some(name),
                Some(first) => causes.push(Cause::with_value(
                    CauseKind::Invalid,
                    &path,
                    &shown_owners(metadata),
                    &format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {name}"),
                )),
            }
        }
    }
    causes
}

/// The owners that the API server looks at: one that is there twice counts once.
fn owners(metadata: &Value) -> impl Iterator<Item = &Value> {
    let mut seen = BTreeSet::new();
    items(metadata, "ownerReferences").filter(move |owner| seen.insert(shown_owner(owner)))
}

fn shown_owners(metadata: &Value) -> String {
    let owners: Vec<String> = owners(metadata).map(shown_owner).collect();
    format!("[{}]", owners.join(","))
}

/// An owner as the API server shows it: in its order of fields, and with the required ones also where they lack.
fn shown_owner(owner: &Value) -> String {
    let set = |field: &str| owner.get(field).filter(|value| !value.is_null());
    let required = ["apiVersion", "kind", "name", "uid"].map(|field| {
        let value = set(field).map_or_else(|| go::quote(""), go::json);
        format!("\"{field}\":{value}")
    });
    let flags = ["controller", "blockOwnerDeletion"].into_iter();
    let flags = flags.filter_map(|field| Some(format!("\"{field}\":{}", set(field)?)));
    let fields: Vec<String> = required.into_iter().chain(flags).collect();
    format!("{{{}}}", fields.join(","))
}

fn push(causes: &mut Vec<Cause>, path: &str, value: &str, problems: Vec<String>) {
    causes.extend(
        problems
            .into_iter()
            .map(|problem| Cause::invalid(path, &Value::from(value), &problem)),
    );
}

fn text<'a>(metadata: &'a Value, field: &str) -> Option<&'a str> {
    metadata
        .get(field)
        .and_then(Value::as_str)
        .filter(|text| !text.is_empty())
}

fn items<'a>(metadata: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    metadata
        .get(field)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn entries<'a>(metadata: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    metadata
        .get(field)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_owner_that_is_there_twice_counts_once() {
        let owner = |name: &str, uid: &str| json!({"apiVersion": "v1", "kind": "Pond", "name": name, "uid": uid, "controller": true});
        let causes = |owners: Value| check_owners(&json!({"ownerReferences": owners}), "metadata");
        assert_eq!(causes(json!([owner("a", "u"), owner("a", "u")])).len(), 0);
        assert_eq!(
            causes(json!([owner("", ""), owner("", "")])).len(),
            2,
            "name and uid, once"
        );
        assert_eq!(causes(json!([owner("a", "u"), owner("b", "u")])).len(), 1);
    }
}
