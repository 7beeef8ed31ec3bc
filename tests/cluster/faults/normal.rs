//! The cluster state's normal form: what two runs with the same plan have in common, without
//! generated names, versions and times.

use std::collections::BTreeMap;

use anyhow::Result;
use innkeeper_tests::{User, owned::owned, user::Kind};
use serde_json::{Map, Value, json};

use super::plan::{Parent, Sort};

/// Objects in normal form, by kind and name.
pub(crate) type State = BTreeMap<String, Value>;

/// The normal form of these kinds' parents and of the objects named after them.
pub(crate) fn state(
    user: &User,
    namespace: &str,
    kinds: impl IntoIterator<Item = (&'static str, &'static str)>,
) -> Result<State> {
    let mut state = State::new();
    for (api_version, kind) in kinds {
        for object in user.list(Kind::new(api_version, kind, namespace), "")? {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if let Some(parent) = parent_of(name) {
                let form = normal(&object, &parent, namespace);
                state.insert(format!("{kind} {name}"), form);
            }
        }
    }
    Ok(state)
}

/// The parent's name, from the beginning of an object's name.
fn parent_of(name: &str) -> Option<String> {
    let (sort, rest) = name.split_once('-')?;
    let number = rest.split('-').next()?;
    (["cache", "plain", "farewell"].contains(&sort) && number.parse::<u16>().is_ok())
        .then(|| format!("{sort}-{number}"))
}

/// The part that belongs to a parent, with a placeholder for the parent's name.
pub(crate) fn part(state: &State, parent: Parent) -> State {
    let name = parent.name();
    state
        .iter()
        .filter(|(key, _)| {
            key.split_once(' ')
                .map(|(_, name)| name)
                .and_then(parent_of)
                .as_ref()
                == Some(&name)
        })
        .map(|(key, form)| (key.replace(&name, "NAME"), form.clone()))
        .collect()
}

/// Replaces the placeholder with this parent's name.
pub(crate) fn named(part: &State, parent: Parent) -> State {
    let name = parent.name();
    part.iter()
        .map(|(key, form)| (key.replace("NAME", &name), form.clone()))
        .collect()
}

/// Field manager for children, by sort of parent.
const fn manager(sort: Sort) -> &'static str {
    match sort {
        Sort::Cache => "innkeeper:memcached",
        Sort::Plain => "innkeeper:unruly",
        Sort::Farewell => "innkeeper:farewell",
    }
}

fn normal(object: &Value, parent: &str, namespace: &str) -> Value {
    let metadata = &object["metadata"];
    let mut form = json!({
        "finalizers": metadata["finalizers"],
        "deleting": !metadata["deletionTimestamp"].is_null(),
    });
    if object["kind"] == "Memcached" || object["kind"] == "Unruly" || object["kind"] == "Farewell" {
        form["conditions"] = conditions(object);
        form["spec"] = object["spec"].clone();
    } else {
        child(object, parent, &mut form);
    }
    let text = form.to_string().replace(parent, "NAME");
    serde_json::from_str(&text.replace(namespace, "NAMESPACE")).expect("it was JSON before")
}

fn child(object: &Value, parent: &str, form: &mut Value) {
    let metadata = &object["metadata"];
    form["labels"] = metadata["labels"].clone();
    form["annotations"] = annotations(&metadata["annotations"]);
    let owners = metadata["ownerReferences"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|owner| {
            json!([
                owner["kind"],
                owner["name"],
                owner["controller"],
                owner["blockOwnerDeletion"]
            ])
        });
    form["owners"] = owners.collect();
    let sort = match parent.split('-').next() {
        Some("cache") => Sort::Cache,
        Some("plain") => Sort::Plain,
        _ => Sort::Farewell,
    };
    // The naive controller uses another manager; then the host's manager owns no fields.
    let mut owned_fields = owned(object, manager(sort), None).unwrap_or_default();
    if let Some(metadata) = owned_fields
        .get_mut("metadata")
        .and_then(Value::as_object_mut)
    {
        metadata.remove("ownerReferences");
        let annotations = annotations(&metadata.get("annotations").cloned().unwrap_or_default());
        metadata.insert("annotations".to_owned(), annotations);
    }
    form["held"] = owned_fields;
    form["data"] = object["data"].clone();
    let mut spec = object["spec"].clone();
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    form["spec"] = spec;
}

/// Annotations, except those that differ between runs.
fn annotations(all: &Value) -> Value {
    let stable: Map<_, _> = all
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| {
            // These include hashes over names that belong to one run.
            !["innkeeper.dev/applied", "innkeeper-sdk/template-hash"].contains(&name.as_str())
                && !name.starts_with("deployment.kubernetes.io/")
        })
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    Value::Object(stable)
}

/// Status and reason for each condition, and whether it is about the current generation. Omits
/// conditions that an earlier failure left as False, which mean the same as none.
fn conditions(parent: &Value) -> Value {
    let is_relevant = |condition: &&Value| {
        let is_outlook = condition["type"] == "Reconciling" || condition["type"] == "Stalled";
        !is_outlook || condition["status"] != "False"
    };
    let conditions = parent["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(is_relevant)
        .map(|condition| {
            let is_present = condition["observedGeneration"] == parent["metadata"]["generation"];
            let text = format!("{} {}", condition["status"], condition["reason"]);
            let kind = condition["type"].as_str().unwrap_or_default().to_owned();
            (kind, json!([text, is_present]))
        })
        .collect();
    Value::Object(conditions)
}

/// The differences between two states, in short lines.
pub(crate) fn differences(expected: &State, actual: &State) -> Vec<String> {
    let mut all = Vec::new();
    for (key, form) in expected {
        match actual.get(key) {
            None => all.push(format!("{key} is missing")),
            Some(other) if other != form => {
                all.push(format!("{key} differs: {}", first(form, other)))
            }
            Some(_) => {}
        }
    }
    let extra = actual.keys().filter(|key| !expected.contains_key(*key));
    all.extend(extra.map(|key| format!("{key} is not wanted")));
    all
}

/// The first difference between two values.
fn first(expected: &Value, actual: &Value) -> String {
    if let (Some(a), Some(b)) = (expected.as_object(), actual.as_object()) {
        let names = a.keys().chain(b.keys());
        for name in names {
            let a = &expected[name];
            let b = &actual[name];
            if a != b {
                return format!("{name}.{}", first(a, b));
            }
        }
    }
    format!("{expected} is wanted, {actual} is found")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_between_runs_are_ignored_and_all_others_reported() {
        let map = |name: &str, namespace: &str, uid: &str, text: &str| {
            let applied = json!({ "innkeeper.dev/applied": uid, "innkeeper.dev/key": "first" });
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {
                    "name": format!("{name}-first"), "namespace": namespace, "uid": uid,
                    "annotations": applied,
                    "ownerReferences": [{ "kind": "Unruly", "name": name, "uid": uid, "controller": true }],
                },
                "data": { "name": text },
            });
            normal(&object, name, namespace)
        };
        let a = map("plain-0", "one", "1", "first");
        assert_eq!(a, map("plain-7", "two", "2", "first"));
        let b = map("plain-0", "one", "1", "second");
        let state = |form| State::from([("ConfigMap plain-0-first".to_owned(), form)]);
        assert_eq!(
            differences(&state(a), &state(b)),
            ["ConfigMap plain-0-first differs: data.name.\"first\" is wanted, \"second\" is found"]
        );
    }

    #[test]
    fn parts_are_selected_by_the_whole_name() {
        let parent = |number| Parent {
            sort: Sort::Cache,
            number,
        };
        let all: State = ["Service cache-1", "Service cache-10", "ConfigMap other"]
            .map(|key| (key.to_owned(), Value::Null))
            .into();
        let one = part(&all, parent(1));
        assert_eq!(one.keys().collect::<Vec<_>>(), ["Service NAME"]);
        assert!(named(&one, parent(10)).contains_key("Service cache-10"));
    }
}
