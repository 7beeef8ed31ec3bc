//! The finalizer's life cycle: L1.

use expect_test::expect;
use innkeeper_model::{Outcome, Phase, Report};
use serde_json::json;

use super::build::*;
use crate::{Effects, PassEntry, Progress, conclude, enter};

const OURS: &str = "innkeeper.dev/web";

fn finalizing() -> Scene {
    let mut scene = scene();
    scene.manifest.finalize = true;
    scene
}

#[test]
fn the_finalizer_is_added_before_the_first_child_l1() {
    let mut scene = finalizing();
    let answer = desired(vec![config_map("a")]);
    expect![[r#"
        add finalizer
        create v1 ConfigMap demo/a
    "#]]
    .assert_eq(&scene.plan(&[], &answer).to_string());
    scene.parent = parent("p1").finalizers(&[OURS]);
    expect![[r#"
        create v1 ConfigMap demo/a
    "#]]
    .assert_eq(&scene.plan(&[], &answer).to_string());
}

#[test]
fn a_plugin_that_does_not_finalize_has_no_finalizer_l1() {
    let mut scene = scene();
    let answer = desired(vec![config_map("a")]);
    expect![[r#"
        create v1 ConfigMap demo/a
    "#]]
    .assert_eq(&scene.plan(&[], &answer).to_string());
    // A revision that no longer finalizes removes the finalizer in the next pass, even if the answer is `keep`.
    scene.parent = parent("p1").finalizers(&[OURS]);
    expect![[r#"
        create v1 ConfigMap demo/a
        remove finalizer
    "#]]
    .assert_eq(&scene.plan(&[], &answer).to_string());
    let keep = Outcome::Keep(Report::default());
    expect![[r#"
        remove finalizer
    "#]]
    .assert_eq(&scene.plan(&[], &keep).to_string());
}

#[test]
fn cleaning_up_may_create_and_ends_with_the_finalizer_l1() {
    let mut scene = finalizing();
    scene.parent = parent("p1").finalizers(&[OURS]).deleting();
    let job = desired(vec![child("batch/v1", "Job", "clean")]);
    expect![[r#"
        create batch/v1 Job demo/clean
    "#]]
    .assert_eq(&scene.plan(&[], &job).to_string());
    let keep = Outcome::Keep(Report::default());
    assert!(scene.plan(&[], &keep).is_settled());
    let done = Outcome::Finalized(Report::default());
    expect![[r#"
        remove finalizer
    "#]]
    .assert_eq(&scene.plan(&[], &done).to_string());
}

#[test]
fn nothing_is_created_during_a_foreground_deletion() {
    let mut scene = finalizing();
    scene.parent = parent("p1")
        .finalizers(&["foregroundDeletion", OURS])
        .deleting();
    let plan = scene.plan(&[], &desired(vec![child("batch/v1", "Job", "clean")]));
    assert!(plan.is_settled());
    assert_eq!(plan.children[0].progress, Progress::Withheld);
    let conclusion = conclude(&plan, &Effects::default());
    assert_eq!(conclusion.synced.reason, "ChildDeleting");
    assert!(conclusion.synced.message.contains("foreground"));
}

#[test]
fn nothing_is_created_in_a_terminating_namespace_l1() {
    let mut scene = finalizing();
    scene.parent = parent("p1").finalizers(&[OURS]).deleting();
    scene.namespace_terminating = true;
    let plan = scene.plan(&[], &desired(vec![child("batch/v1", "Job", "clean")]));
    assert!(plan.is_settled());
    let conclusion = conclude(&plan, &Effects::default());
    assert_eq!(conclusion.synced.reason, "NamespaceTerminating");
    let message = &conclusion.synced.message;
    assert!(message.contains("innkeeper.dev/skip-finalize"), "{message}");
    assert!(message.contains("Job.batch demo/clean"), "{message}");
    // A later attempt would be refused as well.
    assert_eq!(conclusion.retry, None);
    let done = scene.plan(&[], &Outcome::Finalized(Report::default()));
    assert_eq!(done.to_string(), "remove finalizer\n");
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_parent_gets_the_pass_for_its_state_l1() {
    let skip = |parent: Parent| {
        parent.with(
            "/metadata",
            "annotations",
            json!({"innkeeper.dev/skip-finalize": "true"}),
        )
    };
    let paused = |parent: Parent| {
        parent.with(
            "/metadata",
            "annotations",
            json!({"innkeeper.dev/paused": "true"}),
        )
    };
    let ours = || parent("p1").finalizers(&["other", OURS]);
    for (what, parent, finalize, expected) in [
        (
            "plain",
            parent("p1"),
            false,
            PassEntry::Pass(Phase::Reconcile),
        ),
        (
            "with finalizer",
            ours(),
            true,
            PassEntry::Pass(Phase::Reconcile),
        ),
        (
            "deleting, not ours",
            parent("p1").finalizers(&["other"]).deleting(),
            true,
            PassEntry::Ignore,
        ),
        (
            "deleting",
            ours().deleting(),
            true,
            PassEntry::Pass(Phase::Finalize),
        ),
        (
            "deleting, not finalizing any more",
            ours().deleting(),
            false,
            PassEntry::Release,
        ),
        (
            "deleting, skipped",
            skip(ours()).deleting(),
            true,
            PassEntry::Release,
        ),
        (
            "skipped but alive",
            skip(ours()),
            true,
            PassEntry::Pass(Phase::Reconcile),
        ),
        ("paused", paused(parent("p1")), true, PassEntry::Paused),
        (
            "paused, deleting",
            paused(ours()).deleting(),
            true,
            PassEntry::Paused,
        ),
    ] {
        let mut manifest = manifest();
        manifest.finalize = finalize;
        assert_eq!(
            enter(&parent.object(), &manifest.name, &manifest),
            expected,
            "{what}"
        );
    }
}
