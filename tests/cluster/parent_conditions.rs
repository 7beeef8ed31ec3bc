//! The host's conditions reach a parent even if the plugin has never returned a status for it.

use innkeeper_tests::{
    Host, admin, eventually,
    manifest::{self, condition},
    user::Kind,
};
use serde_json::{Value, json};

use crate::{
    mirrored::{MIRRORS, serve_gadgets, stage_with_gadgets},
    moody::guest_file,
    stage::{Stage, is_applied},
};

const UNRULY: &str = "Unruly";
const MIRROR: &str = "Mirror";
const API: &str = "test.innkeeper.dev/v1";

fn is(parent: &Value, reason: &str) -> bool {
    condition(parent, "Synced").is_some_and(|text| text.contains(reason))
}

fn parent(kind: &str, name: &str, spec: &Value, is_paused: bool) -> Value {
    let mut metadata = json!({ "name": name });
    if is_paused {
        metadata["annotations"] = json!({ "innkeeper.dev/paused": "true" });
    }
    json!({ "apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec })
}

/// The status type of `unruly` has a required field, which no answer has set yet.
#[test]
fn a_paused_parent_and_a_first_pass_that_faults_show_their_conditions() {
    let (stage, host) =
        Stage::serving(vec![guest_file("unruly")], &["unrulies.test.innkeeper.dev"]);
    let namespace = stage.namespace("conditions");
    let rows = [
        ("paused", "good", true, "Unknown/Paused"),
        ("traps", "trap", false, "False/GuestTrapped"),
        ("invalid", "invalid", false, "False/Invalid"),
        ("refused", "other-namespace", false, "False/ChildForbidden"),
    ];
    for (name, behaviour, is_paused, _) in rows {
        let spec = json!({ "behaviour": behaviour });
        stage.apply_new(&namespace, &parent(UNRULY, name, &spec, is_paused));
    }
    for (name, _, _, reason) in rows {
        let shows = |parent: &Value| is(parent, reason);
        stage.wait(&host, &namespace, (API, UNRULY, name), shows);
    }
    // The guest can read a parent whose stored status only has conditions.
    let patch = json!({
        "metadata": { "annotations": { "innkeeper.dev/paused": null } },
        "spec": { "behaviour": "good" },
    });
    for name in ["paused", "invalid"] {
        stage.merge(&namespace, (API, UNRULY, name), &patch);
        stage.wait(&host, &namespace, (API, UNRULY, name), is_applied);
    }
    Stage::stop(host);
}

/// The modified CRD for `mirror` rejects a status that only has the host's conditions.
#[test]
fn a_definition_that_refuses_the_conditions_is_told_in_an_event() {
    let mut stage = stage_with_gadgets();
    for mut object in stage.manifests(&[]) {
        if object["kind"] == "CustomResourceDefinition" {
            let version = &mut object["spec"]["versions"][0];
            let status = &mut version["schema"]["openAPIV3Schema"]["properties"]["status"];
            status["required"] = json!(["address"]);
            status["properties"]["address"] = json!({ "type": "string" });
            stage.plane.user().apply(&object).unwrap();
        }
    }
    stage.options.arguments = ["--crds", "ignore", "--admin-address", "127.0.0.1:0"]
        .map(str::to_owned)
        .to_vec();
    let host = stage.host_serving(&[MIRRORS]);
    let namespace = stage.namespace("refused");
    stage.apply_new(&namespace, &parent(MIRROR, "paused", &json!({}), true));
    let note = eventually("an Event names the reason and the refusal", || {
        events(&stage, &namespace)
            .into_iter()
            .find(|(reason, _)| reason == "StatusDenied")
            .map(|(_, note)| note)
            .ok_or_else(|| host.log().unwrap_or_default())
    });
    for part in [
        "status.address: Required value",
        "Paused",
        "innkeeper.dev/paused",
    ] {
        assert!(note.contains(part), "{note}");
    }
    check_metric(&host);
    Stage::stop(host);
}

/// Returns the reason and note for each Event in a namespace.
fn events(stage: &Stage, namespace: &str) -> Vec<(String, String)> {
    let kind = Kind::new("events.k8s.io/v1", "Event", namespace);
    let events = stage.plane.user().list(kind, "").unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .iter()
        .map(|event| (text(&event["reason"]), text(&event["note"])))
        .collect()
}

fn check_metric(host: &Host) {
    let metrics = admin::scrape(&admin::address(host)).unwrap();
    let refused = admin::sum(
        &metrics,
        "innkeeper_plugin_conditions_refused_total",
        "plugin=\"mirror\"",
    );
    assert!(refused >= 1.0, "{metrics}");
}

/// The child's name is taken, or its kind is deleted, both for a plugin that reports readiness itself
/// and for one that leaves it to the host.
#[test]
fn a_parent_is_not_ready_while_a_stated_child_cannot_exist() {
    let (stage, host) = serve_gadgets();
    let namespace = stage.namespace("taken");
    let child = |api_version: &str, kind: &str, name: &str| json!({ "apiVersion": api_version, "kind": kind, "metadata": { "name": name } });
    let controller = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": "other", "controller": true,
        "uid": "00000000-0000-4000-8000-000000000000",
    }]);
    let mut owned = child("v1", "ConfigMap", "owned");
    owned["metadata"]["ownerReferences"] = controller;
    let free = child("v1", "ConfigMap", "free");
    for object in [&owned, &free] {
        stage.apply(&namespace, object);
    }
    let rows = [
        ("owned", "v1", "ConfigMap", "False/ChildNotOwned"),
        ("free", "v1", "ConfigMap", "False/ChildNotOwned"),
        ("gadget", API, "Gadget", "False/ChildrenNotReady"),
    ];
    for states_ready in [false, true] {
        for (name, api_version, kind, _) in rows {
            let children = [child(api_version, kind, name).to_string()];
            let spec = json!({ "children": children, "ready": states_ready });
            stage.apply_new(&namespace, &parent(MIRROR, name, &spec, false));
        }
        if !states_ready {
            stage.wait(&host, &namespace, (API, MIRROR, "gadget"), is_applied);
            let crd = Kind::cluster("apiextensions.k8s.io/v1", "CustomResourceDefinition");
            let name = "gadgets.test.innkeeper.dev";
            stage.plane.user().delete(crd, name).unwrap();
        }
        for (name, _, kind, ready) in rows {
            // A plugin that reports readiness itself decides whether an optional kind matters.
            if states_ready && kind == "Gadget" {
                continue;
            }
            stage.wait(&host, &namespace, (API, MIRROR, name), |parent| {
                let is_current = manifest::is_condition_current(parent, "Ready");
                let text = condition(parent, "Ready").unwrap_or_default();
                is_current && text.starts_with(ready)
            });
        }
    }
    Stage::stop(host);
}
