//! Every state of a Plugin, the step that follows, and its conditions; the cluster tests cover passes.

use std::sync::LazyLock;

use innkeeper_cluster::present;
use innkeeper_model::{Access, ConditionStatus, Digest, HashKey};
use innkeeper_sandbox::{
    Described, Metering, Plugin,
    testing::{Description, described, engine, guest},
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    active::ActiveRevision, load::NOT_GRANTED, loading::Reporter, missing::MissingParents,
    report::status_of, state::LoadAttempt, *,
};
use crate::{
    Served,
    fixture::declared as declare,
    lifecycle::{History, Moment, PastRevision, RolloutAnalysis},
    resource::Parents,
};

/// Components by their mark: one that needs only its parents, `!` one that requires children without a grant, and `?` one
/// with an optional read without a grant. A configuration makes a revision.
static COMPONENTS: LazyLock<[(char, Described); 3]> = LazyLock::new(|| {
    let engine = engine(Metering::Epochs);
    let plain = Description {
        children: Vec::new(),
        config_schema: Some("{}".to_owned()),
        ..Description::default()
    };
    let lacking = Description {
        children: vec![["v1", "ConfigMap"].map(str::to_owned)],
        ..plain.clone()
    };
    let reduced = Description {
        reads: vec![["v1", "Pod", ""].map(str::to_owned)],
        ..plain.clone()
    };
    [(' ', plain), ('!', lacking), ('?', reduced)].map(|(mark, description)| {
        let bytes = guest().describing(description).build();
        (mark, described(&engine, &bytes))
    })
});

/// Returns a revision by its name, which ends in the mark of its component.
fn plugin(name: &str) -> Arc<Plugin> {
    let is_marked = |(mark, _): &&(char, Described)| name.ends_with(*mark);
    let marked = COMPONENTS.iter().find(is_marked);
    let (_, component) = marked.unwrap_or(&COMPONENTS[0]);
    let config = Map::from_iter([("name".to_owned(), name.into())]);
    Arc::new(component.configure(&config).unwrap())
}

fn digest(name: &str) -> Digest {
    plugin(name).revision().clone()
}

fn failure(stage: Stage) -> StageFailure {
    StageFailure::new(stage, "Broken", "it broke", Retry::OnChange)
}

/// Returns a state by the names of the loaded and the active revision: `-` is none.
fn state(before: &Declared, [loaded, active]: [&str; 2]) -> PluginState {
    let result = match loaded {
        "-" => Err(failure(Stage::Compiled)),
        name => Ok(plugin(name)),
    };
    let active = (active != "-").then(|| ActiveRevision {
        plugin: plugin(active),
        terms: before.terms.clone(),
        accepted: before.terms.clone(),
        served: Arc::new(Served {
            name: before.name.clone(),
            reconcilers: Vec::new(),
        }),
        passes: None,
        since: Instant::now(),
    });
    PluginState {
        attempt: Some(LoadAttempt {
            declared: before.clone(),
            component: None,
            result,
            at: Instant::now(),
            retry_at: None,
        }),
        active,
        generation: Some(1),
        ..PluginState::default()
    }
}

fn begin(history: &mut History, name: &str, activation: &Activation) {
    let plugin = plugin(name);
    let past = PastRevision {
        revision: plugin.revision().clone(),
        digest: plugin.digest().clone(),
        config: serde_json::from_str(plugin.config()).unwrap(),
    };
    let moment = Moment {
        now: Timestamp::UNIX_EPOCH,
        generation: Some(1),
    };
    history.begin(&past, activation, moment);
}

/// Returns a history in which these revisions were active one after the other, each of them good.
fn history(names: &[&str]) -> History {
    let mut history = History::default();
    for name in names {
        begin(&mut history, name, &Activation::Declared);
        history.pass();
    }
    history
}

/// Returns a history in which `b` was rolled back to `a`.
fn rolled_back() -> History {
    let mut history = history(&["a", "b"]);
    let why = "it trapped".to_owned();
    begin(&mut history, "a", &Activation::RolledBack { why });
    history
}

fn lose(state: &mut PluginState, name: &str) {
    let lost = state.refused(failure(Stage::Fetched));
    state.lost.insert(digest(name), lost);
}

fn analysis(verdict: AnalysisVerdict) -> RolloutAnalysis {
    RolloutAnalysis {
        verdict,
        faults: Some("it traps".to_owned()),
    }
}

fn activate(name: &str) -> NextStep {
    NextStep::Activate(digest(name))
}

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

/// Returns work on the component of a declaration, and the reporter of its progress.
fn loading(declared: &Declared, kept: Option<&Digest>) -> (Loading, Reporter) {
    Loading::reported(|| {}, declared, kept)
}

#[test]
fn a_running_load_is_waited_for_and_keeps_nothing_else_waiting() {
    let before = declare(json!({}));
    let now = declare(json!({"source": {"file": {"path": "other.wasm"}}}));
    for revisions in [["a", "a"], ["a", "-"], ["a", "a!"]] {
        let mut state = state(&before, revisions);
        assert_eq!(state.next_step(&now, None), NextStep::Load, "{revisions:?}");
        let (load, reporter) = loading(&now, None);
        state.loading = Some(load);
        assert_eq!(state.next_step(&now, None), NextStep::Wait, "{revisions:?}");
        reporter.end(Err(failure(Stage::Fetched)));
        assert_eq!(state.next_step(&now, None), NextStep::Load, "{revisions:?}");
    }

    // While a source is polled, the last result counts.
    let mut polled = state(&before, ["a", "-"]);
    let attempt = polled.attempt.as_mut().unwrap();
    attempt.declared.pull_every = Some(Duration::ZERO);
    let (load, _reporter) = loading(&before, None);
    polled.loading = Some(load);
    assert_eq!(polled.next_step(&before, None), activate("a"));
    assert_eq!(polled.due_next(), None);

    // A rollback and the revision of an earlier process do not wait for a server.
    let (load, _reporter) = loading(&now, None);
    let faulty = PluginState {
        history: history(&["a", "b"]),
        loading: Some(load),
        ..state(&before, ["b", "b"])
    };
    let analysis = analysis(AnalysisVerdict::Faulty);
    let step = faulty.next_step(&now, Some(&analysis));
    assert_eq!(step, NextStep::RollBack(digest("a")));
}

#[test]
fn another_configuration_of_a_loaded_component_is_not_loaded() {
    let declare = |name: &str| declare(json!({"config": {"name": name}}));
    let mut state = state(&declare("a"), ["a", "a"]);
    let (_, described) = &COMPONENTS[0];
    state.attempt.as_mut().unwrap().component = Some(VerifiedComponent {
        described: described.clone(),
        verified_by: String::new(),
    });
    assert_eq!(state.next_step(&declare("b"), None), NextStep::Load);
    state.follow(&declare("b"));
    assert_eq!(state.next_step(&declare("b"), None), activate("b"));
    // Nor does it wait while the source is polled.
    let (load, _reporter) = loading(&declare("a"), None);
    state.loading = Some(load);
    state.follow(&declare("c"));
    assert_eq!(state.next_step(&declare("c"), None), activate("c"));
    assert!(state.loading.is_some());
}

#[test]
fn a_changed_declaration_cancels_outdated_work() {
    let before = declare(json!({}));
    let mut state = PluginState::default();
    let is_cancelled = |state: &mut PluginState, spec: Value| {
        state.loading = Some(loading(&before, None).0);
        state.follow(&declare(spec));
        state.loading.is_none()
    };
    let other = json!({"file": {"path": "other.wasm"}});
    assert!(is_cancelled(&mut state, json!({"source": other})));
    let sum = Digest::of(b"x").to_string();
    assert!(is_cancelled(&mut state, json!({"digest": sum})));
    // Grants decide if the component is compiled.
    assert!(is_cancelled(&mut state, json!({"grants": {}})));
    // The component stays the same.
    let kept = json!({"config": {"size": 1}, "limits": {"children": 1}, "suspend": true});
    assert!(!is_cancelled(&mut state, kept));
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

    // Without the required grants the passes of the active revision have ended.
    state.active.as_mut().unwrap().plugin = plugin("a!");
    compiling[5] = "Serving=False/NotGranted";
    check_conditions(&state, &now, None, &compiling);

    // The next attempt for the same declaration does not change the conditions of the last one.
    let mut again = self::state(&now, ["-", "-"]);
    let failed = [
        "Compiled=False/Broken",
        "Described=Unknown/NotReached",
        "Granted=Unknown/NotReached",
        "Serving=False/NotLoaded",
        "Ready=False/Broken",
        "Degraded=True/Broken",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&again, &now, None, &failed);
    let (load, _reporter) = loading(&now, None);
    again.loading = Some(load);
    check_conditions(&again, &now, None, &failed);
}

/// A restart would otherwise write the status twice.
#[test]
fn the_conditions_of_an_earlier_process_stay_until_an_attempt_has_ended() {
    let declared = declare(json!({}));
    let mut state = PluginState::of(&object("one", 2), None);
    state.generation = Some(2);
    assert!(!state.keeps_conditions());
    let (load, _reporter) = loading(&declared, None);
    state.loading = Some(load);
    assert!(state.keeps_conditions());
    state.generation = Some(3);
    assert!(!state.keeps_conditions());
    state.generation = Some(2);
    state.attempted(&declared, Err(failure(Stage::Fetched)), Instant::now());
    assert!(!state.keeps_conditions());
}

#[test]
fn a_plugin_that_was_created_again_has_no_state_of_its_predecessor() {
    let state = PluginState::of(&object("one", 1), None);
    assert!(state.is_of(&object("one", 2)));
    assert!(!state.is_of(&object("two", 1)));
}

/// A status of another version of the host would otherwise lose the revisions that can become active again.
#[test]
fn an_unreadable_field_of_a_stored_status_leaves_the_others_readable() {
    let key = HashKey::new([7; 32]);
    let history = history(&["a", "b"]);
    let plugin = object("one", 1);
    let mut status = json!({
        "observedGeneration": 1,
        "history": history.0,
        "historySeal": history.seal(&plugin.uid, &key),
    });
    for (field, unreadable) in [
        ("limits", json!({"memory": 64})),
        (
            "candidate",
            json!({"revision": "a", "digest": "b", "verdict": "Pending"}),
        ),
        ("conditions", json!([{"type": "Serving"}])),
        ("parents", json!(7)),
        ("unknown", json!({})),
    ] {
        status[field] = unreadable;
    }
    let state = PluginState::of(&with_status("one", 1, &status), Some(&key));
    assert_eq!(state.history, history);
    assert_eq!(state.reported, Some(1));
    // An unreadable history is none.
    status["history"] = json!([{}]);
    let state = PluginState::of(&with_status("one", 1, &status), Some(&key));
    assert_eq!(state.history, History::default());
    assert_eq!(state.reported, Some(1));
}

/// An edited status, or that of another Plugin, must not bring back revisions.
#[test]
fn a_history_without_the_seal_for_the_plugin_resumes_nothing() {
    let key = HashKey::new([7; 32]);
    let history = history(&["a"]);
    let seal = history.seal(&object("one", 1).uid, &key);
    let status = json!({"history": history.0, "historySeal": seal});
    let declared = declare(json!({}));
    for (uid, key, step) in [
        ("one", Some(key.clone()), NextStep::Resume(digest("a"))),
        ("two", Some(key), NextStep::Load),
        ("one", Some(HashKey::new([8; 32])), NextStep::Load),
        ("one", None, NextStep::Load),
    ] {
        let state = PluginState::of(&with_status(uid, 1, &status), key.as_ref());
        assert_eq!(state.next_step(&declared, None), step, "{uid} {key:?}");
    }
}

/// Otherwise a definition with a new limit refuses every other write of the status that an earlier host wrote.
#[test]
fn the_limits_of_an_earlier_host_may_lack_new_ones() {
    let status = json!({"limits": {"memory": "64Mi"}});
    let limits = status_of(&with_status("one", 1, &status)).limits.unwrap();
    assert_eq!((&*limits.memory, limits.retained), ("64Mi", 0));
    let definition = Value::Object(resource::crd());
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/status/properties/limits";
    let limits = definition.pointer(schema).unwrap();
    assert_eq!(limits.get("required"), None, "{limits:#}");
    assert!(!limits.to_string().contains("\"default\""), "{limits:#}");
}

/// An entry that another version of the host wrote may have further fields: the seal is for the stored JSON.
#[test]
fn the_seal_holds_for_entries_with_further_fields() {
    let key = HashKey::new([7; 32]);
    let history = history(&["a"]);
    let mut entries = json!(history.0);
    entries[0]["later"] = json!({"z": 1, "a": 2});
    let uid = object("one", 1).uid;
    let hash = |usage: &str| key.hash(usage, &[&uid.0, &entries.to_string()]);
    let found = |seal: String| {
        let status = json!({"history": entries, "historySeal": seal});
        PluginState::of(&with_status("one", 1, &status), Some(&key)).history
    };
    assert_eq!(found(format!("v1:{}", hash("history"))), history);
    let none = History::default();
    for wrong in [format!("v2:{}", hash("history")), hash("history"), hash("")] {
        assert_eq!(found(wrong.clone()), none, "{wrong}");
    }
}

/// Bytes that were loaded without a signature must not become active after the Plugin requires one.
#[test]
fn a_loaded_component_serves_only_a_declaration_that_verifies_it_alike() {
    let declare = |verify: Value| declare(json!({"verify": verify}));
    let key = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n-----END PUBLIC KEY-----\n";
    let before = declare(json!({"keys": [key]}));
    let mut state = state(&before, ["a", "-"]);
    let (_, described) = &COMPONENTS[0];
    state.attempt.as_mut().unwrap().component = Some(VerifiedComponent {
        described: described.clone(),
        verified_by: String::new(),
    });
    let found = |now: &Declared| state.component(now, described.digest()).is_some();
    assert!(found(&before));
    let mut other = before.clone();
    other.config.insert("size".to_owned(), 1.into());
    assert!(found(&other));
    other.keys.clear();
    assert!(!found(&other));
    assert!(!found(&declare(json!({"keys": [key], "name": "web"}))));
    assert!(state.component(&before, &Digest::of(b"x")).is_none());
}

/// Returns a Plugin with this UID whose status reports on this generation.
fn object(uid: &str, generation: i64) -> Object {
    with_status(uid, generation, &json!({"observedGeneration": generation}))
}

fn with_status(uid: &str, generation: i64, status: &Value) -> Object {
    let plugin = json!({
        "apiVersion": "innkeeper.dev/v1alpha1", "kind": "Plugin",
        "metadata": {"name": "web", "uid": uid, "generation": generation},
        "status": status,
    });
    let key = HashKey::new([0; 32]);
    present(plugin.as_object().unwrap(), &kind(), Access::Full, &key).unwrap()
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
fn a_component_without_grants_for_its_parents_is_loaded_once_they_are_granted() {
    let before = declare(json!({"grants": {}}));
    let mut state = state(&before, ["-", "-"]);
    let refuse = |stage| StageFailure::new(stage, NOT_GRANTED, "grant it", Retry::OnChange);
    for stage in [Stage::Compiled, Stage::Granted] {
        state.attempt.as_mut().unwrap().result = Err(refuse(stage));
        assert_eq!(state.next_step(&before, None), NextStep::Wait);
        let other = declare(json!({"grants": {}, "limits": {"children": 1}}));
        assert_eq!(state.next_step(&other, None), NextStep::Wait);
        assert_eq!(state.next_step(&declare(json!({})), None), NextStep::Load);
    }
    let status = |stage: Stage| {
        let conditions = state.conditions(Ok(&before), None);
        let mut found = conditions.iter();
        let found = found.find(|one| one.kind == stage.to_string()).unwrap();
        (found.status, found.message.clone())
    };
    let compiled = (ConditionStatus::Unknown, "waits for Granted".to_owned());
    assert_eq!(status(Stage::Compiled), compiled);
    assert_eq!(status(Stage::Described).0, ConditionStatus::True);
    let granted = (ConditionStatus::False, "grant it".to_owned());
    assert_eq!(status(Stage::Granted), granted);
}

/// A wrong signature, for example, is mended in the registry: an edit of any field asks for another attempt.
#[test]
fn an_edit_repeats_a_failed_load_that_has_no_time_of_its_own() {
    let edited = object("a", 2);
    let later = Some(Instant::now() + Duration::from_mins(1));
    for (reason, retry_at, is_repeated) in [
        ("BadSignature", None, true),
        ("Unreachable", later, false),
        (NOT_GRANTED, None, false),
    ] {
        let declared = declare(json!({}));
        let mut state = state(&declared, ["-", "-"]);
        state.read = Some((1, Arc::new(declared)));
        let attempt = state.attempt.as_mut().unwrap();
        let failed = StageFailure::new(Stage::Verified, reason, "", Retry::OnChange);
        attempt.result = Err(failed);
        attempt.retry_at = retry_at;
        state.declared(&object("a", 1)).unwrap();
        assert!(state.attempt.is_some(), "{reason}: nothing has changed");
        drop(state.declared(&edited));
        assert_eq!(state.attempt.is_none(), is_repeated, "{reason}");
    }
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

#[test]
fn a_source_with_a_pull_interval_is_fetched_again() {
    let declared = declare(json!({}));
    let mut state = state(&declared, ["a", "-"]);
    assert_eq!(state.due_next(), None);
    let attempt = state.attempt.as_mut().unwrap();
    attempt.declared.pull_every = Some(Duration::from_mins(1));
    assert_eq!(state.next_step(&declared, None), activate("a"));
    assert!(state.due_next().is_some());
    let attempt = state.attempt.as_mut().unwrap();
    attempt.declared.pull_every = Some(Duration::ZERO);
    assert_eq!(state.next_step(&declared, None), NextStep::Load);
}

/// Asserts the last conditions of a state in order, each as type, status and reason.
#[track_caller]
fn check_conditions(
    state: &PluginState,
    declared: &Declared,
    verdict: Option<AnalysisVerdict>,
    expected: &[&str],
) -> Vec<String> {
    let analysis = verdict.map(analysis);
    let conditions = state.conditions(Ok(declared), analysis.as_ref());
    let shown: Vec<_> = conditions
        .iter()
        .map(|one| format!("{}={}/{}", one.kind, <&str>::from(one.status), one.reason))
        .collect();
    assert_eq!(shown[shown.len() - expected.len()..], *expected);
    conditions.into_iter().map(|one| one.message).collect()
}

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
        "Compiled=False/Broken",
        "Described=Unknown/NotReached",
        "Granted=Unknown/NotReached",
        "Serving=True/Serving",
        "Ready=False/Broken",
        "Degraded=True/Broken",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&state(&declared, ["-", "a"]), &declared, None, &failed);
    let first = [
        "Serving=False/NotLoaded",
        "Ready=False/Broken",
        "Degraded=True/Broken",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&state(&declared, ["-", "-"]), &declared, None, &first);
    // The declaration itself is the failure.
    let invalid = failure(Stage::Fetched);
    let conditions = PluginState::default().conditions(Err(&invalid), None);
    assert_eq!(conditions[0].status, ConditionStatus::False);
    assert_eq!(conditions[1].status, ConditionStatus::Unknown);
}

#[test]
fn a_loaded_revision_that_cannot_be_active_has_the_failure_in_serving() {
    let declared = declare(json!({}));
    let mut state = state(&declared, ["a", "-"]);
    let refused = state.refused(failure(Stage::Serving));
    state.refused.insert(digest("a"), refused);
    let expected = [
        "Granted=True/Granted",
        "Serving=False/Broken",
        "Ready=False/Broken",
        "Degraded=True/Broken",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&state, &declared, None, &expected);
}

#[test]
fn parents_say_that_their_plugin_does_not_serve_once_that_is_certain() {
    let (serving, suspending) = (declare(json!({})), declare(json!({"suspend": true})));
    let refused = |reason: &str| {
        let mut state = state(&serving, ["a", "-"]);
        let failure = StageFailure::new(Stage::Serving, reason, "message", Retry::Backoff);
        let refused = state.refused(failure);
        state.refused.insert(digest("a"), refused);
        state
    };
    let mut loading_first = PluginState::default();
    let (load, _reporter) = loading(&serving, None);
    loading_first.loading = Some(load);
    let check = |state: &PluginState, declared, expected: Option<&str>| {
        let synced = state.synced_of_parents(declared);
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
    check(&refused("CrdFailed"), &serving, Some("CrdFailed"));
    // The parents belong to the other plugin.
    check(&refused("ParentTaken"), &serving, None);
    check(&loading_first, &serving, None);
}

#[test]
fn a_plugin_whose_parents_the_cluster_no_longer_serves_says_so() {
    let declared = declare(json!({}));
    let lacking = PluginState {
        missing: MissingParents {
            kinds: vec![Gvk::new("example.com", "v1", "Web")],
            may_install: true,
        },
        ..state(&declared, ["a", "a"])
    };
    let expected = [
        "Serving=False/ParentNotServed",
        "Ready=False/ParentNotServed",
        "Degraded=True/ParentNotServed",
        "RolledBack=False/NotNeeded",
    ];
    check_conditions(&lacking, &declared, None, &expected);
    // The plugin has no definition of them.
    assert_eq!(lacking.next_step(&declared, None), NextStep::Keep);
    assert_eq!(lacking.synced_of_parents(&declared), None);
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
        report::count(&mut counts, &parent.unwrap());
        (counts.total, counts.synced, counts.ready)
    };
    assert_eq!(counts_with(1), (1, 0, 0));
    assert_eq!(counts_with(2), (1, 1, 1));
}
