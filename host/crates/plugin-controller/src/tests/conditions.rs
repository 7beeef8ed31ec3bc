//! Conditions of Plugins and their parents.

use super::*;

#[test]
fn an_active_declared_revision_has_all_conditions() {
    let declared = declare(json!({}));
    let well = [
        "Fetched=True/Fetched",
        "Verified=True/AsExpected",
        "Compiled=True/Compiled",
        "Described=True/Described",
        "Granted=True/Granted",
        "Serving=True/Serving",
        "Ready=True/Ready",
        "Degraded=False/AsDeclared",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&state(&declared, ["a", "a"]), &declared, None, &well);
    let mut reduced = well;
    reduced[4] = "Granted=True/Reduced";
    check_conditions(&state(&declared, ["a?", "a?"]), &declared, None, &reduced);
    let suspending = declare(json!({"suspend": true}));
    let mut suspended = well;
    suspended[5] = "Serving=False/Suspended";
    suspended[6] = "Ready=False/Suspended";
    check_conditions(
        &state(&suspending, ["a", "a"]),
        &suspending,
        None,
        &suspended,
    );
}

#[test]
fn a_failed_stage_leaves_later_ones_unknown_and_the_active_revision_active() {
    let declared = declare(json!({}));
    let failed = [
        "Fetched=True/Fetched",
        "Verified=True/AsExpected",
        "Compiled=False/HostFault",
        "Described=Unknown/NotReached",
        "Granted=Unknown/NotReached",
        "Serving=True/Serving",
        "Ready=False/HostFault",
        "Degraded=True/HostFault",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&state(&declared, ["-", "a"]), &declared, None, &failed);
    let first = [
        "Serving=False/NotLoaded",
        "Ready=False/HostFault",
        "Degraded=True/HostFault",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&state(&declared, ["-", "-"]), &declared, None, &first);
    // The declaration itself is the failure.
    let invalid = failure(Stage::Fetched);
    let state = PluginState::default();
    let declared = declare(json!({}));
    let conditions = Facts {
        declared: Err(&invalid),
        ..facts(&state, &declared, None)
    }
    .conditions();
    assert_eq!(conditions[0].status, ConditionStatus::False);
    assert_eq!(conditions[1].status, ConditionStatus::Unknown);
}

#[test]
fn a_loaded_revision_that_cannot_be_active_has_the_failure_in_serving() {
    let declared = declare(json!({}));
    let mut state = state(&declared, ["a", "-"]);
    refuse(&mut state, "a", failure(Stage::Serving));
    let expected = [
        "Granted=True/Granted",
        "Serving=False/HostFault",
        "Ready=False/HostFault",
        "Degraded=True/HostFault",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&state, &declared, None, &expected);
}

#[test]
fn parents_say_that_their_plugin_does_not_serve_once_that_is_certain() {
    let serving = declare(json!({}));
    let suspending = declare(json!({"suspend": true}));
    let refused = |reason| {
        let mut state = state(&serving, ["a", "-"]);
        let failure = Stage::Serving.failure(reason, "message", Retry::Backoff);
        refuse(&mut state, "a", failure);
        state
    };
    let mut loading_first = PluginState::default();
    let (load, _reporter) = loading(&serving, None);
    loading_first.loading = Some(load);
    let check = |state: &PluginState, declared, expected: Option<&str>| {
        let synced = facts(state, declared, None).synced_of_parents();
        assert_eq!(synced.is_some(), expected.is_some(), "{expected:?}");
        let (Some(synced), Some(reason)) = (synced, expected) else {
            return;
        };
        assert_eq!(synced.status, ConditionStatus::Unknown);
        assert_eq!(synced.reason, "PluginNotServing");
        let cause = format!(
            "Plugin web does not serve: its condition Serving is False with the reason {reason}."
        );
        assert!(synced.message.starts_with(&cause), "{}", synced.message);
    };
    for (revisions, expected) in [
        (["a", "a"], None),
        // The active revision serves although another one is declared.
        (["-", "a"], None),
        (["b", "a!"], Some("NotGranted")),
        (["a!", "-"], Some("NotLoaded")),
        (["-", "-"], Some("NotLoaded")),
    ] {
        check(&state(&serving, revisions), &serving, expected);
    }
    let suspended = state(&suspending, ["a", "a"]);
    check(&suspended, &suspending, Some("Suspended"));
    check(
        &refused(PluginReason::CrdFailed),
        &serving,
        Some("CrdFailed"),
    );
    // The other plugin reports on the parents.
    check(&refused(PluginReason::ParentTaken), &serving, None);
    check(&loading_first, &serving, None);
}

#[test]
fn a_plugin_whose_parents_the_cluster_no_longer_serves_says_so() {
    let declared = declare(json!({}));
    let state = state(&declared, ["a", "a"]);
    let missing = MissingParents {
        kinds: vec![Gvk::new("example.com", "v1", "Web")],
        may_install: true,
        is_redefined: false,
    };
    let lacking = Facts {
        missing: &missing,
        ..facts(&state, &declared, None)
    };
    let expected = [
        "Serving=False/ParentNotServed",
        "Ready=False/ParentNotServed",
        "Degraded=True/ParentNotServed",
        "RolledBack=False/NotNeeded",
    ];
    check_shown(lacking.conditions(), &expected);
    // The plugin has no definition for them.
    assert_eq!(lacking.next_step(&declared), Some(Action::Keep));
    assert_eq!(lacking.synced_of_parents(), None);
}

#[test]
fn a_rollback_and_its_absence_have_their_reason() {
    let declared = declare(json!({}));
    let after = PluginState {
        history: rolled_back(),
        ..state(&declared, ["b", "a"])
    };
    let expected = [
        "Serving=True/Serving",
        "Ready=False/RolledBack",
        "Degraded=True/RolledBack",
        "RolledBack=True/TooManyFaults",
    ];
    let messages = check_conditions(&after, &declared, None, &expected);
    assert!(messages[8].contains("because it trapped;"), "{messages:?}");
    let faulty = Some(AnalysisVerdict::Faulty);
    let expected = ["RolledBack=False/TooManyFaults"];
    for (rollout, why) in [
        (json!({}), "no earlier revision is good"),
        (json!({"autoRollback": false}), "autoRollback is false"),
    ] {
        let declared = declare(json!({"rollout": rollout}));
        let state = state(&declared, ["b", "b"]);
        let messages = check_conditions(&state, &declared, faulty, &expected);
        assert!(messages[8].starts_with("it traps; "), "{messages:?}");
        assert!(messages[8].ends_with(why), "{messages:?}");
    }
}

#[test]
fn conditions_of_an_earlier_generation_do_not_count() {
    let counts_with = |observed_generation| {
        let condition = |kind| {
            json!({
                "type": kind, "status": "True", "reason": kind, "message": "",
                "observedGeneration": observed_generation,
            })
        };
        let parent = json!({
            "apiVersion": "example.com/v1", "kind": "Web",
            "metadata": {"name": "a", "namespace": "demo", "generation": 2},
            "status": {"conditions": [condition("Synced"), condition("Ready")]},
        });
        let parent = present(
            parent.as_object().unwrap(),
            &Gvk::new("example.com", "v1", "Web"),
            Access::Full,
            &HashKey::new([0; 32]),
        );
        let mut counts = Parents::default();
        crate::status::count(&mut counts, &parent.unwrap());
        (counts.total, counts.synced, counts.ready)
    };
    assert_eq!(counts_with(1), (1, 0, 0));
    assert_eq!(counts_with(2), (1, 1, 1));
}

#[test]
fn a_plugin_has_a_condition_while_namespaces_are_full() {
    let full = |namespaces: &[&str]| {
        let sentences: Vec<String> = namespaces.iter().map(|name| (*name).to_owned()).collect();
        crate::conditions::cache_full(&sentences)
    };
    assert_eq!(full(&[]), None);
    for (namespaces, message) in [
        (&["a is full"][..], "a is full"),
        (
            &["a is full", "b is full", "c is full"],
            "a is full; 2 more namespaces are full",
        ),
    ] {
        let condition = full(namespaces).unwrap();
        assert_eq!(condition.kind, "CacheFull");
        assert_eq!(condition.status, ConditionStatus::True);
        assert_eq!(condition.reason, "NamespaceCacheFull");
        assert_eq!(condition.message, message);
    }
}
