//! Snapshots before an upgrade to etcd 3.7.

use super::*;

const OLD: &str = "registry:5000/etcd:v3.6.14";
const NEW: &str = "registry:5000/etcd:v3.7.1";

fn with_image(image: &str) -> EtcdCluster {
    parent(json!({ "size": 3, "image": image, "options": { "snapshot-catchup-entries": "100" } }))
}

fn pods(ready: [bool; 3]) -> FakeHost {
    (0..).zip(ready).fold(host(), |host, (ordinal, ready)| {
        host.object(&pod(ordinal, ready, OLD))
    })
}

/// The image in the template, and the `Progressing` reason.
fn stated(outcome: &Answer) -> (String, String) {
    let template = &outcome.child("members").unwrap().object["spec"]["template"];
    let container = &template["spec"]["containers"][0];
    let image = container["image"].as_str().unwrap().to_owned();
    let arguments = container["args"].as_array().unwrap();
    let has = |flag: &str| {
        arguments
            .iter()
            .filter(|argument| *argument == flag)
            .count()
            == 1
    };
    let writes = has("--snapshot-count=1") && has("--snapshot-catchup-entries=1");
    assert_eq!(writes, image == OLD, "{arguments:?}");
    assert_eq!(container["startupProbe"]["exec"].is_null(), image == NEW);
    let init = template["spec"]["initContainers"].as_array().unwrap();
    assert_eq!(init.len(), if image == OLD { 2 } else { 1 });
    (image, reason(outcome, "Progressing").to_owned())
}

fn check(outcome: &Answer, image: &str, progressing: &str) {
    assert_eq!(stated(outcome), (image.to_owned(), progressing.to_owned()));
}

/// The passes from a changed image to the template that writes snapshots.
fn edited() -> Vec<(String, Value)> {
    let (outcome, _) = formed(&with_image(OLD));
    let edited = answer(
        observing(&with_image(NEW), &settled(&outcome, 3)),
        &pods([true; 3]),
    );
    check(&edited, OLD, "PreparingUpgrade");
    let status = edited.report().status.as_ref().unwrap();
    assert_eq!(status["targetVersion"], "3.7.1");
    settled(&edited, 3)
}

#[test]
fn each_member_writes_a_snapshot_before_an_upgrade_to_3_7() {
    let prepared = edited();
    let late = pods([true, true, false]).now(1_000_000);
    let step = answer(observing(&with_image(NEW), &prepared), &late);
    assert_eq!(stated(&step).0, OLD);
    let begun = answer(observing(&with_image(NEW), &prepared), &pods([true; 3]));
    check(&begun, NEW, "RollingUpdate");
    let status = begun.report().status.as_ref().unwrap();
    assert_eq!(status["currentVersion"], "3.6.14");
    assert_eq!(status["targetVersion"], "3.7.1");
    // The 3.7 template stays, even with a member down, and so does another patch's.
    let begun = settled(&begun, 3);
    let down = answer(
        observing(&with_image(NEW), &begun),
        &pods([true, true, false]),
    );
    assert_eq!(stated(&down).0, NEW);
    let mut patch = with_image(NEW);
    patch.spec.image = Some(NEW.replace(".1", ".2"));
    let patched = answer(observing(&patch, &begun), &pods([true; 3]));
    assert!(
        patched.child("members").unwrap().object["spec"]["template"]["spec"]["containers"][0]["image"]
            == *patch.spec.image.unwrap()
    );
}

#[test]
fn a_change_of_another_field_in_the_middle_goes_with_the_snapshots() {
    let prepared = edited();
    let mut other = with_image(NEW);
    other.spec.snapshot_count = Some(5000);
    let step = answer(observing(&other, &prepared), &pods([true; 3]));
    check(&step, NEW, "RollingUpdate");
    other
        .spec
        .options
        .insert("pre-vote".to_owned(), "true".to_owned());
    let step = answer(observing(&other, &prepared), &pods([true; 3]));
    check(&step, OLD, "PreparingUpgrade");
}

#[test]
fn a_lost_record_keeps_the_step_before_the_upgrade() {
    let (outcome, _) = formed(&with_image(OLD));
    let mut children = settled(&outcome, 3);
    children.retain(|(key, _)| key != "state");
    let step = answer(observing(&with_image(NEW), &children), &pods([true; 3]));
    assert_eq!(stated(&step).0, OLD);
}

#[test]
fn an_upgrade_without_members_that_could_write_snapshots_is_invalid() {
    let mut children = edited();
    children.retain(|(key, _)| key != "members");
    let request = observing(&with_image(NEW), &children).build();
    let fault = Plugin::reconcile(&request, &host()).unwrap_err();
    assert_eq!(
        fault.message,
        "spec.image: before an upgrade to 3.7.1, each member writes a snapshot with version 3.6.14, but the StatefulSet is \
         gone: go back to 3.6.14 until the cluster is Ready"
    );
    // With the 3.6 image, it is recreated.
    let back = answer(observing(&with_image(OLD), &children), &host());
    assert!(back.child("members").is_some());
}
