//! Edits and deletions of a plugin's CRDs while the host runs, for plugin files and Plugin
//! resources.

use std::time::Duration;

use innkeeper_tests::{
    Host, HostOptions,
    admin::{self, address, ask},
    eventually, eventually_for,
    manifest::condition,
    process::is_full,
};
use serde_json::{Value, json};

use crate::{
    plugins::{HEALTHY, NAME, PARENT, PluginSite},
    stage::{Stage, is_applied, wait_logged},
    suite::Target,
};

const CRD: &str = "memcacheds.cache.example.com";
const DEFINITION: Target<'static> = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", CRD);

/// The host checks a CRD within ten seconds, and each installation doubles the wait for the next
/// one.
const RESTORED_WITHIN: Duration = Duration::from_secs(90);

/// JSON pointer to the schema for the parents' spec.
const SPEC: &str = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";

/// An edit to a CRD.
type Edit = fn(&mut Value);

/// Edits that another user makes to the CRD and that the host reverts.
const EDITS: [(&str, Edit); 4] = [
    ("a property is gone", |crd| {
        let spec = crd.pointer_mut(SPEC).unwrap().as_object_mut().unwrap();
        // These rules use the property that is removed below.
        spec.remove("x-kubernetes-validations");
        spec["properties"].as_object_mut().unwrap().remove("size");
    }),
    ("a property is required", |crd| {
        crd.pointer_mut(SPEC).unwrap()["required"] = json!(["size", "other"]);
    }),
    ("a value has a bound", |crd| {
        crd.pointer_mut(SPEC).unwrap()["properties"]["size"]["maximum"] = json!(1);
    }),
    ("the host's mark is gone", |crd| {
        crd["metadata"]
            .as_object_mut()
            .unwrap()
            .remove("annotations");
        crd.pointer_mut(SPEC).unwrap()["description"] = json!("another");
    }),
];

/// Checks that a CRD is restored after its deletion and these edits, and that the host serves
/// parents of the restored kind.
fn check_restored(stage: &Stage, host: &Host, namespace: &str, edits: &[(&str, Edit)]) {
    let user = stage.plane.user();
    let original = stage.get("", DEFINITION);
    stage.delete("", DEFINITION);
    eventually_for(RESTORED_WITHIN, "the definition is back", || {
        let crd = stage.find("", DEFINITION).unwrap_or_default();
        let uid = &crd["metadata"]["uid"];
        if uid.is_string() && *uid != original["metadata"]["uid"] {
            Ok(())
        } else {
            Err(host.log().unwrap())
        }
    });
    stage.wait_served(host, &[CRD]);
    stage.apply_example(namespace, "examples/memcached/01-article.yaml");
    stage.wait(host, namespace, PARENT, is_applied);
    for &(name, edit) in edits {
        // The API server writes the status concurrently.
        eventually(name, || {
            let mut crd = stage.get("", DEFINITION);
            edit(&mut crd);
            user.replace(&crd).map(drop)
        });
        eventually_for(RESTORED_WITHIN, name, || {
            let crd = stage.get("", DEFINITION);
            if crd["spec"] == original["spec"] {
                Ok(())
            } else {
                Err(host.log().unwrap())
            }
        });
    }
}

/// Labels the CRD for this plugin.
fn label(stage: &Stage, plugin: &str) {
    let label = json!({"metadata": {"labels": {"innkeeper.dev/plugin": plugin}}});
    stage.merge("", DEFINITION, &label);
}

fn readiness(address: &str) -> (u16, String) {
    ask(address, "GET", "/readyz", "").unwrap()
}

#[test]
fn a_definition_of_a_plugin_file_is_kept_or_its_absence_is_reported() {
    let mut stage = Stage::api_only(HostOptions::with_guests(&["memcached"]).unwrap().plugins);
    let arguments = admin::ARGUMENTS.map(str::to_owned);
    stage.options.arguments.extend(arguments);
    let host = stage.host();
    let address = address(&host);
    stage.wait_served(&host, &[CRD]);
    let namespace = stage.namespace("definitions");
    check_restored(&stage, &host, &namespace, &EDITS);

    label(&stage, "another");
    wait_logged(
        &host,
        "the host reports the definition of another",
        "exists and belongs to plugin another",
    );
    let (code, body) = readiness(&address);
    assert_eq!(code, 503, "{body}");
    assert!(body.contains("belongs to plugin another"), "{body}");
    label(&stage, "memcached");
    eventually_for(
        RESTORED_WITHIN,
        "the host is ready again",
        || match readiness(&address) {
            (200, _) => Ok(()),
            (_, body) => Err(body),
        },
    );
    Stage::stop(host);
}

#[test]
fn a_definition_of_a_plugin_resource_is_kept_or_its_absence_is_reported() {
    let site = PluginSite::new();
    let stage = &site.stage;
    let host = site.start();
    site.apply(&json!({}));
    site.wait_conditions(&host, &HEALTHY);
    stage.wait_served(&host, &[CRD]);
    // Each one doubles the wait for the next; what an edit is, is the same for plugin files.
    let edits = if is_full() { &EDITS[..] } else { &EDITS[..1] };
    check_restored(stage, &host, &site.namespace, edits);

    label(stage, "another");
    let plugin = site.wait_conditions(&host, &["Serving=True/Serving", "Ready=False/CrdRefused"]);
    let text = condition(&plugin, "Ready").unwrap();
    assert!(text.contains("belongs to plugin another"), "{text}");
    label(stage, NAME);
    site.wait_conditions(&host, &HEALTHY);
    Stage::stop(host);
}
