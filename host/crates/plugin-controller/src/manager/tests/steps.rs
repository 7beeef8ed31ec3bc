//! The step that follows a state.

use super::*;

/// Asserts the next step after a change of the declaration.
#[track_caller]
fn check_next(before: &Declared, now: &Declared, revisions: [&str; 2], expected: NextStep) {
    let state = state(before, revisions);
    assert_eq!(state.next_step(now, None), expected, "{revisions:?}");
}

#[test]
fn the_first_step_is_to_load() {
    let step = PluginState::default().next_step(&declare(json!({})), None);
    assert_eq!(step, NextStep::Load);
}

#[test]
fn the_last_active_revision_is_resumed_before_anything_is_fetched() {
    let declared = declare(json!({}));
    let resume = || NextStep::Resume(digest("a"));
    let starting = |loaded: &str| PluginState {
        history: history(&["a"]),
        ..state(&declared, [loaded, "-"])
    };
    let first = PluginState {
        attempt: None,
        ..starting("-")
    };
    assert_eq!(first.next_step(&declared, None), resume());
    let mut due = starting("-");
    due.attempt.as_mut().unwrap().retry_at = Some(Instant::now());
    assert_eq!(due.next_step(&declared, None), resume());
    for (loaded, expected) in [
        ("-", resume()),
        // Another one replaces it in the usual way, and not because no other is active.
        ("b", resume()),
        ("a", activate("a")),
    ] {
        assert_eq!(starting(loaded).next_step(&declared, None), expected);
    }
    // It is not available.
    for (loaded, expected) in [("b", activate("b")), ("-", NextStep::Wait)] {
        let mut state = starting(loaded);
        lose(&mut state, "a");
        assert_eq!(state.next_step(&declared, None), expected);
    }
}

#[test]
fn a_revision_that_faults_too_often_is_replaced_by_the_last_good_one_and_is_not_tried_again() {
    let check = |rollout: Value, verdict, past: &[&str], expected: NextStep| {
        let declared = declare(json!({"rollout": rollout}));
        let state = PluginState {
            history: history(past),
            ..state(&declared, ["b", "b"])
        };
        let analysis = Option::map(verdict, analysis);
        let step = state.next_step(&declared, analysis.as_ref());
        assert_eq!(step, expected, "{rollout} {verdict:?} {past:?}");
    };
    let both = ["a", "b"];
    let faulty = Some(AnalysisVerdict::Faulty);
    check(json!({}), faulty, &both, NextStep::RollBack(digest("a")));
    check(json!({}), faulty, &["b"], NextStep::Keep);
    for verdict in [
        Some(AnalysisVerdict::Open),
        Some(AnalysisVerdict::Good),
        None,
    ] {
        check(json!({}), verdict, &both, NextStep::Keep);
    }
    let off = json!({"autoRollback": false});
    check(off, faulty, &both, NextStep::Keep);

    let declared = declare(json!({}));
    let after = |active| PluginState {
        history: rolled_back(),
        ..state(&declared, ["b", active])
    };
    assert_eq!(after("a").next_step(&declared, None), NextStep::Wait);
    // It is better than no revision, if no other is available.
    let mut alone = after("-");
    lose(&mut alone, "a");
    assert_eq!(alone.next_step(&declared, None), activate("b"));
}

#[test]
fn the_loaded_revision_decides_and_the_active_one_stays() {
    let declared = declare(json!({}));
    for (revisions, expected) in [
        (["-", "-"], NextStep::Wait),
        (["a!", "-"], NextStep::Wait),
        (["a", "-"], activate("a")),
        (["a", "a"], NextStep::Keep),
        (["b", "a"], activate("b")),
        (["-", "a"], NextStep::Wait),
        (["b!", "a"], NextStep::Wait),
        // Even the active revision lacks a required grant.
        (["b!", "a!"], NextStep::Stop),
        (["-", "a!"], NextStep::Stop),
        (["b", "a!"], activate("b")),
    ] {
        check_next(&declared, &declared, revisions, expected);
        let mut due = state(&declared, revisions);
        due.attempt.as_mut().unwrap().retry_at = Some(Instant::now());
        let step = due.next_step(&declared, None);
        assert_eq!(step, NextStep::Load, "{revisions:?}");
    }
}

#[test]
fn another_source_digest_or_configuration_is_loaded_and_other_terms_are_not() {
    let before = declare(json!({}));
    let sum = Digest::of(b"x").to_string();
    for spec in [
        json!({"source": {"file": {"path": "other.wasm"}}}),
        json!({"digest": sum}),
        json!({"config": {"size": 1}}),
    ] {
        let now = declare(spec);
        check_next(&before, &now, ["a", "a"], NextStep::Load);
        check_next(&before, &now, ["-", "a"], NextStep::Load);
    }
    let parents = json!([{"group": "example.com", "kind": "Web"}]);
    for spec in [
        json!({"limits": {"children": 1}}),
        json!({"grants": {"parents": parents, "children": [{"kind": "Pod"}]}}),
        json!({"suspend": true}),
    ] {
        let now = declare(spec);
        check_next(&before, &now, ["a", "a"], activate("a"));
        // Also where the latest revision could not be loaded.
        check_next(&before, &now, ["-", "a"], activate("a"));
    }
}

#[test]
fn the_active_revision_gets_the_declared_terms_before_anything_is_loaded() {
    let before = declare(json!({}));
    let other = json!({"file": {"path": "other.wasm"}});
    let now = declare(json!({"source": other, "limits": {"children": 1}}));
    check_next(&before, &now, ["a", "a"], activate("a"));
    let mut bound = state(&before, ["a", "a"]);
    bound.active.as_mut().unwrap().accepted = now.terms.clone();
    assert_eq!(bound.next_step(&now, None), NextStep::Load);

    // Neither terms that cannot be put in force nor missing grants keep the declared revision from being loaded.
    let mut state = state(&before, ["a", "a"]);
    let refused = state.refused(failure(Stage::Serving));
    state.refused.insert(digest("a"), refused);
    assert_eq!(state.next_step(&now, None), NextStep::Load);
    check_next(&before, &now, ["a", "a!"], NextStep::Load);
}

#[test]
fn a_plugin_without_required_grants_waits_and_its_failure_shows_the_missing_lines() {
    let parents = json!([{"group": "example.com", "kind": "Web"}]);
    let grants = json!({"parents": parents, "children": [{"kind": "ConfigMap"}]});
    let granting = declare(json!({"grants": grants}));
    let state = state(&granting, ["a!", "-"]);
    assert_eq!(state.next_step(&granting, None), activate("a!"));
    assert_eq!(state.failure(&granting), None);

    let less = declare(json!({}));
    assert_eq!(state.next_step(&less, None), NextStep::Wait);
    let failure = state.failure(&less).unwrap();
    assert_eq!(failure.stage, Stage::Granted);
    assert!(failure.message.contains("kind: ConfigMap"), "{failure:?}");
}

#[test]
fn a_refused_revision_is_not_tried_again_before_its_time() {
    let declared = declare(json!({}));
    let mut state = state(&declared, ["a", "-"]);
    for (retry, least) in [
        (Retry::OnChange, None),
        (Retry::At(Duration::from_mins(1)), Some(59)),
    ] {
        let failure = StageFailure::new(Stage::Serving, "ParentTaken", "taken", retry);
        let refused = state.refused(failure);
        state.refused.insert(digest("a"), refused);
        assert_eq!(state.next_step(&declared, None), NextStep::Wait);
        assert_eq!(state.failure(&declared).unwrap().reason, "ParentTaken");
        let least = least.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        assert_eq!(state.due_next().is_some(), least.is_some());
        assert!(state.due_next() >= least);
    }

    state.forget_refused(false);
    assert_eq!(state.next_step(&declared, None), NextStep::Wait);
    // The kind that it waits for is free.
    state.forget_refused(true);
    assert_eq!(state.next_step(&declared, None), activate("a"));
}
