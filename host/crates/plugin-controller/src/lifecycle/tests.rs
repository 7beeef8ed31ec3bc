//! The rules for a new revision, and the times of conditions.

use innkeeper_model::{ConditionStatus, ParentKind, PluginName, Scope};
use serde_json::{Value, json};

use super::*;
use crate::tests::declared;

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

#[test]
fn a_revision_that_deletes_or_breaks_too_much_or_is_gated_waits_for_approval() {
    let judge = |rollout: Value, counts, children, expected| {
        let declared = declared(json!({"rollout": rollout}));
        let verdict = verdict(&declared.rollout, &digest("a"), counts, children);
        assert_eq!(verdict, expected, "{rollout}: {counts:?} of {children}");
    };
    let check = |rollout, deletes, children, expected| {
        let counts = CandidateCounts {
            deletes,
            ..CandidateCounts::default()
        };
        judge(rollout, counts, children, expected);
    };
    let accepted = CandidateVerdict::Accepted;
    check(json!({}), 10, 0, accepted);
    check(json!({}), 11, 50, CandidateVerdict::TooManyPrunes);
    check(json!({}), 20, 100, accepted);
    let none = json!({"maxPrunes": 0});
    check(none, 1, 100, CandidateVerdict::TooManyPrunes);
    let gated = json!({"mode": "Gated"});
    check(gated, 0, 0, CandidateVerdict::AwaitingApproval);
    let name = revision_name(&digest("a"));
    let approved = json!({"mode": "Gated", "maxPrunes": 0, "approve": name});
    check(approved, 99, 100, accepted);
    // The approved revision is another one.
    let other = json!({"mode": "Gated", "approve": revision_name(&digest("b"))});
    check(other, 0, 0, CandidateVerdict::AwaitingApproval);

    let immediate = || json!({});
    let gated = || json!({"mode": "Gated"});
    let approved = || json!({"approve": revision_name(&digest("a"))});
    for (rollout, faults, parents, expected) in [
        (immediate(), 0, 0, accepted),
        (immediate(), 1, 1, CandidateVerdict::TooManyFaults),
        // The share that the first passes may have, too.
        (immediate(), 1, 5, accepted),
        (immediate(), 2, 9, CandidateVerdict::TooManyFaults),
        (gated(), 9, 9, CandidateVerdict::AwaitingApproval),
        (approved(), 9, 9, accepted),
    ] {
        let counts = CandidateCounts {
            parents,
            faults,
            ..CandidateCounts::default()
        };
        judge(rollout, counts, 0, expected);
    }
}

#[test]
fn finalizers_stay_where_the_revision_finalizes() {
    let kind = |version, kind| Gvk::new("example.com", version, kind);
    let recorded = BTreeSet::from([kind("v1", "Web"), kind("v1", "Old")]);
    let manifest = |finalize| Manifest {
        name: PluginName::new("web").unwrap(),
        version: "1".to_owned(),
        parents: vec![ParentKind {
            kind: kind("v2", "Web"),
            plural: "webs".into(),
            scope: Scope::Namespaced,
        }],
        crds: Vec::new(),
        children: Vec::new(),
        reads: Vec::new(),
        finalize,
        reads_own_status: false,
        config_schema: None,
    };
    let old = BTreeSet::from([kind("v1", "Old")]);
    assert_eq!(not_finalized(&recorded, &manifest(true)), old);
    assert_eq!(not_finalized(&recorded, &manifest(false)), recorded);
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let at = |second| jiff::Timestamp::from_second(second).unwrap();
    let conditions = |fetched, reason: &str| {
        [("Fetched", fetched), ("Degraded", ConditionStatus::False)]
            .map(|(kind, status)| Condition {
                kind: kind.to_owned(),
                status,
                reason: reason.to_owned(),
                message: String::new(),
            })
            .to_vec()
    };
    let first = dated(conditions(ConditionStatus::True, "A"), &[], Some(1), at(1));
    let failed = conditions(ConditionStatus::False, "B");
    let second = dated(failed.clone(), &first, Some(2), at(2));
    let times = second.iter().map(|one| one.last_transition_time.0);
    assert_eq!(times.collect::<Vec<_>>(), [at(2), at(1)]);
    let third = dated(failed, &second, Some(3), at(3));
    let moved = |one: &meta::Condition| one.last_transition_time.0 == at(3);
    assert!(!third.iter().any(moved));
    assert!(third.iter().all(|one| one.observed_generation == Some(3)));
}

#[test]
fn the_message_of_a_failure_fits_into_a_condition() {
    // A component may have a hundred thousand forbidden imports, and the API server takes 32,768 characters.
    let failure = StageFailure::new(Stage::Verified, "X", "é".repeat(100_000), Retry::Never);
    assert_eq!(failure.message.chars().count(), 2048);
}
