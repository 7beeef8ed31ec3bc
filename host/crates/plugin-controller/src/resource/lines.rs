//! The lines to add to `spec.grants` for missing grants, as YAML: the message of the condition `Granted`.

use std::collections::BTreeMap;

use innkeeper_model::{ReadKind, ReadScope, yaml};
use innkeeper_policy::{
    Assessment, Shortfall, is_built_in, is_privileged, is_privileged_to_read, is_secret,
};
use serde_json::{Map, Value, json};

use super::ReadPlace;

/// The maximum length: half of the 32,768 characters that the schema allows for the message of a condition, because
/// the condition `Degraded` repeats it after a text of its own.
const CHARS_MAX: usize = 16_000;

/// Returns the missing grants with the exact lines to add; none if none is missing.
pub fn lines(assessment: &Assessment) -> Option<String> {
    let Assessment { missing, reduced } = assessment;
    let parts: Vec<String> = [
        part("The plugin is not active without more grants.", missing),
        part(
            "The plugin runs with fewer grants than it asks for.",
            reduced,
        ),
    ]
    .into_iter()
    .flatten()
    .collect();
    let text = parts.join("\n");
    if text.chars().count() > CHARS_MAX {
        let kept: String = text.chars().take(CHARS_MAX).collect();
        return Some(format!("{kept}\n..."));
    }
    (!text.is_empty()).then_some(text)
}

fn part(opening: &str, shortfalls: &[Shortfall]) -> Option<String> {
    if shortfalls.is_empty() {
        return None;
    }
    let mut lacking: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let (mut never, mut changes) = (Vec::new(), Vec::new());
    for shortfall in shortfalls {
        // The kind is granted, and the list has one entry for each kind.
        if let Shortfall::Depth(kind) = shortfall {
            changes.push(format!(
                "Set in the entry of spec.grants.children for {kind}: depth: 1."
            ));
            continue;
        }
        let Some((list, entry)) = entry(shortfall) else {
            never.push(shortfall.to_string());
            continue;
        };
        // A kind that is asked for in two versions needs one grant.
        let list = lacking.entry(list).or_default();
        if !list.contains(&entry) {
            list.push(entry);
        }
    }
    let mut parts = vec![opening.to_owned()];
    if !never.is_empty() {
        parts.push(format!("It asks for {}.", never.join(", ")));
    }
    parts.extend(changes);
    if !lacking.is_empty() {
        let lines = yaml::write(&[json!(lacking)]).unwrap_or_default();
        parts.push(format!("Add to spec.grants:\n{lines}"));
    }
    Some(parts.join(" "))
}

/// Returns the grant for a shortfall and its list in `spec.grants`; none if it is never granted.
fn entry(shortfall: &Shortfall) -> Option<(&'static str, Value)> {
    let (list, kind, mut entry) = match shortfall {
        Shortfall::Parent(kind) if is_secret(kind) => return None,
        Shortfall::Crd(kind) if is_built_in(kind) => return None,
        Shortfall::Depth(_) => return None,
        Shortfall::Parent(kind) if is_built_in(kind) => {
            let builtin = ("builtin".to_owned(), Value::Bool(true));
            ("parents", kind.clone(), Map::from_iter([builtin]))
        }
        Shortfall::Parent(kind) => ("parents", kind.clone(), Map::new()),
        Shortfall::Crd(kind) => ("crds", kind.clone(), Map::new()),
        Shortfall::Child(kind) => ("children", kind.clone(), Map::new()),
        Shortfall::Read { asked, .. } => ("reads", asked.kind.group_kind(), read(asked)),
    };
    entry.insert("group".to_owned(), json!(&*kind.group));
    entry.insert("kind".to_owned(), json!(&*kind.kind));
    let is_marked = match shortfall {
        Shortfall::Read { .. } => is_privileged_to_read(&kind),
        _ => is_privileged(&kind),
    };
    if is_marked {
        entry.insert("privileged".to_owned(), Value::Bool(true));
    }
    Some((list, Value::Object(entry)))
}

/// Returns the fields of a read beside its kind.
fn read(asked: &ReadKind) -> Map<String, Value> {
    let scope = match &asked.scope {
        ReadScope::Cluster => ReadPlace::Cluster,
        // A plugin cannot ask for listed namespaces: only a grant can list them.
        ReadScope::ParentNamespace | ReadScope::Namespaces(_) => ReadPlace::ParentNamespace,
    };
    let mut entry = Map::from_iter([
        ("access".to_owned(), json!(asked.access.to_string())),
        ("scope".to_owned(), json!(scope)),
    ]);
    if !asked.label_selector.selects_all() {
        let selector = asked.label_selector.to_string();
        entry.insert("labelSelector".to_owned(), json!(selector));
    }
    entry
}
