//! The step that follows a state.

use super::*;

/// Asserts the next step after a changed declaration.
#[track_caller]
fn check_next(before: &Declared, now: &Declared, revisions: [&str; 2], expected: Option<Action>) {
    let state = state(before, revisions);
    assert_eq!(next_step(&state, now, None), expected, "{revisions:?}");
}

#[test]
fn the_first_step_is_to_load() {
    let step = next_step(&PluginState::default(), &declare(json!({})), None);
    assert_eq!(step, Some(Action::Load));
}

#[test]
fn the_last_active_revision_is_resumed_before_anything_is_fetched() {
    let declared = declare(json!({}));
    let resume = || Some(Action::Resume(digest("a")));
    let starting = |loaded: &str| PluginState {
        history: history(&["a"]),
        ..state(&declared, [loaded, "-"])
    };
    let first = PluginState {
        attempt: None,
        ..starting("-")
    };
    assert_eq!(next_step(&first, &declared, None), resume());
    let mut due = starting("-");
    due.attempt.as_mut().unwrap().retry_at = Some(Instant::now());
    assert_eq!(next_step(&due, &declared, None), resume());
    for (loaded, expected) in [
        ("-", resume()),
        // The last revision is resumed first, although another one is loaded.
        ("b", resume()),
        ("a", Some(activate("a"))),
    ] {
        assert_eq!(next_step(&starting(loaded), &declared, None), expected);
    }
    // It is not available.
    for (loaded, expected) in [("b", Some(activate("b"))), ("-", None)] {
        let mut state = starting(loaded);
        lose(&mut state, "a");
        assert_eq!(next_step(&state, &declared, None), expected);
    }
}

#[test]
fn a_revision_that_faults_too_often_is_replaced_by_the_last_good_one_and_is_not_tried_again() {
    let check = |rollout: Value, verdict, past: &[&str], expected: Option<Action>| {
        let declared = declare(json!({"rollout": rollout}));
        let state = PluginState {
            history: history(past),
            ..state(&declared, ["b", "b"])
        };
        let analysis = Option::map(verdict, analysis);
        let step = next_step(&state, &declared, analysis.as_ref());
        assert_eq!(step, expected, "{rollout} {verdict:?} {past:?}");
    };
    let both = ["a", "b"];
    let faulty = Some(AnalysisVerdict::Faulty);
    check(json!({}), faulty, &both, Some(roll_back("a")));
    check(json!({}), faulty, &["b"], Some(Action::Keep));
    for verdict in [
        Some(AnalysisVerdict::Open),
        Some(AnalysisVerdict::Good),
        None,
    ] {
        check(json!({}), verdict, &both, Some(Action::Keep));
    }
    let off = json!({"autoRollback": false});
    check(off, faulty, &both, Some(Action::Keep));

    let declared = declare(json!({}));
    let after = |active| PluginState {
        history: rolled_back(),
        ..state(&declared, ["b", active])
    };
    assert_eq!(next_step(&after("a"), &declared, None), None);
    // It is better than no revision, if it is the only one.
    let mut alone = after("-");
    lose(&mut alone, "a");
    assert_eq!(next_step(&alone, &declared, None), Some(activate("b")));
}

#[test]
fn the_loaded_revision_decides_and_the_active_one_stays() {
    let declared = declare(json!({}));
    for (revisions, expected) in [
        (["-", "-"], None),
        (["a!", "-"], None),
        (["a", "-"], Some(activate("a"))),
        (["a", "a"], Some(Action::Keep)),
        (["b", "a"], Some(activate("b"))),
        (["-", "a"], None),
        (["b!", "a"], None),
        // Even the active revision lacks a required grant.
        (["b!", "a!"], Some(Action::Stop)),
        (["-", "a!"], Some(Action::Stop)),
        (["b", "a!"], Some(activate("b"))),
    ] {
        check_next(&declared, &declared, revisions, expected);
        let mut due = state(&declared, revisions);
        due.attempt.as_mut().unwrap().retry_at = Some(Instant::now());
        let step = next_step(&due, &declared, None);
        assert_eq!(step, Some(Action::Load), "{revisions:?}");
    }
}

#[test]
fn another_source_digest_or_configuration_is_loaded_and_other_terms_are_not() {
    let before = declare(json!({}));
    let sum = Digest::hash(b"x").to_string();
    for spec in [
        json!({"source": {"file": {"path": "other.wasm"}}}),
        json!({"digest": sum}),
        json!({"config": {"size": 1}}),
    ] {
        let now = declare(spec);
        check_next(&before, &now, ["a", "a"], Some(Action::Load));
        check_next(&before, &now, ["-", "a"], Some(Action::Load));
    }
    let parents = json!([{"group": "example.com", "kind": "Web"}]);
    for spec in [
        json!({"limits": {"children": 1}}),
        json!({"grants": {"parents": parents, "children": [{"kind": "Pod"}]}}),
        json!({"suspend": true}),
    ] {
        let now = declare(spec);
        check_next(&before, &now, ["a", "a"], Some(activate("a")));
        // Also where the latest revision could not be loaded.
        check_next(&before, &now, ["-", "a"], Some(activate("a")));
    }
}

#[test]
fn the_active_revision_gets_the_declared_terms_before_anything_is_loaded() {
    let before = declare(json!({}));
    let other = json!({"file": {"path": "other.wasm"}});
    let now = declare(json!({"source": other, "limits": {"children": 1}}));
    check_next(&before, &now, ["a", "a"], Some(activate("a")));
    let mut bound = state(&before, ["a", "a"]);
    bound.active.as_mut().unwrap().accepted = now.terms.clone();
    assert_eq!(next_step(&bound, &now, None), Some(Action::Load));

    // Neither terms that cannot be put in force nor missing grants keep the declared revision from being loaded.
    let mut state = state(&before, ["a", "a"]);
    refuse(&mut state, "a", failure(Stage::Serving));
    assert_eq!(next_step(&state, &now, None), Some(Action::Load));
    check_next(&before, &now, ["a", "a!"], Some(Action::Load));
}

#[test]
fn a_plugin_without_required_grants_waits_and_its_failure_shows_the_missing_lines() {
    let parents = json!([{"group": "example.com", "kind": "Web"}]);
    let grants = json!({"parents": parents, "children": [{"kind": "ConfigMap"}]});
    let granting = declare(json!({"grants": grants}));
    let state = state(&granting, ["a!", "-"]);
    assert_eq!(next_step(&state, &granting, None), Some(activate("a!")));
    assert_eq!(facts(&state, &granting, None).failure(), None);

    let less = declare(json!({}));
    assert_eq!(next_step(&state, &less, None), None);
    let failure = facts(&state, &less, None).failure().unwrap();
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
        let failure = Stage::Serving.failure(PluginReason::ParentTaken, "taken", retry);
        refuse(&mut state, "a", failure);
        assert_eq!(next_step(&state, &declared, None), None);
        assert_eq!(
            facts(&state, &declared, None).failure().unwrap().reason,
            PluginReason::ParentTaken
        );
        let least = least.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        assert_eq!(state.due_next().is_some(), least.is_some());
        assert!(state.due_next() >= least);
    }

    state.forget_due_setbacks(false);
    assert_eq!(next_step(&state, &declared, None), None);
    // The kind that it waits for is free.
    state.forget_due_setbacks(true);
    assert_eq!(next_step(&state, &declared, None), Some(activate("a")));
}

#[test]
fn actions_come_in_their_order_and_end() {
    let before = declare(json!({"config": {"name": "a"}}));
    let now = declare(json!({"config": {"name": "b"}, "suspend": true}));
    let mut state = state(&before, ["a", "a"]);
    add_component(&mut state);
    let taken = TakenKind {
        kind: GroupKind::new("example.com", "Web"),
        by: PluginName::new("older").unwrap(),
    };
    let facts = Facts {
        must_stop: Some(taken.clone()),
        ..facts(&state, &now, None)
    };
    let expected = [
        Action::Configure,
        Action::Bind(Box::new(now.terms.clone())),
        Action::StopFor(taken),
    ];
    assert_eq!(decide(&facts), expected);
}

#[test]
fn the_refusals_of_a_declared_revision_are_forgotten_once() {
    let declared = declare(json!({}));
    let mut state = state(&declared, ["a", "a"]);
    assert_eq!(decide(&facts(&state, &declared, None)), []);
    refuse(&mut state, "b", failure(Stage::Serving));
    assert_eq!(decide(&facts(&state, &declared, None)), [Action::Keep]);
    lose(&mut state, "c");
    state.forget_refusals();
    assert_eq!(decide(&facts(&state, &declared, None)), []);
    assert_eq!(state.setbacks.len(), 1);
}

/// Otherwise a host would activate the only revision again and again, once as the last one and once as the declared one.
#[test]
fn a_revision_that_fails_as_the_last_and_as_the_declared_one_waits() {
    let declared = declare(json!({}));
    let mut state = PluginState {
        history: history(&["a"]),
        ..state(&declared, ["a", "-"])
    };
    lose(&mut state, "a");
    assert_eq!(next_step(&state, &declared, None), Some(activate("a")));
    refuse(&mut state, "a", failure(Stage::Serving));
    assert_eq!(next_step(&state, &declared, None), None);
}
