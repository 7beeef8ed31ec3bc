//! Explicit absence: a null in a stated object says that the field is not there, whoever set it.
//!
//! Server-side apply alone cannot say so. It stores a null for a nullable field, refuses it for any other, and
//! leaves a map or list as it is. Fields go if only their manager owned them and no longer states them, and the
//! managed fields of an object can be changed like any field: so a patch hands such fields to our manager first.

use innkeeper_model::{ManagedEntry, Object};
use serde_json::{Map, Value, json};

use super::fields;

/// Field names from an object's root to one field.
pub type Path = Vec<String>;

/// Returns the fields that an object states as absent. Below a list there are none.
pub fn absences(object: &Map<String, Value>) -> Vec<Path> {
    fn walk(fields: &Map<String, Value>, path: &mut Path, paths: &mut Vec<Path>) {
        for (name, field) in fields {
            path.push(name.clone());
            match field {
                Value::Null => paths.push(path.clone()),
                Value::Object(fields) => walk(fields, path, paths),
                Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {}
            }
            path.pop();
        }
    }
    let mut paths = Vec::new();
    walk(object, &mut Vec::new(), &mut paths);
    paths
}

/// Returns the fields that have a value in an object.
pub fn present(object: &Value, paths: &[Path]) -> Vec<Path> {
    with_value(object, paths, |value| !value.is_null())
}

/// Returns the fields whose value is a map or a list.
pub fn composite(object: &Value, paths: &[Path]) -> Vec<Path> {
    with_value(object, paths, |value| value.is_object() || value.is_array())
}

fn with_value(object: &Value, paths: &[Path], fits: impl Fn(&Value) -> bool) -> Vec<Path> {
    paths
        .iter()
        .filter(|path| object.pointer(&pointer(path)).is_some_and(&fits))
        .cloned()
        .collect()
}

/// Returns the object to apply: a stated null stays only where the API server stores a null, or where it is in `always`.
///
/// `stored` is the stored object; null if there is none.
pub fn without_absences(
    stated: &Map<String, Value>,
    stored: &Value,
    always: &[Path],
) -> Map<String, Value> {
    fn strip(fields: &mut Map<String, Value>, stored: &Value, path: &mut Path, always: &[Path]) {
        fields.retain(|name, field| {
            // A missing field must not look like a stored null: only that one is sent.
            let stored = stored.get(name).unwrap_or(&Value::Bool(false));
            path.push(name.clone());
            let is_kept = match field {
                Value::Null => stored.is_null() || always.contains(path),
                Value::Object(fields) => {
                    strip(fields, stored, path, always);
                    true
                }
                _ => true,
            };
            path.pop();
            is_kept
        });
    }
    let mut object = stated.clone();
    strip(&mut object, stored, &mut Vec::new(), always);
    object
}

/// An object's field managers, in one version.
#[derive(Debug)]
pub struct Owners {
    uid: String,
    version: String,
    managed: Vec<(ManagedEntry, Value)>,
}

impl Owners {
    /// Reads the managers from an object that holds everyone's managed fields; none if they cannot be read.
    pub fn from_object(object: &Object) -> Option<Self> {
        let managed = object.managed.iter().map(|entry| {
            let fields = serde_json::from_str(&entry.fields).ok()?;
            Some((entry.clone(), fields))
        });
        Some(Self {
            uid: object.uid.to_string(),
            version: object.resource_version.to_string(),
            managed: managed.collect::<Option<_>>()?,
        })
    }

    /// Returns the managers from a whole object, as the API server answers a write.
    pub fn from_value(object: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let metadata = &object["metadata"];
        let managed = metadata["managedFields"].as_array()?.iter().map(|entry| {
            let fields = entry["fieldsV1"].clone();
            let entry = ManagedEntry {
                manager: entry["manager"].as_str().unwrap_or_default().into(),
                subresource: entry["subresource"].as_str().map(Into::into),
                applied: entry["operation"] == "Apply",
                fields: fields.to_string().into(),
            };
            (entry, fields)
        });
        Some(Self {
            uid: text(&metadata["uid"])?,
            version: text(&metadata["resourceVersion"])?,
            managed: managed.collect(),
        })
    }

    /// Returns the JSON patch that makes a manager the fields' only owner, including tests for UID and version; none if the
    /// manager has never applied the object. With `as_null` it also sets the fields to null, which some kinds refuse.
    pub fn take_over(&self, manager: &str, paths: &[Path], as_null: bool) -> Option<Value> {
        let is_own = |entry: &ManagedEntry| fields::is_applied_by(entry, manager, None);
        if !self.managed.iter().any(|(entry, _)| is_own(entry)) {
            return None;
        }
        let mut patch = vec![
            // The patch replaces entries by index, and in another version the index may belong to another manager.
            json!({"op": "test", "path": "/metadata/uid", "value": self.uid}),
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": self.version}),
        ];
        for (place, (entry, known)) in self.managed.iter().enumerate() {
            let mut fields = known.clone();
            for path in paths {
                // The apply that follows removes only fields without another owner.
                if is_own(entry) {
                    own(&mut fields, path);
                } else {
                    disown(&mut fields, path);
                }
            }
            if fields != *known {
                let entry = format!("/metadata/managedFields/{place}/fieldsV1");
                patch.push(json!({"op": "replace", "path": entry, "value": fields}));
            }
        }
        if as_null {
            let set = |path: &Path| json!({"op": "replace", "path": pointer(path), "value": null});
            patch.extend(paths.iter().map(set));
        }
        Some(Value::Array(patch))
    }
}

/// Adds a field as a whole to managed fields; nothing if they have something above it as a whole.
fn own(fields: &mut Value, path: &[String]) {
    let Value::Object(members) = fields else {
        return;
    };
    let Some((name, rest)) = path.split_first() else {
        members.clear();
        return;
    };
    let name = format!("f:{name}");
    let is_whole = |member: &Value| member.as_object().is_none_or(Map::is_empty);
    if members.get(&name).is_none_or(|member| !is_whole(member)) {
        own(members.entry(name).or_insert_with(|| json!({})), rest);
    }
}

/// Removes a field from managed fields, and with it the members that had nothing else.
fn disown(fields: &mut Value, path: &[String]) {
    let (Some((name, rest)), Value::Object(members)) = (path.split_first(), fields) else {
        return;
    };
    let name = format!("f:{name}");
    let Some(member) = members.get_mut(&name) else {
        return;
    };
    // A member without members covers everything below it, so it stays unless it is the field itself.
    let is_whole = member.as_object().is_none_or(Map::is_empty);
    if !rest.is_empty() {
        if is_whole {
            return;
        }
        disown(member, rest);
        if member
            .as_object()
            .is_some_and(|members| !members.is_empty())
        {
            return;
        }
    }
    members.remove(&name);
}

/// Returns the JSON pointer to a field.
pub(super) fn pointer(path: &[impl AsRef<str>]) -> String {
    // RFC 6901: `~` comes first, or the `~` that stands for a slash would be escaped again.
    path.iter().fold(String::new(), |pointer, name| {
        pointer + "/" + &name.as_ref().replace('~', "~0").replace('/', "~1")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use innkeeper_model::{Access, Gvk, ManagedEntry, ResourceVersion, Uid};

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    fn path(text: &str) -> Path {
        text.split('.').map(str::to_owned).collect()
    }

    #[test]
    fn only_the_nulls_of_objects_are_absences() {
        let object = map(json!({
            "a": null, "b": {"c": null, "d": 1, "e": {"f": null}}, "g": [null, {"h": null}],
        }));
        assert_eq!(absences(&object), ["a", "b.c", "b.e.f"].map(path));
    }

    #[test]
    fn a_null_is_sent_only_where_the_api_server_stores_it() {
        let stated = map(json!({"a/b": null, "c": {"d": null, "e": 1}, "f": null}));
        let stored = json!({"a/b": null, "c": {"d": 2}});
        let body =
            |stored, always: &[Path]| Value::Object(without_absences(&stated, stored, always));
        assert_eq!(body(&Value::Null, &[]), json!({"c": {"e": 1}}));
        assert_eq!(body(&stored, &[]), json!({"a/b": null, "c": {"e": 1}}));
        let expected = json!({"a/b": null, "c": {"d": null, "e": 1}});
        assert_eq!(body(&stored, &[path("c.d")]), expected);
        // The objects around it are stated.
        let only = map(json!({"a": {"b": null}}));
        assert_eq!(
            Value::Object(without_absences(&only, &Value::Null, &[])),
            json!({"a": {}})
        );
        assert_eq!(present(&stored, &absences(&stated)), [path("c.d")]);
    }

    fn live(entries: &[(&str, bool, Value)]) -> Object {
        let managed = entries
            .iter()
            .map(|(manager, applied, fields)| ManagedEntry {
                manager: (*manager).into(),
                subresource: None,
                applied: *applied,
                fields: fields.to_string().into(),
            });
        Object {
            kind: Gvk::new("apps", "v1", "Deployment"),
            namespace: Some("demo".into()),
            name: "a".into(),
            uid: Uid("u".into()),
            resource_version: ResourceVersion(7),
            generation: None,
            deletion_timestamp: None,
            controller: None,
            finalizers: Vec::new(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            retained_for: None,
            managed: managed.collect(),
            form: Access::Full,
            json: "{}".into(),
        }
    }

    #[test]
    fn the_patch_makes_one_manager_the_only_owner() {
        let other = json!({"f:spec": {"f:a": {"f:b": {"f:c": {}}}, "f:x": {}}});
        let live = live(&[
            (
                "own",
                true,
                json!({"f:spec": {"f:y": {}, "f:a": {"f:b": {"f:c": {}}}}}),
            ),
            ("own", false, other),
            (
                "editor",
                false,
                json!({"f:spec": {"f:a": {"f:b": {"f:c": {}}}}}),
            ),
            // Covers everything below; the field itself is not listed.
            ("whole", true, json!({"f:spec": {"f:a": {}}})),
        ]);
        let owners = Owners::from_object(&live).unwrap();
        let paths = [path("spec.a.b")];
        let patch = owners.take_over("own", &paths, true).unwrap();
        let fields = |place| format!("/metadata/managedFields/{place}/fieldsV1");
        let expected = json!([
            {"op": "test", "path": "/metadata/uid", "value": "u"},
            {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
            {"op": "replace", "path": fields(0), "value": {"f:spec": {"f:y": {}, "f:a": {"f:b": {}}}}},
            {"op": "replace", "path": fields(1), "value": {"f:spec": {"f:x": {}}}},
            {"op": "replace", "path": fields(2), "value": {}},
            {"op": "replace", "path": "/spec/a/b", "value": null},
        ]);
        assert_eq!(patch, expected);
        let patch = owners.take_over("own", &paths, false).unwrap();
        assert_eq!(patch.as_array().unwrap().len(), 5);
        assert_eq!(owners.take_over("nobody", &paths, true), None);
    }
}
