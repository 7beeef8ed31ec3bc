//! Component loads: progress, retries and end.

use super::*;

#[test]
fn a_running_load_is_waited_for_and_keeps_nothing_else_waiting() {
    let before = declare(json!({}));
    let now = declare(json!({"source": {"file": {"path": "other.wasm"}}}));
    for revisions in [["a", "a"], ["a", "-"], ["a", "a!"]] {
        let mut state = state(&before, revisions);
        assert_eq!(
            next_step(&state, &now, None),
            Some(Action::Load),
            "{revisions:?}"
        );
        let (load, reporter) = loading(&now, None);
        state.loading = Some(load);
        assert_eq!(next_step(&state, &now, None), None, "{revisions:?}");
        reporter.end(Err(failure(Stage::Fetched)));
        assert_eq!(
            next_step(&state, &now, None),
            Some(Action::Load),
            "{revisions:?}"
        );
    }

    // While a source is polled, the last result counts.
    let mut polled = state(&before, ["a", "-"]);
    let attempt = polled.attempt.as_mut().unwrap();
    attempt.declared.pull_every = Some(Duration::ZERO);
    let (load, _reporter) = loading(&before, None);
    polled.loading = Some(load);
    assert_eq!(next_step(&polled, &before, None), Some(activate("a")));
    assert_eq!(polled.due_next(), None);

    // A rollback, and a restart with an earlier process's revision, do not wait for a server.
    let (load, _reporter) = loading(&now, None);
    let faulty = PluginState {
        history: history(&["a", "b"]),
        loading: Some(load),
        ..state(&before, ["b", "b"])
    };
    let analysis = analysis(AnalysisVerdict::Faulty);
    let step = next_step(&faulty, &now, Some(&analysis));
    assert_eq!(step, Some(roll_back("a")));
}

#[test]
fn another_configuration_of_a_loaded_component_is_not_loaded() {
    let declare = |name: &str| declare(json!({"config": {"name": name}}));
    let mut state = state(&declare("a"), ["a", "a"]);
    add_component(&mut state);
    assert_eq!(next_step(&state, &declare("b"), None), Some(Action::Load));
    let configure = |state: &mut PluginState, name: &str| {
        let declared = declare(name);
        state.accept(&declared);
        assert_eq!(
            decide(&facts(state, &declared, None)),
            [Action::Configure],
            "{name}"
        );
        let attempt = state.attempt.as_ref().unwrap();
        let loaded = LoadAttempt {
            declared,
            component: attempt.component.clone(),
            result: Ok(plugin(name)),
            at: attempt.at,
            retry_at: None,
        };
        state.record_load(loaded);
    };
    configure(&mut state, "b");
    assert_eq!(next_step(&state, &declare("b"), None), Some(activate("b")));
    assert!(!state.needs_configuration(&declare("b")));
    // Nor does it wait while the source is polled.
    let (load, _reporter) = loading(&declare("a"), None);
    state.loading = Some(load);
    configure(&mut state, "c");
    assert_eq!(next_step(&state, &declare("c"), None), Some(activate("c")));
    assert!(state.loading.is_some());
}

/// Without this, a corrected spec with the same source would wait for up to an hour.
#[test]
fn a_load_that_waits_because_the_host_ended_is_tried_again_after_a_change_of_the_spec() {
    let declared = declare(json!({}));
    for (reason, is_tried) in [
        (PluginReason::HostEnded, true),
        (PluginReason::TooSlow, false),
    ] {
        let mut state = PluginState::default();
        let retry = Retry::At(Duration::from_hours(1));
        let failure = Stage::Fetched.failure(reason, "", retry);
        state.record_load(failed_load(&declared, failure));
        assert_eq!(next_step(&state, &declared, None), None, "{reason:?}");
        let wait = state.due_next().unwrap() - Instant::now();
        assert!(wait > Duration::from_mins(59), "{reason:?} {wait:?}");
        state.declared(&object("one", 2)).unwrap_err();
        let step = next_step(&state, &declared, None);
        assert_eq!(step == Some(Action::Load), is_tried, "{reason:?} {step:?}");
    }
}

#[test]
fn a_changed_declaration_cancels_outdated_work() {
    let before = declare(json!({}));
    let mut state = PluginState::default();
    let is_cancelled = |state: &mut PluginState, spec: Value| {
        state.loading = Some(loading(&before, None).0);
        state.accept(&declare(spec));
        state.loading.is_none()
    };
    let other = json!({"file": {"path": "other.wasm"}});
    assert!(is_cancelled(&mut state, json!({"source": other})));
    let sum = Digest::hash(b"x").to_string();
    assert!(is_cancelled(&mut state, json!({"digest": sum})));
    // Grants decide if the component is compiled.
    assert!(is_cancelled(&mut state, json!({"grants": {}})));
    // The component stays the same.
    let current = json!({"config": {"size": 1}, "limits": {"children": 1}, "suspend": true});
    assert!(!is_cancelled(&mut state, current));
}

#[test]
fn a_running_load_is_shown_as_its_stage() {
    let before = declare(json!({}));
    let now = declare(json!({"source": {"file": {"path": "other.wasm"}}}));
    let mut state = state(&before, ["a", "a"]);
    let (load, reporter) = loading(&now, None);
    state.loading = Some(load);
    let fetching = [
        "Fetched=Unknown/Fetching",
        "Verified=Unknown/NotReached",
        "Compiled=Unknown/NotReached",
        "Described=Unknown/NotReached",
        "Granted=Unknown/NotReached",
        "Serving=True/Serving",
        "Ready=Unknown/Fetching",
        "Degraded=Unknown/Fetching",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&state, &now, None, &fetching);
    reporter.at(Stage::Compiled);
    let mut compiling = fetching;
    compiling[0] = "Fetched=True/Fetched";
    compiling[1] = "Verified=True/AsExpected";
    compiling[2] = "Compiled=Unknown/Compiling";
    compiling[6] = "Ready=Unknown/Compiling";
    compiling[7] = "Degraded=Unknown/Compiling";
    check_conditions(&state, &now, None, &compiling);

    // Without the required grants the active revision's passes have ended.
    state.active.as_mut().unwrap().plugin = plugin("a!");
    compiling[5] = "Serving=False/NotGranted";
    check_conditions(&state, &now, None, &compiling);

    // The next attempt for the same declaration does not change the last conditions.
    let mut again = self::state(&now, ["-", "-"]);
    let failed = [
        "Compiled=False/HostFault",
        "Described=Unknown/NotReached",
        "Granted=Unknown/NotReached",
        "Serving=False/NotLoaded",
        "Ready=False/HostFault",
        "Degraded=True/HostFault",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&again, &now, None, &failed);
    let (load, _reporter) = loading(&now, None);
    again.loading = Some(load);
    check_conditions(&again, &now, None, &failed);
}

#[test]
fn a_panic_ends_a_load() {
    let (load, reporter) = loading(&declare(json!({})), None);
    assert_eq!(load.stage(), Some(Stage::Fetched));
    drop(reporter);
    assert_eq!(load.stage(), None);
}

#[test]
fn all_progress_of_a_load_triggers_a_pass() {
    let (triggers, triggered) = mpsc::unbounded_channel();
    let trigger = move || triggers.send(()).unwrap();
    let (_load, reporter) = Loading::reported(trigger, &declare(json!({})), None);
    assert_eq!(triggered.len(), 0);
    reporter.at(Stage::Compiled);
    assert_eq!(triggered.len(), 1);
    reporter.end(Err(failure(Stage::Compiled)));
    assert_eq!(triggered.len(), 2);
    drop(reporter);
    assert_eq!(triggered.len(), 2);
}

#[test]
fn a_component_without_grants_for_its_parents_is_loaded_once_they_are_granted() {
    let before = declare(json!({"grants": {}}));
    let mut state = state(&before, ["-", "-"]);
    let refuse =
        |stage: Stage| stage.failure(PluginReason::NotGranted, "grant it", Retry::OnChange);
    for stage in [Stage::Compiled, Stage::Granted] {
        state.attempt.as_mut().unwrap().result = Err(refuse(stage));
        assert_eq!(next_step(&state, &before, None), None);
        let other = declare(json!({"grants": {}, "limits": {"children": 1}}));
        assert_eq!(next_step(&state, &other, None), None);
        assert_eq!(
            next_step(&state, &declare(json!({})), None),
            Some(Action::Load)
        );
    }
    let status = |stage: Stage| {
        let conditions = facts(&state, &before, None).conditions();
        let condition = conditions
            .iter()
            .find(|condition| condition.kind == stage.to_string())
            .unwrap();
        (condition.status, condition.message.clone())
    };
    let compiled = (ConditionStatus::Unknown, "waits for Granted".to_owned());
    assert_eq!(status(Stage::Compiled), compiled);
    assert_eq!(status(Stage::Described).0, ConditionStatus::True);
    let granted = (ConditionStatus::False, "grant it".to_owned());
    assert_eq!(status(Stage::Granted), granted);
}

/// A wrong signature, for example, is fixed in the registry: editing any field triggers another attempt.
#[test]
fn an_edit_repeats_a_failed_load_that_has_no_time_of_its_own() {
    let edited = object("a", 2);
    let later = Some(Instant::now() + Duration::from_mins(1));
    for (reason, retry_at, is_repeated) in [
        (PluginReason::BadSignature, None, true),
        (PluginReason::Unreachable, later, false),
        (PluginReason::NotGranted, None, false),
    ] {
        let declared = declare(json!({}));
        let mut state = state(&declared, ["-", "-"]);
        state.read = Some((1, Arc::new(declared)));
        let attempt = state.attempt.as_mut().unwrap();
        let failed = Stage::Verified.failure(reason, "", Retry::OnChange);
        attempt.result = Err(failed);
        attempt.retry_at = retry_at;
        state.declared(&object("a", 1)).unwrap();
        assert!(state.attempt.is_some(), "{reason:?}: nothing has changed");
        drop(state.declared(&edited));
        assert_eq!(state.attempt.is_none(), is_repeated, "{reason:?}");
    }
}

#[test]
fn a_source_with_a_pull_interval_is_fetched_again() {
    let declared = declare(json!({}));
    let mut state = state(&declared, ["a", "-"]);
    assert_eq!(state.due_next(), None);
    let attempt = state.attempt.as_mut().unwrap();
    attempt.declared.pull_every = Some(Duration::from_mins(1));
    assert_eq!(next_step(&state, &declared, None), Some(activate("a")));
    assert!(state.due_next().is_some());
    let attempt = state.attempt.as_mut().unwrap();
    attempt.declared.pull_every = Some(Duration::ZERO);
    assert_eq!(next_step(&state, &declared, None), Some(Action::Load));
    // No pass without a declaration loads.
    assert_eq!(state.due_report(), None);
}
