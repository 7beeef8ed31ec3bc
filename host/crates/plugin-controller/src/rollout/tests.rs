//! The rules for a new revision.

use innkeeper_model::{ParentKind, PluginName, Scope};
use serde_json::{Value, json};

use super::*;
use crate::testing::declared;

fn digest(text: &str) -> Digest {
    Digest::hash(text.as_bytes())
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
