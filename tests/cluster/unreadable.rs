//! Child kinds that the API server serves but fails to list.

use std::time::Duration;

use innkeeper_tests::{
    Host,
    admin::{self, address, ask},
    eventually_for,
    manifest::condition,
    user::Kind,
};
use serde_json::{Value, json};

use crate::{
    admin::wait_ready,
    mirrored::{MIRRORS_AND_GADGETS, stage_with_gadgets},
    stage::{Stage, is_applied, is_synced},
    suite::Target,
};

const GADGETS: &str = "gadgets.test.innkeeper.dev";
const DEFINITION: Target<'static> = (
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    GADGETS,
);

/// Time limit for applying an edit after the host's start.
const APPLIED_WITHIN: Duration = Duration::from_secs(25);

fn parent(name: &'static str) -> Target<'static> {
    ("test.innkeeper.dev/v1", "Mirror", name)
}

fn config_map(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
        "data": {"value": value},
    })
}

fn gadget(name: &str) -> Value {
    json!({
        "apiVersion": "test.innkeeper.dev/v1", "kind": "Gadget", "metadata": {"name": name},
        "spec": {"numbers": [1]},
    })
}

fn apply(stage: &Stage, namespace: &str, name: &'static str, children: &[Value]) {
    let (api_version, kind, _) = parent(name);
    let children: Vec<String> = children.iter().map(Value::to_string).collect();
    let object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name},
        "spec": {"children": children},
    });
    stage.apply_new(namespace, &object);
}

/// Stores all gadgets in a new version, which only a broken webhook can convert to the plugin's
/// version.
fn break_conversion(stage: &Stage, namespace: &str, names: &[&'static str]) {
    let mut versions = stage.get("", DEFINITION)["spec"]["versions"].clone();
    let mut stored = versions[0].clone();
    versions[0]["storage"] = json!(false);
    stored["name"] = json!("v2");
    versions.as_array_mut().unwrap().push(stored);
    stage.merge("", DEFINITION, &json!({"spec": {"versions": versions}}));
    for name in names {
        // The API server may still store the old version, and it skips writes without a change.
        let mut round = 0;
        eventually_for(
            APPLIED_WITHIN,
            "the gadget is stored in the new version",
            || {
                round += 1;
                let kind = Kind::new("test.innkeeper.dev/v2", "Gadget", namespace);
                let touch = json!({"metadata": {"annotations": {"round": round.to_string()}}});
                stage.plane.user().merge(kind, name, &touch).map(drop)
            },
        );
    }
    let webhook = json!({"spec": {"conversion": {
        "strategy": "Webhook",
        "webhook": {
            "clientConfig": {"url": "https://127.0.0.1:1/convert"},
            "conversionReviewVersions": ["v1"],
        },
    }}});
    stage.merge("", DEFINITION, &webhook);
    eventually_for(APPLIED_WITHIN, "the gadgets cannot be listed", || {
        let kind = Kind::new("test.innkeeper.dev/v1", "Gadget", namespace);
        if stage.plane.user().can_list(kind).unwrap() {
            return Err("they are listed");
        }
        Ok(())
    });
}

#[track_caller]
fn wait_within(
    stage: &Stage,
    host: &Host,
    namespace: &str,
    name: &'static str,
    is_met: impl Fn(&Value) -> bool,
) -> Value {
    eventually_for(APPLIED_WITHIN, name, || {
        let object = stage.get(namespace, parent(name));
        if is_met(&object) {
            Ok(object)
        } else {
            Err(format!("{:#}\n{}", object["status"], host.log().unwrap()))
        }
    })
}

fn data(stage: &Stage, namespace: &str, name: &str) -> Value {
    stage.get(namespace, ("v1", "ConfigMap", name))["data"]["value"].clone()
}

/// If listing an optional kind fails, the host still applies all parents' other children, and neither
/// deletes objects of this kind nor reports them as missing.
#[test]
fn an_optional_kind_that_cannot_be_listed_stops_only_its_own_children() {
    let mut stage = stage_with_gadgets();
    let arguments = admin::ARGUMENTS.map(str::to_owned);
    stage.options.arguments.extend(arguments);
    let host = stage.host_serving(&MIRRORS_AND_GADGETS);
    let namespace = &stage.namespace("unreadable");
    let with_gadgets = ["kept", "dropped"];
    for name in with_gadgets {
        apply(
            &stage,
            namespace,
            name,
            &[config_map(name, "1"), gadget(name)],
        );
        stage.wait(&host, namespace, parent(name), is_applied);
    }
    apply(&stage, namespace, "without", &[config_map("without", "1")]);
    stage.wait(&host, namespace, parent("without"), is_applied);
    Stage::stop(host);
    break_conversion(&stage, namespace, &with_gadgets);

    let host = stage.host();
    apply(&stage, namespace, "without", &[config_map("without", "2")]);
    apply(
        &stage,
        namespace,
        "kept",
        &[config_map("kept", "2"), gadget("kept")],
    );
    apply(&stage, namespace, "dropped", &[config_map("dropped", "2")]);
    for name in ["without", "dropped"] {
        wait_within(&stage, &host, namespace, name, is_applied);
        assert_eq!(data(&stage, namespace, name), "2");
    }
    let blocked = wait_within(&stage, &host, namespace, "kept", |parent| {
        is_synced(parent, "False", "KindUnreadable")
    });
    assert_eq!(data(&stage, namespace, "kept"), "2");
    let text = condition(&blocked, "Synced").unwrap();
    for part in ["demo/kept", "could not be listed", "conversion webhook"] {
        let part = part.replace("demo", namespace);
        assert!(text.contains(&part), "{text}");
    }
    let address = &address(&host);
    wait_ready(address);
    assert_eq!(ask(address, "GET", "/readyz", "").unwrap().0, 200);

    stage.merge(
        "",
        DEFINITION,
        &json!({"spec": {"conversion": {"strategy": "None", "webhook": null}}}),
    );
    stage.wait(&host, namespace, parent("kept"), is_applied);
    let target = |name| ("test.innkeeper.dev/v1", "Gadget", name);
    // Without a garbage collector, the deleted object keeps the foreground-deletion finalizer.
    stage.wait(&host, namespace, target("dropped"), |gadget| {
        gadget["metadata"]["deletionTimestamp"].is_string()
    });
    assert!(stage.find(namespace, target("kept")).is_some());
    Stage::stop(host);
}
