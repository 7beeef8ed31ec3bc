//! Dry runs of candidates for live parents: they return the changes and write nothing.

use futures::StreamExt as _;
use innkeeper_plan::Changes;
use innkeeper_sandbox::testing::{Description, fault};
use tokio::time::sleep;

use super::*;

/// Returns a world with one parent whose child is applied.
async fn old_applied() -> (World, Arc<Reconciler>) {
    applied("web", revision_of(saying("old"))).await
}

async fn dry_run_once(reconciler: &Reconciler, candidate: &Candidate, name: &str) -> DryRunOutcome {
    let outcomes = reconciler.dry_run(candidate, vec![parent(name)], Instant::now());
    let (id, outcome) = outcomes.collect::<Vec<_>>().await.pop().unwrap();
    assert_eq!(id, parent(name));
    outcome
}

/// Repeats the dry run for parent `a` until it is not pending.
pub(super) async fn dry_run_candidate(
    reconciler: &Reconciler,
    candidate: &Candidate,
) -> DryRunOutcome {
    let outcome = async {
        loop {
            match dry_run_once(reconciler, candidate, "a").await {
                DryRunOutcome::Pending { .. } => sleep(Duration::from_millis(5)).await,
                outcome => return outcome,
            }
        }
    };
    timeout(PATIENCE, outcome).await.unwrap()
}

async fn dry_run(reconciler: &Reconciler, guest: Guest) -> DryRunOutcome {
    dry_run_candidate(reconciler, &reconciler.candidate(revision_of(guest))).await
}

#[track_caller]
pub(super) fn changes(outcome: DryRunOutcome) -> Changes {
    match outcome {
        DryRunOutcome::Planned(draft) => draft.plan.changes(),
        other => panic!("{other:?}"),
    }
}

fn config_map(name: &str, says: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"says": says},
    })
    .to_string()
}

#[tokio::test]
async fn a_dry_run_returns_the_changes_and_writes_nothing() {
    let (world, reconciler) = old_applied().await;
    let writes = world.server.writes();
    let before = world.server.get("webs", "a", "web");

    let same = dry_run(&reconciler, saying("old")).await;
    assert_eq!(changes(same), Changes::default());
    let both = desired(vec![
        owned_child("child", &config_map("child", "new")),
        owned_child("more", &config_map("more", "new")),
    ]);
    let more = dry_run(&reconciler, guest().answering(both)).await;
    let child = |name: &str| ObjectId::new(GroupKind::new("", "ConfigMap"), Some("a"), name);
    let expected = Changes {
        creates: vec![child("more")],
        updates: vec![child("child")],
        ..Changes::default()
    };
    assert_eq!(changes(more), expected);
    let nothing = dry_run(&reconciler, guest().answering(desired(Vec::new()))).await;
    let expected = Changes {
        deletes: vec![child("child")],
        ..Changes::default()
    };
    assert_eq!(changes(nothing), expected);

    assert_eq!(world.server.writes(), writes);
    assert_eq!(world.server.get("webs", "a", "web"), before);
    // The active revision works as before.
    world.put_parent("b", 1);
    world
        .drive(&reconciler, "another", |world| {
            world.synced("b") == "Applied"
        })
        .await;
    assert_eq!(world.child_says("a").as_deref(), Some("old"));
}

#[tokio::test]
async fn a_dry_run_returns_the_faults_of_a_candidate() {
    let (world, reconciler) = old_applied().await;
    let writes = world.server.writes();
    let reason = |outcome: DryRunOutcome| match outcome {
        DryRunOutcome::Refused { reason, .. } => reason,
        other => panic!("{other:?}"),
    };
    let traps = saying("new").doing("(unreachable)", &[]);
    assert_eq!(reason(dry_run(&reconciler, traps).await), "GuestTrapped");
    let loops = saying("new").doing("(loop $again (br $again))", &[]);
    assert_eq!(
        reason(dry_run(&reconciler, loops).await),
        "DeadlineExceeded"
    );
    let undeclared = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
    let undeclared = desired(vec![owned_child("s", &undeclared.to_string())]);
    let undeclared = guest().answering(undeclared);
    assert_eq!(
        reason(dry_run(&reconciler, undeclared).await),
        "ChildForbidden"
    );
    let expected = DryRunOutcome::Refused {
        reason: "Invalid".to_owned(),
        message: "no".to_owned(),
    };
    let invalid = guest().answering(fault(1, "no"));
    assert_eq!(dry_run(&reconciler, invalid).await, expected);
    assert_eq!(world.server.writes(), writes);
    assert_eq!(world.synced("a"), "Applied");
}

#[tokio::test]
async fn only_the_candidate_waits_for_kinds_that_are_not_watched_yet() {
    let (_world, reconciler) = old_applied().await;
    let services = Description {
        children: vec![["v1", "Service"].map(str::to_owned)],
        ..Description::default()
    };
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}});
    let service = desired(vec![owned_child("s", &service.to_string())]);
    let candidate = guest().describing(services).answering(service);
    let candidate = reconciler.candidate(revision_of(candidate));
    let outcome = dry_run_once(&reconciler, &candidate, "a").await;
    assert!(
        matches!(outcome, DryRunOutcome::Pending { .. }),
        "{outcome:?}"
    );
    assert_eq!(reconciler.registration().waiting(), []);
    let outcome = dry_run_candidate(&reconciler, &candidate).await;
    // The active revision created the ConfigMap, so its kind is in the inventory.
    let changes = changes(outcome);
    assert_eq!((changes.creates.len(), changes.deletes.len()), (1, 1));
}

#[tokio::test]
async fn parents_without_a_pass_have_no_dry_run() {
    let (world, reconciler) = old_applied().await;
    let paused = json!({"metadata": {"annotations": {"innkeeper.dev/paused": "true"}}, "spec": {}});
    world.server.put("webs", "a", "web", paused);
    world
        .drive(&reconciler, "paused", |world| world.synced("a") == "Paused")
        .await;
    assert_eq!(
        dry_run(&reconciler, saying("new")).await,
        DryRunOutcome::Idle
    );
    let candidate = reconciler.candidate(revision_of(saying("new")));
    let outcome = dry_run_once(&reconciler, &candidate, "gone").await;
    assert_eq!(outcome, DryRunOutcome::Idle);
}

#[tokio::test]
async fn only_changes_and_faults_are_compared_with_another_revision() {
    let (_world, reconciler) = old_applied().await;
    let plugin = reconciler.plugin();
    let now = Timestamp::UNIX_EPOCH;
    let invalid = guest().answering(fault(1, "no"));
    for (candidate, expected) in [
        (saying("old"), false),
        (saying("new"), true),
        (invalid, true),
    ] {
        let outcome = dry_run(&reconciler, candidate).await;
        assert_eq!(outcome.is_comparable(plugin, now), expected, "{outcome:?}");
    }
    assert!(!DryRunOutcome::Idle.is_comparable(plugin, now));
}

#[tokio::test]
async fn a_dry_run_for_many_parents_has_a_result_for_each() {
    let (world, reconciler) = old_applied().await;
    let names: Vec<String> = (0..40).map(|number| format!("more-{number}")).collect();
    for name in &names {
        world.put_parent(name, 1);
    }
    let are_cached = || reconciler.registration().parents().len() > names.len();
    world
        .drive(&reconciler, "all are seen", |_| are_cached())
        .await;
    let candidate = reconciler.candidate(revision_of(saying("new")));
    dry_run_candidate(&reconciler, &candidate).await;
    let mut parents = reconciler.registration().parents();
    parents.insert(7, parent("gone"));
    let mut outcomes: Vec<_> = reconciler
        .dry_run(&candidate, parents.clone(), Instant::now())
        .collect()
        .await;
    outcomes.sort_by(|(left, _), (right, _)| left.cmp(right));
    parents.sort();
    let ids: Vec<ObjectId> = outcomes.iter().map(|(id, _)| id.clone()).collect();
    assert_eq!(ids, parents, "each parent should have one result");
    for (id, outcome) in outcomes {
        if id == parent("gone") {
            assert_eq!(outcome, DryRunOutcome::Idle);
        } else {
            assert!(
                matches!(outcome, DryRunOutcome::Planned(_)),
                "{id}: {outcome:?}"
            );
        }
    }
}
