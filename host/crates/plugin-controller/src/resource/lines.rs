//! Lines to add to `spec.grants` for missing grants, as YAML: the message in the condition `Granted`.

use std::collections::BTreeMap;

use innkeeper_model::{ReadKind, ReadScope, yaml};
use innkeeper_policy::{
    Assessment, ReadGrant, Shortfall, is_built_in, is_privileged, is_privileged_to_read,
};
use serde_json::{Value, json};

use super::file;

/// The maximum length: half the 32,768 characters that the schema allows for a condition message, because the condition
/// `Degraded` repeats it after its own text.
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
        let visible: String = text.chars().take(CHARS_MAX).collect();
        return Some(format!("{visible}\n..."));
    }
    (!text.is_empty()).then_some(text)
}

fn part(opening: &str, shortfalls: &[Shortfall]) -> Option<String> {
    if shortfalls.is_empty() {
        return None;
    }
    let mut lacking: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    let mut never = Vec::new();
    let mut changes = Vec::new();
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
        // A kind that is requested in two versions needs one grant.
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
    let (list, kind) = match shortfall {
        Shortfall::Parent(kind) if kind.is_secret() => return None,
        Shortfall::Crd(kind) if is_built_in(kind) => return None,
        Shortfall::Depth(_) => return None,
        Shortfall::Parent(kind) => ("parents", kind),
        Shortfall::Crd(kind) => ("crds", kind),
        Shortfall::Child(kind) => ("children", kind),
        Shortfall::Read { requested, .. } => {
            return Some(("reads", file::read(&granting(requested))));
        }
    };
    let is_parent = matches!(shortfall, Shortfall::Parent(_));
    let flags = [
        ("builtin", is_parent && is_built_in(kind)),
        ("privileged", is_privileged(kind)),
    ];
    Some((list, file::entry(kind, &flags)))
}

/// Returns the grant for a requested read.
fn granting(requested: &ReadKind) -> ReadGrant {
    let kind = requested.kind.group_kind();
    ReadGrant {
        access: requested.access,
        // A plugin cannot ask for listed namespaces: only a grant can list them.
        scope: match requested.scope {
            ReadScope::Cluster => ReadScope::Cluster,
            ReadScope::ParentNamespace | ReadScope::Namespaces(_) => ReadScope::ParentNamespace,
        },
        label_selector: requested.label_selector.clone(),
        privileged: is_privileged_to_read(&kind),
        kind,
    }
}
