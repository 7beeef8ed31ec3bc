//! Archive verifications: a Job that restores into a scratch database.

use serde_json::{Value, json};

use super::API;
use crate::suite::{Site, Target, reason};

/// Returns a Backup that verifies, and whose run leaves an archive, with more annotations on its Pods.
fn verifying(prefix: &str, further: &Value) -> Site {
    let site = Site::new(prefix);
    let stored = json!({ "artifacts": [{ "storage": "ledger", "file": "1.tar.gz.enc" }] });
    let mut annotations = further.clone();
    annotations["controlplane.test/termination-message.gobackup"] = stored.to_string().into();
    let objects = innkeeper_tests::manifest::load("examples/backup/08-verified.yaml").unwrap();
    for mut object in objects {
        object["metadata"]["namespace"] = site.namespace.clone().into();
        if object["kind"] == "Backup" {
            object["metadata"]["annotations"] = json!({ "gobackup.io/run-now": "first" });
            object["spec"]["podTemplate"] = json!({ "metadata": { "annotations": annotations } });
        }
        site.plane.user().apply(&object).unwrap();
    }
    site
}

const VERIFIED: Target<'static> = (API, "Backup", "ledger");
const VERIFICATION: Target<'static> = ("batch/v1", "Job", "ledger-verify");

#[test]
fn the_archive_of_a_run_is_verified_once_and_the_next_one_by_a_job_of_its_own() {
    let site = verifying("backup-verify", &json!({}));
    let parent = site.wait("the archive is verified", VERIFIED, |parent| {
        reason(parent, "Verified") == "Restored"
    });
    assert_eq!(parent["status"]["successCount"], 1, "no run of gobackup");
    assert_eq!(parent["status"]["verification"]["file"], "1.tar.gz.enc");
    assert!(parent["status"]["lastVerificationTime"].is_string());
    site.wait_ready(VERIFIED);
    let job = site.get(VERIFICATION);
    assert_eq!(
        job["metadata"]["ownerReferences"][0]["uid"],
        parent["metadata"]["uid"]
    );
    let mark = site.settle();
    site.delete(VERIFICATION);
    site.wait_gone(VERIFICATION);
    site.settle();
    assert!(site.child_writes_since(mark).is_empty());

    // The next run's archive has the same name here, so only a lost record makes it due.
    let scratch = (API, "Database", "ledger-check");
    site.merge(scratch, &json!({ "metadata": { "annotations": null } }));
    site.merge(VERIFIED, &json!({ "spec": { "verify": null } }));
    site.wait("the record is gone", VERIFIED, |parent| {
        parent["status"]["verification"].is_null()
    });
    let spec = json!({ "databases": [{ "database": "ledger", "databaseRef": { "name": "ledger-check" } }] });
    site.merge(VERIFIED, &json!({ "spec": { "verify": spec } }));
    site.wait("the scratch database is refused", VERIFIED, |parent| {
        reason(parent, "Verified") == "InvalidReference"
    });
    assert!(site.find(VERIFICATION).is_none());
    site.wait_ready(VERIFIED);
    let consent = json!({ "metadata": { "annotations": { "gobackup.io/scratch": "true" } } });
    site.merge(scratch, &consent);
    site.wait("the archive is verified again", VERIFIED, |parent| {
        reason(parent, "Verified") == "Restored"
    });
}

#[test]
fn a_failed_verification_is_reported_and_fails_no_run() {
    let further = json!({
        "controlplane.test/exit-code.restore": "1",
        "controlplane.test/termination-message.restore": "the archive has no dump of it",
    });
    let site = verifying("backup-verify-fails", &further);
    let parent = site.wait("the failure is reported", VERIFIED, |parent| {
        reason(parent, "Verified") == "VerificationFailed"
            && parent["status"]["verification"]["message"] == "the archive has no dump of it"
    });
    assert_eq!(parent["status"]["failureCount"], 0);
    assert_eq!(reason(&parent, "Failed"), "NotFailed");
    assert!(parent["status"]["lastVerificationTime"].is_null());
    site.wait_ready(VERIFIED);
}
