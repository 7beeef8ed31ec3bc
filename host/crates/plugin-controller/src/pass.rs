//! One Plugin pass: observe, decide, act, report.
//!
//! Removing a Plugin leaves all children and definitions as they are.

use std::{sync::Arc, time::Duration};

use innkeeper_model::{GroupKind, Object, PluginName, PluginReason, Retry};
use innkeeper_reconcile::{Next, Role};
use tokio::time::Instant;
use tracing::{debug, info};

use crate::{
    act::{self, Fact, Subject, act, release_dropped_kinds, release_parents, remove_finalizer},
    context::Context,
    decide::{Facts, decide},
    gone::record_deletion,
    missing::MissingParents,
    publish,
    resource::Declared,
    rollout::AnalysisVerdict,
    stage::{Stage, StageFailure},
    state::PluginState,
    status,
    unserved::report_unserved,
};

/// Interval for releasing a deleted Plugin's remaining parents: shorter than for an active Plugin,
/// because the deletion waits for it.
const RELEASE_PERIOD: Duration = Duration::from_millis(250);

/// Takes all currently possible actions for a Plugin, and reports the state.
pub(crate) async fn run(
    cx: &Context,
    object: &Object,
    state: &mut PluginState,
    change: Option<Instant>,
) -> Next {
    let mut subject = Subject::new(cx, object, change);
    // Observe: only reads the cache. A Plugin that is being deleted, or shares a plugin file's name, ends here.
    let declared = match observe(cx, &mut subject, state).await {
        Ok(declared) => declared,
        Err(next) => return next,
    };
    // Decide (pure) and act (loads, swaps, writes).
    let missing = take_actions(cx, &mut subject, state, &declared).await;
    release_dropped_kinds(cx, &mut subject.target, state, &declared.name).await;
    let facts = facts(object, state, Ok(&declared), &missing);
    let synced = facts.synced_of_parents();
    let ungranted = facts.ungranted();
    let is_own = |kind: &GroupKind| {
        cx.with_claims(|claims| claims.holder(kind).is_none_or(|by| *by == declared.name))
    };
    let unserved = &mut state.unserved;
    report_unserved(&cx.shared, &declared, unserved, synced, ungranted, is_own).await;
    // Report: writes the status.
    report(cx, &mut subject, state, Ok(&declared), &missing).await
}

/// Returns a Plugin's declaration if it should be served; otherwise reports the reason, and returns the next pass.
async fn observe(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
) -> Result<Arc<Declared>, Next> {
    let object = subject.object;
    if let Err(failure) = cx.definition.usable().await {
        let missing = MissingParents::new(state, cx.cluster());
        let conditions = facts(object, state, Err(&failure), &missing).conditions();
        return Err(publish::conditions(cx, subject, state, conditions).await);
    }
    if let Some((name, failure)) = name_taken(cx, object) {
        if object.is_deleting() {
            // The plugin's finalizers belong to the plugin file with that name, so only the host's finalizer is
            // removed.
            return Err(remove_finalizer(cx, &mut subject.target, name).await);
        }
        return Err(report_failure(cx, subject, state, &failure).await);
    }
    if object.is_deleting() {
        return Err(finalize(cx, subject, state).await);
    }
    match state.declared(object) {
        Ok(declared) => {
            state.accept(&declared);
            Ok(declared)
        }
        Err(failure) => {
            // The running load is for a spec that no longer exists.
            state.loading = None;
            Err(report_failure(cx, subject, state, &failure).await)
        }
    }
}

/// Acts until the Plugin has to wait. Returns the parent kinds that the cluster does not serve.
async fn take_actions(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
    declared: &Declared,
) -> MissingParents {
    let is_first = cx.with_claims(|claims| claims.is_first(&declared.name));
    // Not in the loop: a plugin that is refused a kind again would repeat the attempt without end.
    state.forget_due_setbacks(is_first);
    let mut missing = MissingParents::new(state, cx.cluster());
    'acting: loop {
        let actions = decide(&Facts {
            must_stop: cx.with_claims(|claims| claims.must_stop(&declared.name)),
            ..facts(subject.object, state, Ok(declared), &missing)
        });
        debug!(?actions, "next actions");
        if actions.is_empty() {
            break;
        }
        for action in actions {
            match act(cx, subject, declared, state, action).await {
                Fact::Done => {}
                Fact::Loaded(attempt) => state.record_load(*attempt),
                Fact::Activated(activated) => {
                    state.record_activation(*activated);
                    // The activation has waited until all kinds are served.
                    missing = MissingParents::default();
                }
                Fact::Refused(revision, refusal) => state.record_refusal(revision, refusal),
                Fact::Lost(revision, failure) => state.record_loss(revision, failure),
                Fact::Stopped => {
                    state.history.end(subject.moment);
                    missing = MissingParents::default();
                }
                Fact::Kept => state.forget_refusals(),
                Fact::LoadingEarlier => break 'acting,
            }
        }
    }
    if state
        .analysis()
        .is_some_and(|analysis| analysis.verdict == AnalysisVerdict::Good)
    {
        state.record_good(declared);
    }
    missing
}

/// Returns the facts for a report; only a decision asks for the claims.
fn facts<'a>(
    object: &Object,
    state: &'a PluginState,
    declared: Result<&'a Declared, &'a StageFailure>,
    missing: &'a MissingParents,
) -> Facts<'a> {
    Facts {
        declared,
        generation: object.generation,
        state,
        missing,
        analysis: state.analysis(),
        must_stop: None,
    }
}

async fn report(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
    declared: Result<&Declared, &StageFailure>,
    missing: &MissingParents,
) -> Next {
    let object = subject.object;
    let before = status::status_of(object);
    let facts = facts(object, state, declared, missing);
    let measured = status::measure(cx, &facts, object);
    let after = status::status(&facts, measured, &before);
    let due = match declared {
        Ok(_) => state.due_next(),
        Err(_) => state.due_report(),
    };
    publish::status(cx, subject, state, (&before, &after), due).await
}

/// Reports why there is no declaration to follow.
async fn report_failure(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
    failure: &StageFailure,
) -> Next {
    let missing = MissingParents::new(state, cx.cluster());
    report(cx, subject, state, Err(failure), &missing).await
}

/// Stops a Plugin that is being deleted, and removes the host's finalizer once no parent has the plugin's finalizer.
async fn finalize(cx: &Context, subject: &mut Subject<'_>, state: &mut PluginState) -> Next {
    state.loading = None;
    let object = subject.object;
    let Ok(name) = PluginName::new(&object.name) else {
        // A Plugin with such a name was never active.
        return Next::UntilChanged;
    };
    if state.active.is_some() {
        info!(plugin = %name, "the Plugin is being deleted, its children stay");
        act::stop(cx, &name, state, subject.moment).await;
    }
    record_deletion(cx, &name);
    // The Plugin gets it before any parent gets the plugin's finalizer, so there is nothing to release.
    if !object.has_finalizer(&cx.name.finalizer()) {
        return Next::UntilChanged;
    }
    let kinds = cx.shared.inventory.kinds(&name, Role::Finalizing);
    let remaining = release_parents(cx, state, &name, &kinds).await;
    if remaining.is_empty() {
        return remove_finalizer(cx, &mut subject.target, &name).await;
    }
    let message = format!(
        "the Plugin is deleted once its finalizer {} is removed from all parents: {}",
        name.finalizer(),
        remaining.join("; ")
    );
    let failure = Stage::Serving.failure(PluginReason::Leaving, message, Retry::OnChange);
    match report_failure(cx, subject, state, &failure).await {
        Next::Backoff => Next::Backoff,
        _ => Next::RequeueAfter(RELEASE_PERIOD),
    }
}

/// Returns the failure for a Plugin whose name belongs to a plugin file on this host.
fn name_taken<'a>(cx: &'a Context, object: &Object) -> Option<(&'a PluginName, StageFailure)> {
    let name = PluginName::new(&object.name).ok()?;
    let (name, _) = cx.files.get_key_value(&name)?;
    let message = format!(
        "the name {name} belongs to a plugin file of this host: rename the Plugin, or run the host without the file"
    );
    let failure = Stage::Serving.failure(PluginReason::NameTaken, message, Retry::OnChange);
    Some((name, failure))
}
