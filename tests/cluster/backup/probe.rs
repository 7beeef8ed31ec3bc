//! Storage probes: a Job that stores a small archive.

use serde_json::{Value, json};

use super::API;
use crate::suite::{Site, Target, reason};

const STORAGE: Target<'static> = (API, "Storage", "platform");
const SECRET: Target<'static> = ("v1", "Secret", "platform");
const PROBE: Target<'static> = ("batch/v1", "Job", "platform-probe");

/// Returns an example's Secret and Storage, with this `probe` field.
fn storage(prefix: &str, probe: &Value) -> Site {
    let site = Site::new(prefix);
    let path = "examples/backup/09-many-databases.yaml";
    for mut object in innkeeper_tests::manifest::load(path).unwrap() {
        object["metadata"]["namespace"] = site.namespace.clone().into();
        match object["kind"].as_str().unwrap() {
            "Secret" => {}
            "Storage" => object["spec"]["probe"] = probe.clone(),
            _ => continue,
        }
        site.plane.user().apply(&object).unwrap();
    }
    site
}

#[test]
fn a_storage_is_probed_once_and_again_after_a_change_of_its_credentials() {
    let site = storage("backup-probe", &json!({}));
    let parent = site.wait_ready(STORAGE);
    assert_eq!(reason(&parent, "Available"), "Stored");
    let job = site.get(PROBE);
    let uid = &job["metadata"]["uid"];
    assert_eq!(parent["status"]["probe"]["jobUID"], *uid);
    assert!(parent["status"]["probe"]["completionTime"].is_string());
    let owner = &job["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], parent["metadata"]["uid"]);

    // The storage names another key, and a deleted Job is made again only when a probe is due.
    let mark = site.settle();
    site.merge(
        SECRET,
        &json!({ "stringData": { "redis-password": "new" } }),
    );
    site.delete(PROBE);
    site.wait_gone(PROBE);
    site.settle();
    assert!(site.child_writes_since(mark).is_empty());

    site.merge(
        SECRET,
        &json!({ "stringData": { "secret-access-key": "new" } }),
    );
    let probed = |parent: &Value| {
        let probe = &parent["status"]["probe"];
        probe["jobUID"] != *uid && probe["phase"] == "Succeeded"
    };
    site.wait("the new credentials are probed", STORAGE, probed);
    site.wait_ready(STORAGE);

    site.merge(STORAGE, &json!({ "spec": { "probe": null } }));
    site.wait_gone(PROBE);
    site.wait("the result is gone", STORAGE, |parent| {
        parent["status"]["probe"].is_null() && reason(parent, "Ready") == "Valid"
    });
}

#[test]
fn a_failed_probe_is_reported_until_a_later_one_succeeds() {
    let annotations = json!({
        "controlplane.test/exit-code": "1",
        "controlplane.test/termination-message": "AccessDenied: Access Denied",
    });
    let probe = json!({ "podTemplate": { "metadata": { "annotations": annotations } } });
    let site = storage("backup-probe-fails", &probe);
    site.wait("the failure is told", STORAGE, |parent| {
        reason(parent, "Ready") == "ProbeFailed"
            && parent["status"]["probe"]["message"] == "AccessDenied: Access Denied"
    });
    let mark = site.settle();
    site.settle();
    assert!(
        site.child_writes_since(mark).is_empty(),
        "the next one is due after an hour"
    );
    site.merge(
        STORAGE,
        &json!({ "spec": { "probe": { "podTemplate": null } } }),
    );
    let parent = site.wait_ready(STORAGE);
    assert_eq!(reason(&parent, "Available"), "Stored");
}
