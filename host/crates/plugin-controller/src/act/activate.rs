//! Activates a revision: installs definitions, claims parent kinds, starts controllers, and swaps revisions.

use std::{collections::BTreeSet, sync::Arc};

use innkeeper_model::{Limits, Manifest, PluginName, PluginReason, Retry};
use innkeeper_reconcile::Revision;
use innkeeper_sandbox::Plugin;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info};

use super::{Subject, release::record_parents};
use crate::{
    Error, PluginControllers, accounts,
    active::{ActivePlugin, Passes},
    claims::{Age, TakenKind},
    context::Context,
    crds::CheckedDefinitions,
    resource::{Crds, Declared, Terms, revision_name},
    rollout::{
        Activation, Candidate, History, PastRevision, candidate_without_dry_run, dry_run, refusal,
    },
    stage::{Stage, StageFailure},
    state::PluginState,
};

/// A plugin whose passes run until `stop` is cancelled.
pub struct Start {
    /// The plugin.
    pub served: Arc<PluginControllers>,
    /// Limits for the passes.
    pub limits: Arc<Limits>,
    /// Prevents new passes; running passes end.
    pub stop: CancellationToken,
    /// Dropped once no pass runs any more.
    pub ended: DropGuard,
}

/// A revision to activate under the declared terms.
pub(super) struct Candidacy<'a> {
    declared: &'a Declared,
    plugin: Arc<Plugin>,
    serving: Revision,
    activation: Activation,
}

/// A revision that became active.
pub(crate) struct Activated {
    pub(crate) active: ActivePlugin,
    /// The history with the revision.
    pub(crate) history: History,
    /// True if another revision was active before.
    pub(crate) replaces_another: bool,
}

/// The reason for not activating a revision.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) failure: StageFailure,
    /// The dry run, if that is the reason.
    pub(crate) candidate: Option<Candidate>,
}

impl From<StageFailure> for Refusal {
    fn from(failure: StageFailure) -> Self {
        Self {
            failure,
            candidate: None,
        }
    }
}

impl<'a> Candidacy<'a> {
    pub(super) fn new(declared: &'a Declared, plugin: Arc<Plugin>, activation: Activation) -> Self {
        Self {
            serving: declared.terms.serving(Arc::clone(&plugin)),
            declared,
            plugin,
            activation,
        }
    }

    pub(super) const fn terms(&self) -> &Terms {
        &self.declared.terms
    }

    pub(super) fn manifest(&self) -> &Manifest {
        self.plugin.manifest()
    }

    fn is_rollback(&self) -> bool {
        matches!(self.activation, Activation::RolledBack { .. })
    }
}

/// Activates a revision, as the first one or replacing the active one.
///
/// On failure the active revision stays active.
pub(super) async fn activate(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
    candidacy: Candidacy<'_>,
) -> Result<Activated, Refusal> {
    let Declared { name, terms, .. } = candidacy.declared;
    if let Some(account) = &terms.service_account {
        accounts::check(cx.cluster(), name, account).await?;
    }
    let kinds = candidacy.serving.parent_kinds();
    if let Err(refusal) = prepare_and_claim(cx, subject, state, &candidacy).await {
        // A failed first activation must not keep the kinds from other plugins.
        let kinds = state.active.as_ref().map(|active| active.served.kinds());
        cx.with_claims(|claims| claims.release(name, &kinds.unwrap_or_default()));
        return Err(refusal);
    }

    let Candidacy {
        plugin,
        serving,
        activation,
        ..
    } = candidacy;
    let active = state.active.take();
    let is_new = active
        .as_ref()
        .is_none_or(|active| active.plugin.revision() != plugin.revision());
    let replaces_another = is_new && active.is_some();
    let mut history = state.history.clone();
    if is_new {
        history.begin(
            &PastRevision::from_plugin(&plugin),
            &activation,
            subject.moment,
        );
    }
    let since = active.as_ref().and_then(ActivePlugin::passes_since);
    let (served, passes) = controllers(
        cx,
        candidacy.declared,
        active,
        &serving,
        history.is_on_trial(),
        subject.change,
    )
    .await;
    // The passes for kinds that the new revision lacks have ended, so another plugin may have them.
    cx.with_claims(|claims| claims.release(name, &kinds));
    let passes = match passes {
        None if !terms.suspend => {
            let limits = Arc::clone(&serving.limits);
            Some(start(&cx.starts, &cx.stop, &served, limits).await)
        }
        passes => passes,
    };
    if is_new {
        let version = &plugin.manifest().version;
        let revision = revision_name(plugin.revision());
        info!(plugin = %name, version, revision, "serving plugin");
    } else {
        debug!(plugin = %name, "serving the plugin under other terms");
    }
    Ok(Activated {
        active: ActivePlugin {
            plugin,
            terms: terms.clone(),
            accepted: terms.clone(),
            served,
            passes,
            // Other terms do not prolong the time limit of the rollout analysis.
            since: since.filter(|_| !is_new).unwrap_or_else(Instant::now),
        },
        history,
        replaces_another,
    })
}

/// Applies terms to the active revision.
///
/// Without the required grants the passes end, but the revision can still be compared with the declared one.
pub(super) async fn bind(
    cx: &Context,
    declared: &Declared,
    active: &mut ActivePlugin,
    terms: Terms,
    change: Option<Instant>,
) {
    let serving = terms.serving(Arc::clone(&active.plugin));
    active.swap(&serving, &terms, change).await;
    active.terms = terms;
    if !active.is_granted() {
        info!(plugin = %declared.name, "stopping the passes: the active revision lacks required grants");
        active.drain().await;
    } else if active.passes.is_none() && !active.terms.suspend {
        let passes = start(&cx.starts, &cx.stop, &active.served, serving.limits);
        active.passes = Some(passes.await);
    }
}

/// Ends all passes and releases the parent kinds. Returns true if a revision was active.
pub(super) async fn stop(
    cx: &Context,
    name: &PluginName,
    active: &mut Option<ActivePlugin>,
) -> bool {
    let stopped = active.take();
    let was_active = stopped.is_some();
    if let Some(mut active) = stopped {
        active.drain().await;
    }
    // After the passes, because another plugin's passes for these parents may begin at once.
    cx.with_claims(|claims| claims.release(name, &BTreeSet::new()));
    was_active
}

/// Returns a revision's controllers, and the passes that continue.
///
/// Reuses the active revision's controllers if the parent kinds stay the same.
async fn controllers(
    cx: &Context,
    declared: &Declared,
    active: Option<ActivePlugin>,
    serving: &Revision,
    is_on_trial: bool,
    change: Option<Instant>,
) -> (Arc<PluginControllers>, Option<Passes>) {
    match active {
        Some(mut active) if active.served.kinds() == serving.parent_kinds() => {
            // `bind` has usually applied the terms, and a swap queues every parent.
            let is_same = active.plugin.revision() == serving.plugin.revision();
            if !is_same || active.terms != declared.terms {
                active.swap(serving, &declared.terms, change).await;
            }
            (active.served, active.passes)
        }
        active => {
            // A parent has at most one pass at a time: the old ones end first.
            if let Some(mut active) = active {
                active.drain().await;
            }
            let served = PluginControllers::new(&cx.shared, &declared.name, serving);
            // A new controller's analysis is complete, because nothing was swapped.
            if is_on_trial {
                for reconciler in &served.reconcilers {
                    reconciler.restart_analysis();
                }
            }
            (Arc::new(served), None)
        }
    }
}

/// Prepares a revision and claims the parent kinds.
async fn prepare_and_claim(
    cx: &Context,
    subject: &mut Subject<'_>,
    state: &mut PluginState,
    candidacy: &Candidacy<'_>,
) -> Result<(), Refusal> {
    let Declared { name, created, .. } = candidacy.declared;
    let kinds = candidacy.serving.parent_kinds();
    let take = |is_ready| {
        let age = Age::Created(*created);
        let taken = cx.with_claims(|claims| claims.acquire(name, age, &kinds, is_ready));
        taken.map_err(|TakenKind { kind, by }| {
            let plugin = name.clone();
            not_served(&Error::ParentTaken { kind, by, plugin })
        })
    };
    // Before the preparation: a plugin that may not have the kinds must not install their definitions.
    take(false)?;
    let PluginState {
        active,
        definitions,
        history,
        ..
    } = state;
    prepare(cx, candidacy, active.as_ref(), history, definitions).await?;
    record_parents(cx, &mut subject.target, name, &candidacy.serving).await?;
    // Only a prepared plugin makes a younger one stop, because the preparation may fail.
    take(true)?;
    Ok(())
}

/// Installs a revision's definitions, and checks the dry run against the rollout limits.
async fn prepare(
    cx: &Context,
    candidacy: &Candidacy<'_>,
    active: Option<&ActivePlugin>,
    history: &History,
    definitions: &mut CheckedDefinitions,
) -> Result<(), Refusal> {
    let Candidacy {
        declared, serving, ..
    } = candidacy;
    // The faulty revision's definitions also fit the previous revision, or they would not have been installed.
    let crds = if candidacy.is_rollback() {
        Crds::Ignore
    } else {
        declared.terms.crds
    };
    let has_served = history.has_component(serving.plugin.digest());
    definitions
        .install(&cx.shared, &declared.name, serving, crds, has_served)
        .await
        .map_err(|error| not_served(&error))?;
    let candidate = match active {
        None => candidate_without_dry_run(declared, history, serving),
        // Grants and limits take effect at once.
        Some(active) if active.plugin.revision() == serving.plugin.revision() => None,
        // This revision was good before, and parents must not wait for a dry run while the active revision faults.
        Some(_) if candidacy.is_rollback() => None,
        Some(active) => Some(dry_run(cx, declared, active, serving).await?),
    };
    match candidate
        .as_ref()
        .and_then(|candidate| refusal(&candidate.status))
    {
        Some(failure) => Err(Refusal { failure, candidate }),
        None => Ok(()),
    }
}

/// Has the passes of a plugin run until `stop`, or until they are drained.
pub(crate) async fn start(
    starts: &mpsc::Sender<Start>,
    stop: &CancellationToken,
    served: &Arc<PluginControllers>,
    limits: Arc<Limits>,
) -> Passes {
    let passes = Passes {
        stop: stop.child_token(),
        ended: CancellationToken::new(),
    };
    let start = Start {
        served: Arc::clone(served),
        limits,
        stop: passes.stop.clone(),
        // Also ends the wait in `drain` if the receiver never runs the passes.
        ended: passes.ended.clone().drop_guard(),
    };
    // Fails only at process exit, when the receiver is dropped; then no pass must run.
    drop(starts.send(start).await);
    passes
}

fn not_served(error: &Error) -> StageFailure {
    let (reason, retry) = match error {
        // The claims trigger a pass once the kind is free; the backoff is only a safety net.
        Error::ParentTaken { .. } => (PluginReason::ParentTaken, Retry::Backoff),
        Error::BeyondNamespaces { .. } => (PluginReason::BeyondNamespaces, error.retry()),
        Error::CrdRefused { .. } => (PluginReason::CrdRefused, error.retry()),
        Error::NotServed { .. } => (PluginReason::ParentNotServed, error.retry()),
        _ => (PluginReason::CrdFailed, error.retry()),
    };
    Stage::Serving.error(reason, error, retry)
}
