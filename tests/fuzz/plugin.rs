//! The spec of a Plugin and a file of grants: JSON as the API server or a user may send it.

use innkeeper_plugin_controller::resource::{Plugin, file_of_grants, grants_of_file};
use innkeeper_policy::Grants;
use serde_json::{Map, Value};

use super::run::run;

#[test]
fn a_plugin_spec_is_refused_or_within_the_rules() {
    run("plugin", check);
}

fn check(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    if let Ok(grants) = serde_json::from_str::<Map<String, Value>>(text) {
        check_grants_file(&grants);
    }
    let Ok(plugin) = Plugin::read(text) else {
        return;
    };
    let Ok(declared) = plugin.declared() else {
        return;
    };
    let name = declared.name.as_str();
    assert!((1..=40).contains(&name.len()), "{name}");
    let terms = &declared.terms;
    let manager = &terms.field_manager;
    let is_own = *manager == declared.name.field_manager();
    assert!(is_own || !manager.starts_with("innkeeper:"), "{manager}");
    let limits = &terms.limits;
    assert!(limits.deadline.as_secs() <= 60 && !limits.deadline.is_zero());
    assert!(limits.memory_bytes_max <= 4 << 30 && limits.children_max > 0);
    assert!(limits.concurrency_max > 0 && limits.output_bytes_max > 0);
    check_grants(&terms.grants);
    // The same rules hold for what the host would write.
    let again = serde_json::to_string(&plugin).unwrap();
    let again = Plugin::read(&again).unwrap().declared().unwrap();
    assert_eq!(again, declared);
}

fn check_grants_file(grants: &Map<String, Value>) {
    let Ok(read) = grants_of_file(grants) else {
        return;
    };
    check_grants(&read);
    let again = grants_of_file(&file_of_grants(&read)).unwrap();
    // The level of Pods is left out where no granted kind makes any.
    let expected = Grants {
        pod_security: again.pod_security,
        ..read
    };
    assert_eq!(again, expected);
}

/// A kind with power over the cluster needs its confirmation, and no plugin has Secrets as parents.
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
