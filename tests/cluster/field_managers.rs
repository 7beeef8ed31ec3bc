//! The field manager for a plugin's children (`spec.fieldManager`), on the real API server: the
//! plugin takes over fields that were applied under that name before, and a change of the name
//! costs one write per child.

use std::time::Duration;

use innkeeper_tests::{Host, eventually};
use serde_json::{Value, json};

use crate::{
    adoption::{adopting, annotate, child, wait_synced},
    moody::{API, MoodyFixture, config_map, name},
    stage::{Stage, lines},
};

const OPERATOR: &str = "old-operator";

/// Well above one pass and the watch events that it causes.
const QUIET: Duration = Duration::from_millis(800);

/// Spec for a working plugin with a field manager, which may adopt ConfigMaps.
fn plugin_spec(manager: Option<&str>) -> Value {
    let mut spec = adopting();
    if let Some(manager) = manager {
        spec["fieldManager"] = json!(manager);
    }
    spec
}

/// Managers that have applied an object.
fn appliers(object: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["operation"] == "Apply")
        .filter_map(|entry| entry["manager"].as_str())
        .collect();
    names.sort_unstable();
    names
}

/// The host's writes in the parents' namespace.
fn host_writes(fixture: &MoodyFixture, mark: usize) -> Vec<String> {
    let writes = fixture
        .site
        .stage
        .plane
        .audit()
        .in_namespace_since(mark, &fixture.site.namespace);
    let mut lines = lines(&writes.unwrap());
    lines.sort_unstable();
    lines
}

/// Checks that one write restores a child after an edit.
#[track_caller]
fn check_restored(fixture: &MoodyFixture, host: &Host, number: usize) {
    let stage = &fixture.site.stage;
    let namespace = &fixture.site.namespace;
    let name = name(number);
    let mark = stage.mark();
    let changed = json!({"data": {"says": "something else"}});
    stage.merge(namespace, config_map(&name), &changed);
    stage.wait(host, namespace, config_map(&name), |child| {
        child["data"]["says"] == "one"
    });
    stage.settle(QUIET);
    let expected = format!("patch configmaps {name} 200");
    assert_eq!(host_writes(fixture, mark), [expected]);
}

/// Restarts the host, and checks that the new one has nothing to write.
#[track_caller]
fn restart(fixture: &MoodyFixture, host: Host) -> Host {
    Stage::stop(host);
    let mark = fixture.site.stage.mark();
    let host = fixture.site.stage.host();
    eventually("the plugin serves again", || match host.log().unwrap() {
        log if log.contains("serving plugin") => Ok(()),
        log => Err(log),
    });
    fixture.site.stage.settle(Duration::from_secs(2));
    assert_eq!(host_writes(fixture, mark), [""; 0]);
    host
}

#[test]
fn fields_applied_earlier_under_the_same_manager_are_removed_unless_the_plugin_states_them() {
    let (fixture, host) = MoodyFixture::started_with(1, &plugin_spec(Some(OPERATOR)));
    let stage = &fixture.site.stage;
    let namespace = &fixture.site.namespace;
    let user = stage.plane.user();
    let config_map_of = |data: Value| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": name(1), "namespace": namespace},
        })
    };
    let theirs = config_map_of(json!({"says": "hello", "theirs": "yes"}));
    let before = user.apply_as(OPERATOR, &theirs).unwrap();
    let anothers = config_map_of(json!({"anothers": "yes"}));
    user.apply_as("another", &anothers).unwrap();
    let patched = json!({"data": {"patched": "yes"}});
    stage.merge(namespace, config_map(&name(1)), &patched);

    fixture.put(1, &json!({}));
    annotate(&fixture, 1);
    wait_synced(&fixture, &host, 1, "True", "Applied");
    let mark = stage.settle(QUIET);
    let after = child(&fixture, 1);
    let expected = json!({"says": "one", "note": "", "anothers": "yes", "patched": "yes"});
    assert_eq!(after["data"], expected);
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(appliers(&after), ["another", OPERATOR]);
    assert_eq!(appliers(&child(&fixture, 0)), [OPERATOR]);
    // The host always writes the status under its own manager.
    let parent = stage.get(namespace, (API, "Moody", &name(1)));
    assert_eq!(appliers(&parent)[0], "innkeeper:moody:status");

    stage.settle(Duration::from_secs(2));
    assert_eq!(host_writes(&fixture, mark), [""; 0]);
    check_restored(&fixture, &host, 1);
    let host = restart(&fixture, host);
    check_restored(&fixture, &host, 1);
    Stage::stop(host);
}

#[test]
fn a_new_manager_costs_one_write_for_each_child_and_changes_nothing_else() {
    let (fixture, mut host) = MoodyFixture::started_with(3, &plugin_spec(None));
    let data = || (0..3).map(|number| child(&fixture, number)["data"].clone());
    let before: Vec<Value> = data().collect();
    let uids = fixture.uids();
    let children: Vec<String> = (0..3)
        .map(|number| format!("patch configmaps {} 200", name(number)))
        .collect();
    for manager in ["first", "second"] {
        let mark = fixture.site.stage.settle(QUIET);
        fixture.apply(&plugin_spec(Some(manager)));
        fixture.wait_healthy(&host);
        for number in 0..3 {
            let name = name(number);
            let target = config_map(&name);
            let namespace = &fixture.site.namespace;
            fixture.site.stage.wait(&host, namespace, target, |child| {
                appliers(child).contains(&manager)
            });
        }
        fixture.site.stage.settle(Duration::from_secs(2));
        assert_eq!(host_writes(&fixture, mark), children, "{manager}");
        check_restored(&fixture, &host, 0);
        host = restart(&fixture, host);
    }
    // The plugin's previous manager still owns the fields that it applied, so the host rewrites
    // only the child that was restored under another manager.
    let mark = fixture.site.stage.mark();
    fixture.apply(&plugin_spec(None));
    fixture.wait_healthy(&host);
    fixture.site.stage.settle(Duration::from_secs(2));
    assert_eq!(host_writes(&fixture, mark), children[..1]);
    assert_eq!(data().collect::<Vec<_>>(), before);
    assert_eq!(fixture.uids(), uids);
    let all_managers = ["first", "innkeeper:moody", "second"];
    assert_eq!(appliers(&child(&fixture, 1)), all_managers);
    Stage::stop(host);
}
