//! The missing lines of `spec.grants` as YAML: the message of the condition `Granted`.

use innkeeper_model::{Access, ReadKind, ReadScope, yaml};
use innkeeper_policy::{Assessment, Shortfall, is_built_in, is_privileged, is_secret};
use serde_json::Value;

use super::{ChildAccess, CrdAccess, GrantsSpec, ParentAccess, ReadAccess, ReadForm, ReadPlace};

/// A condition's message takes no more, and a longer one would be of no use.
const CHARS_MAX: usize = 16_000;

/// Returns the missing grants with the exact lines to add; none if nothing is missing.
pub fn lines(assessment: &Assessment) -> Option<String> {
    let Assessment { missing, reduced } = assessment;
    let parts = [
        part("The plugin does not serve without more grants.", missing),
        part("The plugin serves with less than it asks for.", reduced),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
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
    let mut lacking = GrantsSpec::default();
    let mut never = Vec::new();
    for shortfall in shortfalls {
        if !add(shortfall, &mut lacking) {
            never.push(shortfall.to_string());
        }
    }
    let mut parts = vec![opening.to_owned()];
    if !never.is_empty() {
        parts.push(format!("It asks for {}.", never.join(", ")));
    }
    let lines = written(&lacking);
    if !lines.is_empty() {
        parts.push(format!("Add to spec.grants:\n{lines}"));
    }
    Some(parts.join(" "))
}

/// Adds the grant that a shortfall lacks; false if there is none.
fn add(shortfall: &Shortfall, lacking: &mut GrantsSpec) -> bool {
    match shortfall {
        Shortfall::Parent(kind) if is_secret(kind) => return false,
        Shortfall::Crd(kind) if is_built_in(kind) => return false,
        Shortfall::Parent(kind) => push(
            &mut lacking.parents,
            ParentAccess {
                group: kind.group.to_string(),
                kind: kind.kind.to_string(),
                builtin: is_built_in(kind),
                privileged: is_privileged(kind),
            },
        ),
        Shortfall::Crd(kind) => push(
            &mut lacking.crds,
            CrdAccess {
                group: kind.group.to_string(),
                kind: kind.kind.to_string(),
                privileged: is_privileged(kind),
            },
        ),
        Shortfall::Child(kind) => push(
            &mut lacking.children,
            ChildAccess {
                group: kind.group.to_string(),
                kind: kind.kind.to_string(),
                adopt: false,
                privileged: is_privileged(kind),
            },
        ),
        Shortfall::Read { asked, .. } => push(&mut lacking.reads, read(asked)),
    }
    true
}

fn read(asked: &ReadKind) -> ReadAccess {
    let kind = asked.kind.group_kind();
    let (scope, namespaces) = match &asked.scope {
        ReadScope::ParentNamespace => (ReadPlace::ParentNamespace, Vec::new()),
        ReadScope::Cluster => (ReadPlace::Cluster, Vec::new()),
        ReadScope::Namespaces(names) => {
            let names = names.iter().map(ToString::to_string).collect();
            (ReadPlace::Namespaces, names)
        }
    };
    ReadAccess {
        group: kind.group.to_string(),
        kind: kind.kind.to_string(),
        access: match asked.access {
            Access::Full => ReadForm::Full,
            Access::Hash => ReadForm::Hash,
            Access::Metadata => ReadForm::Metadata,
        },
        scope,
        namespaces,
        label_selector: asked.label_selector.clone(),
        privileged: is_privileged(&kind),
    }
}

/// A kind that is asked for in two versions takes one grant.
fn push<T: PartialEq>(grants: &mut Vec<T>, grant: T) {
    if !grants.contains(&grant) {
        grants.push(grant);
    }
}

/// The grants as YAML, without default values.
fn written(grants: &GrantsSpec) -> String {
    let Ok(Value::Object(mut lists)) = serde_json::to_value(grants) else {
        return String::new();
    };
    let entries = lists.values_mut().filter_map(Value::as_array_mut).flatten();
    for entry in entries.filter_map(Value::as_object_mut) {
        entry.retain(|_, value| *value != Value::Bool(false));
    }
    if lists.is_empty() {
        return String::new();
    }
    yaml::write(&[Value::Object(lists)]).unwrap_or_default()
}
