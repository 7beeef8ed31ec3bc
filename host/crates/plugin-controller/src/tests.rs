//! Every Plugin state, the step that follows, and the conditions; the cluster tests cover passes.

mod conditions;
mod loading;
mod steps;
mod stored;

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use innkeeper_cluster::present;
use innkeeper_model::{
    Access, Condition, ConditionStatus, Digest, GroupKind, Gvk, HashKey, Object, PluginName,
    PluginReason, Retry,
};
use innkeeper_sandbox::{
    Described, Metering, Plugin,
    testing::{Description, checker, described, engine, guest},
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    PluginControllers,
    act::Refusal,
    active::ActivePlugin,
    claims::TakenKind,
    decide::{Action, Facts, decide},
    load::{Loading, Reporter, VerifiedComponent},
    missing::MissingParents,
    plugin_kind,
    resource::{self, Declared, Parents},
    rollout::{Activation, AnalysisVerdict, History, Moment, PastRevision, RolloutAnalysis},
    setback::LoadAttempt,
    stage::{Stage, StageFailure},
    state::PluginState,
    status::status_of,
    testing::declared as declare,
};

/// Components by mark: one that needs only its parents, `!` one that requires children without a grant, and `?` one
/// with an optional read without a grant. Each configuration makes another revision.
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

/// Returns a revision by its name, which ends in the component's mark.
fn plugin(name: &str) -> Arc<Plugin> {
    let is_marked = |(mark, _): &&(char, Described)| name.ends_with(*mark);
    let marked = COMPONENTS.iter().find(is_marked);
    let (_, component) = marked.unwrap_or(&COMPONENTS[0]);
    let config = Map::from_iter([("name".to_owned(), name.into())]);
    Arc::new(component.configure(&config, &checker()).unwrap())
}

fn digest(name: &str) -> Digest {
    plugin(name).revision().clone()
}

fn failure(stage: Stage) -> StageFailure {
    stage.failure(PluginReason::HostFault, "it broke", Retry::OnChange)
}

/// Returns a state from the loaded and the active revision's names: `-` is none.
fn state(before: &Declared, [loaded, active]: [&str; 2]) -> PluginState {
    let result = match loaded {
        "-" => Err(failure(Stage::Compiled)),
        name => Ok(plugin(name)),
    };
    let active = (active != "-").then(|| ActivePlugin {
        plugin: plugin(active),
        terms: before.terms.clone(),
        accepted: before.terms.clone(),
        served: Arc::new(PluginControllers {
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
        ..PluginState::default()
    }
}

/// Adds a component to the last attempt to load.
fn add_component(state: &mut PluginState) -> &'static Described {
    let (_, described) = &COMPONENTS[0];
    state.attempt.as_mut().unwrap().component = Some(VerifiedComponent {
        described: described.clone(),
        verified_by: String::new(),
    });
    described
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

/// Returns a history in which these revisions were active one after the other, all good.
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
    state.record_loss(digest(name), failure(Stage::Fetched));
}

fn refuse(state: &mut PluginState, name: &str, failure: StageFailure) {
    state.record_refusal(digest(name), Refusal::from(failure));
}

/// Returns a load that ended without a component.
fn failed_load(declared: &Declared, failure: StageFailure) -> LoadAttempt {
    LoadAttempt {
        declared: declared.clone(),
        component: None,
        result: Err(failure),
        at: Instant::now(),
        retry_at: None,
    }
}

static NONE_MISSING: MissingParents = MissingParents {
    kinds: Vec::new(),
    may_install: false,
    is_redefined: false,
};

/// Returns a Plugin's facts at generation 1.
fn facts<'a>(
    state: &'a PluginState,
    declared: &'a Declared,
    analysis: Option<&RolloutAnalysis>,
) -> Facts<'a> {
    Facts {
        declared: Ok(declared),
        generation: Some(1),
        state,
        missing: &NONE_MISSING,
        analysis: analysis.cloned(),
        must_stop: None,
    }
}

fn next_step(
    state: &PluginState,
    declared: &Declared,
    analysis: Option<&RolloutAnalysis>,
) -> Option<Action> {
    facts(state, declared, analysis).next_step(declared)
}

fn roll_back(name: &str) -> Action {
    Action::RollBack {
        to: digest(name),
        why: "it traps".to_owned(),
    }
}

fn analysis(verdict: AnalysisVerdict) -> RolloutAnalysis {
    RolloutAnalysis {
        verdict,
        faults: Some("it traps".to_owned()),
    }
}

fn activate(name: &str) -> Action {
    Action::Activate(digest(name))
}

/// Returns a running load for a declared component, and the progress reporter.
fn loading(declared: &Declared, kept: Option<&Digest>) -> (Loading, Reporter) {
    Loading::reported(|| {}, declared, kept)
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
    present(
        plugin.as_object().unwrap(),
        &plugin_kind(),
        Access::Full,
        &key,
    )
    .unwrap()
}

/// Asserts the state's last conditions in order, each as type, status and reason.
#[track_caller]
fn check_conditions(
    state: &PluginState,
    declared: &Declared,
    verdict: Option<AnalysisVerdict>,
    expected: &[&str],
) -> Vec<String> {
    let analysis = verdict.map(analysis);
    let conditions = facts(state, declared, analysis.as_ref()).conditions();
    check_shown(conditions, expected)
}

#[track_caller]
fn check_shown(conditions: Vec<Condition>, expected: &[&str]) -> Vec<String> {
    let shown: Vec<_> = conditions
        .iter()
        .map(|condition| {
            format!(
                "{}={}/{}",
                condition.kind,
                <&str>::from(condition.status),
                condition.reason
            )
        })
        .collect();
    assert_eq!(shown[shown.len() - expected.len()..], *expected);
    conditions
        .into_iter()
        .map(|condition| condition.message)
        .collect()
}
