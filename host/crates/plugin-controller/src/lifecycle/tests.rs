//! Every state of a plugin, the step that follows, and its conditions.

use serde_json::{Value, json};

use super::*;
use crate::resource::Plugin;

fn declared(spec: Value) -> Declared {
    let mut full = json!({"source": {"file": {"path": "web.wasm"}}});
    for (field, value) in spec.as_object().unwrap() {
        full[field] = value.clone();
    }
    let plugin = json!({
        "apiVersion": "innkeeper.dev/v1alpha1", "kind": "Plugin",
        "metadata": {"name": "web"}, "spec": full,
    });
    Plugin::read(&plugin.to_string())
        .unwrap()
        .declared()
        .unwrap()
}

fn digest(text: &str) -> Digest {
    Digest::of(text.as_bytes())
}

fn revision(text: &str, is_granted: bool) -> Revision {
    Revision {
        digest: digest(text),
        is_granted,
    }
}

/// The argument names the loaded and the active revision: `!` marks one without enough grants, `-` is none.
#[track_caller]
fn check_next(before: &Declared, now: &Declared, is_due: bool, what: [&str; 2], expected: Step) {
    let read = |text: &str| {
        let granted = !text.ends_with('!');
        (text != "-").then(|| revision(text.trim_end_matches('!'), granted))
    };
    let [loaded, served] = what.map(read);
    let situation = Situation {
        declared: now,
        attempt: Some(Attempt {
            of: before,
            loaded,
            is_due,
            is_rolled_back: false,
        }),
        served: served.map(|revision| Served {
            revision,
            charter: &before.charter,
            trial: None,
        }),
        last: None,
        good: None,
    };
    assert_eq!(situation.next(), expected, "{what:?}");
}

#[test]
fn the_first_thing_is_to_load() {
    let declared = declared(json!({}));
    let situation = Situation {
        declared: &declared,
        attempt: None,
        served: None,
        last: None,
        good: None,
    };
    assert_eq!(situation.next(), Step::Load);
}

#[test]
fn what_served_last_goes_on_before_anything_is_fetched() {
    let declared = declared(json!({}));
    let next = |loaded: Option<&str>, is_due: bool, last: Option<&str>| {
        let attempt = Attempt {
            of: &declared,
            loaded: loaded.map(|text| revision(text, true)),
            is_due,
            is_rolled_back: false,
        };
        let situation = Situation {
            declared: &declared,
            attempt: Some(attempt),
            served: None,
            last: last.map(digest),
            good: None,
        };
        situation.next()
    };
    let first = Situation {
        declared: &declared,
        attempt: None,
        served: None,
        last: Some(digest("a")),
        good: None,
    };
    assert_eq!(first.next(), Step::Resume(digest("a")));
    assert_eq!(next(None, false, Some("a")), Step::Resume(digest("a")));
    assert_eq!(next(None, true, Some("a")), Step::Resume(digest("a")));
    // Another one replaces it in the usual way, and not because nothing else is there.
    assert_eq!(next(Some("b"), false, Some("a")), Step::Resume(digest("a")));
    assert_eq!(next(Some("a"), false, Some("a")), Step::Serve(digest("a")));
    // It cannot be had.
    assert_eq!(next(Some("b"), false, None), Step::Serve(digest("b")));
    assert_eq!(next(None, false, None), Step::Wait);
}

#[test]
fn a_revision_that_faults_too_often_makes_way_for_the_last_good_one_and_is_not_tried_again() {
    let check = |rollout: Value, trial, good: Option<&str>, expected: Step| {
        let declared = declared(json!({"rollout": rollout}));
        let situation = Situation {
            declared: &declared,
            attempt: Some(Attempt {
                of: &declared,
                loaded: Some(revision("b", true)),
                is_due: false,
                is_rolled_back: false,
            }),
            served: Some(Served {
                revision: revision("b", true),
                charter: &declared.charter,
                trial,
            }),
            last: None,
            good: good.map(digest),
        };
        assert_eq!(situation.next(), expected, "{rollout} {trial:?} {good:?}");
    };
    let faulty = Some(Judgement::Faulty);
    check(json!({}), faulty, Some("a"), Step::RollBack(digest("a")));
    check(json!({}), faulty, None, Step::Keep);
    check(json!({}), Some(Judgement::Open), Some("a"), Step::Keep);
    check(json!({}), Some(Judgement::Good), Some("a"), Step::Keep);
    check(json!({}), None, Some("a"), Step::Keep);
    let off = json!({"autoRollback": false});
    check(off, faulty, Some("a"), Step::Keep);

    let declared = declared(json!({}));
    let rolled_back = |served: Option<Served<'_>>| {
        let situation = Situation {
            declared: &declared,
            attempt: Some(Attempt {
                of: &declared,
                loaded: Some(revision("b", true)),
                is_due: false,
                is_rolled_back: true,
            }),
            served,
            last: None,
            good: None,
        };
        situation.next()
    };
    let served = |granted| Served {
        revision: revision("a", granted),
        charter: &declared.charter,
        trial: None,
    };
    assert_eq!(rolled_back(Some(served(true))), Step::Wait);
    // It is better than nothing, where nothing else is to be had.
    assert_eq!(rolled_back(None), Step::Serve(digest("b")));
}

#[test]
fn what_was_loaded_decides_and_what_serves_goes_on() {
    let same = declared(json!({}));
    let swap = |text| Step::Swap(digest(text));
    for (loaded, served, expected) in [
        ("-", "-", Step::Wait),
        ("a!", "-", Step::Wait),
        ("a", "-", Step::Serve(digest("a"))),
        ("a", "a", Step::Keep),
        ("b", "a", swap("b")),
        ("-", "a", Step::Wait),
        ("b!", "a", Step::Wait),
        // Even the active revision lacks a required grant.
        ("b!", "a!", Step::Stop),
        ("-", "a!", Step::Stop),
        ("b", "a!", swap("b")),
    ] {
        check_next(&same, &same, false, [loaded, served], expected);
        check_next(&same, &same, true, [loaded, served], Step::Load);
    }
}

#[test]
fn another_source_digest_or_configuration_is_loaded_and_another_charter_is_not() {
    let before = declared(json!({}));
    let sum = digest("x").to_string();
    for spec in [
        json!({"source": {"file": {"path": "other.wasm"}}}),
        json!({"digest": sum}),
        json!({"config": {"size": 1}}),
    ] {
        let now = declared(spec);
        check_next(&before, &now, false, ["a", "a"], Step::Load);
        check_next(&before, &now, false, ["-", "a"], Step::Load);
    }
    for spec in [
        json!({"limits": {"children": 1}}),
        json!({"grants": {"children": [{"kind": "Pod"}]}}),
        json!({"suspend": true}),
    ] {
        let now = declared(spec);
        let swap = |text| Step::Swap(digest(text));
        check_next(&before, &now, false, ["a", "a"], swap("a"));
        // Also where the latest revision could not be loaded.
        check_next(&before, &now, false, ["-", "a"], swap("a"));
    }
}

#[test]
fn a_revision_that_deletes_too_much_or_is_gated_waits_for_approval() {
    let check = |rollout: Value, deletes, children, expected| {
        let declared = declared(json!({"rollout": rollout}));
        let verdict = verdict(&declared.rollout, &digest("a"), deletes, children);
        assert_eq!(verdict, expected, "{rollout}: {deletes} of {children}");
    };
    let accepted = CandidateVerdict::Accepted;
    check(json!({}), 10, 0, accepted);
    check(json!({}), 11, 50, CandidateVerdict::TooManyPrunes);
    check(json!({}), 20, 100, accepted);
    check(
        json!({"maxPrunes": 0}),
        1,
        100,
        CandidateVerdict::TooManyPrunes,
    );
    let gated = json!({"mode": "Gated"});
    check(gated, 0, 0, CandidateVerdict::AwaitingApproval);
    let name = revision_name(&digest("a"));
    let approved = json!({"mode": "Gated", "maxPrunes": 0, "approve": name});
    check(approved, 99, 100, accepted);
    // The approved revision is another one.
    let other = json!({"mode": "Gated", "approve": revision_name(&digest("b"))});
    check(other, 0, 0, CandidateVerdict::AwaitingApproval);
}

#[test]
fn finalizers_stay_where_the_revision_has_use_for_them() {
    use innkeeper_model::{Gvk, Manifest, ParentKind, PluginName, Scope};

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
        config_schema: None,
    };
    let old = BTreeSet::from([kind("v1", "Old")]);
    assert_eq!(unserved(&recorded, &manifest(true)), old);
    assert_eq!(unserved(&recorded, &manifest(false)), recorded);
}

fn said(standing: &Standing<'_>) -> Vec<String> {
    let conditions = standing.conditions().into_iter();
    conditions
        .map(|one| format!("{}={}/{}", one.kind, one.status.as_str(), one.reason))
        .collect()
}

fn problem(stage: Stage) -> Problem {
    Problem {
        stage,
        reason: "Broken".to_owned(),
        message: "it broke".to_owned(),
    }
}

#[test]
fn all_is_well() {
    let serving = digest("a");
    let well = Standing {
        verified_by: "its digest",
        revision: Some(&serving),
        ..Standing::default()
    };
    let expected = [
        "Fetched=True/Fetched",
        "Verified=True/AsExpected",
        "Compiled=True/Compiled",
        "Described=True/Described",
        "Granted=True/Granted",
        "Serving=True/Serving",
        "Degraded=False/AsDeclared",
        "RolledBack=False/NotNeeded",
    ];
    assert_eq!(said(&well), expected);
    let reduced = Standing {
        reduced: Some("Add to spec.grants"),
        ..well.clone()
    };
    assert_eq!(said(&reduced)[4], "Granted=True/Reduced");
    let suspended = Standing {
        is_suspended: true,
        ..well
    };
    let last = ["Serving=False/Suspended", "Degraded=False/AsDeclared"];
    assert_eq!(said(&suspended)[5..7], last);
}

#[test]
fn a_step_that_failed_leaves_the_ones_behind_it_open_and_what_serves_serving() {
    let serving = digest("a");
    let problem = problem(Stage::Compiled);
    let failed = Standing {
        problem: Some(&problem),
        revision: Some(&serving),
        ..Standing::default()
    };
    let expected = [
        "Fetched=True/Fetched",
        "Verified=True/AsExpected",
        "Compiled=False/Broken",
        "Described=Unknown/NotReached",
        "Granted=Unknown/NotReached",
        "Serving=True/Serving",
        "Degraded=True/Broken",
        "RolledBack=False/NotNeeded",
    ];
    assert_eq!(said(&failed), expected);
    let first = Standing {
        revision: None,
        ..failed
    };
    let last = ["Serving=False/NotLoaded", "Degraded=True/Broken"];
    assert_eq!(said(&first)[5..7], last);
}

#[test]
fn what_cannot_serve_although_it_was_loaded_says_so_once() {
    let problem = problem(Stage::Serving);
    let standing = Standing {
        problem: Some(&problem),
        ..Standing::default()
    };
    let last = [
        "Granted=True/Granted",
        "Serving=False/Broken",
        "Degraded=True/Broken",
    ];
    assert_eq!(said(&standing)[4..7], last);
}

#[test]
fn what_was_rolled_back_says_why() {
    let last = |standing: &Standing<'_>| {
        let condition = standing.conditions().pop().unwrap();
        let said = said(standing).pop().unwrap();
        [said, condition.message]
    };
    let rolled_back = Standing {
        rolled_back: Some("it trapped"),
        ..Standing::default()
    };
    let expected = ["RolledBack=True/TooManyFaults", "it trapped"];
    assert_eq!(last(&rolled_back), expected);
    let faulting = Standing {
        faulting: Some("it traps"),
        ..Standing::default()
    };
    let expected = ["RolledBack=False/TooManyFaults", "it traps"];
    assert_eq!(last(&faulting), expected);
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let at = |second| jiff::Timestamp::from_second(second).unwrap();
    let problem = problem(Stage::Fetched);
    let starting = Standing::default();
    let failed = Standing {
        problem: Some(&problem),
        ..Standing::default()
    };
    let first = dated(starting.conditions(), &[], Some(1), at(1));
    let second = dated(failed.conditions(), &first, Some(2), at(2));
    let times: Vec<i64> = second
        .iter()
        .map(|one| one.last_transition_time.0.as_second())
        .collect();
    assert_eq!(times, [2, 2, 2, 2, 2, 2, 2, 1]);
    let third = dated(failed.conditions(), &second, Some(3), at(3));
    let moved = |one: &meta::Condition| one.last_transition_time.0 == at(3);
    assert!(!third.iter().any(moved));
    assert!(third.iter().all(|one| one.observed_generation == Some(3)));
}
