//! A Plugin's spec and a grants file: JSON that the API server or a user may send.

use std::time::Duration;

use innkeeper_plugin_controller::resource::{Plugin, file_of_grants, grants_of_file};
use innkeeper_policy::Grants;
use serde_json::{Map, Value};

use super::run::run;

#[test]
fn a_plugin_spec_is_refused_or_within_the_rules() {
    run("plugin");
}

/// Reaches the checks for a Plugin, and those for a grants file.
pub(super) fn check(input: &[u8]) -> [bool; 2] {
    let text = str::from_utf8(input).ok();
    let plugin = text.and_then(check_plugin);
    let grants = text.and_then(check_grants_file);
    [plugin.is_some(), grants.is_some()]
}

fn check_plugin(text: &str) -> Option<()> {
    let plugin = Plugin::read(text).ok()?;
    let declared = plugin.declared().ok()?;
    let name = declared.name.as_str();
    assert!((1..=40).contains(&name.len()), "{name}");
    let terms = &declared.terms;
    let manager = &terms.field_manager;
    let is_own = *manager == declared.name.field_manager();
    assert!(is_own || !manager.starts_with("innkeeper:"), "{manager}");
    let limits = &terms.limits;
    // The CRD rules, which the API server also checks.
    assert!((Duration::from_millis(1)..=Duration::from_secs(30)).contains(&limits.deadline));
    assert!((64 << 10..=1 << 30).contains(&limits.memory_bytes_max));
    assert!((1 << 10..=64 << 20).contains(&limits.output_bytes_max));
    assert!((1 << 10..=1536 << 10).contains(&limits.object_bytes_max));
    assert!((1..=10_000).contains(&limits.children_max));
    assert!((1..=64).contains(&limits.concurrency_max));
    check_grants(&terms.grants);
    // The same rules apply to what the host would write.
    let again = serde_json::to_string(&plugin).unwrap();
    let again = Plugin::read(&again).unwrap().declared().unwrap();
    assert_eq!(again, declared);
    Some(())
}

fn check_grants_file(text: &str) -> Option<()> {
    let grants: Map<String, Value> = serde_json::from_str(text).ok()?;
    let read = grants_of_file(&grants).ok()?;
    check_grants(&read);
    let again = grants_of_file(&file_of_grants(&read)).unwrap();
    // The Pod Security level is left out if no granted kind creates Pods.
    let expected = Grants {
        pod_security: again.pod_security,
        ..read
    };
    assert_eq!(again, expected);
    Some(())
}

/// A kind with power over the cluster needs a confirmation, and no plugin has Secrets as parents.
fn check_grants(grants: &Grants) {
    for kind in grants
        .children
        .keys()
        .filter(|kind| grants.allows_child(kind))
    {
        let is_role = kind.group.ends_with("rbac.authorization.k8s.io");
        let grant = grants.children[kind];
        assert!(!is_role || grant.privileged, "{kind}");
    }
    for kind in grants.parents.keys() {
        let is_secret = kind.group.is_empty() && &*kind.kind == "Secret";
        assert!(!is_secret || !grants.allows_parent(kind), "{kind}");
    }
}
