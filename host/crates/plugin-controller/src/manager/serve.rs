//! The activation of a revision: its definitions, kinds of parents and controllers, and the swap to the next one.

use std::{collections::BTreeSet, sync::Arc};

use innkeeper_model::{Limits, PluginName, Retry};
use innkeeper_reconcile::Serving;
use innkeeper_sandbox::Plugin;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info};

use super::{
    Manager, PluginState, accounts,
    active::{ActiveRevision, Passes},
    attempt::PARENT_TAKEN,
    dry_run::{candidate_without_dry_run, refusal},
    missing::{MissingParents, PARENT_NOT_SERVED},
};
use crate::{
    Error, Served,
    lifecycle::{Activation, Moment, PastRevision, Stage, StageFailure},
    priority::{Priority, TakenKind},
    resource::{Crds, Declared, Terms, revision_name},
};

/// A plugin whose passes are to run until `stop` is cancelled.
pub struct Start {
    /// The plugin.
    pub served: Arc<Served>,
    /// The limits of its passes.
    pub limits: Arc<Limits>,
    /// Lets no further pass begin; running passes end.
    pub stop: CancellationToken,
    /// Has to be dropped when no pass runs any more.
    pub ended: DropGuard,
}

impl Manager {
    /// Activates a revision under the declared terms, as the first one or in place of the active one.
    ///
    /// On failure the active revision stays active.
    pub(super) async fn serve(
        &self,
        declared: &Declared,
        state: &mut PluginState,
        plugin: Arc<Plugin>,
        activation: Activation,
    ) -> Result<(), StageFailure> {
        let Declared { name, terms, .. } = declared;
        if let Some(account) = &terms.service_account {
            accounts::check(self.cluster(), name, account).await?;
        }
        let serving = terms.serving(Arc::clone(&plugin));
        let limits = Arc::clone(&serving.limits);
        let kinds = serving.parent_kinds();
        if let Err(failure) = self.take(declared, state, &serving, &activation).await {
            let active = state.active.as_ref();
            let kept = active.map(|active| active.served.kinds());
            self.with_priorities(|all| all.release(name, &kept.unwrap_or_default()));
            return Err(failure);
        }

        let active = state.active.take();
        let is_new = active
            .as_ref()
            .is_none_or(|active| active.plugin.revision() != plugin.revision());
        if is_new {
            if active.is_some() {
                state.faults_before = None;
            }
            // Before the controllers: they put the revision on trial only if the history says that it is new.
            self.note(state, &plugin, &activation);
        }
        let since = active.as_ref().and_then(ActiveRevision::passes_since);
        let (served, passes) = self.controllers(declared, state, active, &serving).await;
        // Only now: passes for kinds that the new revision lacks have ended, so another plugin may have them.
        self.with_priorities(|all| all.release(name, &kinds));
        let passes = match passes {
            None if !terms.suspend => Some(self.start(&served, limits).await),
            passes => passes,
        };
        if is_new {
            let version = &plugin.manifest().version;
            let revision = revision_name(plugin.revision());
            info!(plugin = %name, version, revision, "serving plugin");
        } else {
            debug!(plugin = %name, "serving the plugin under other terms");
        }
        state.unserved.note(kinds, plugin.manifest());
        // The preparation has waited until all are served.
        state.missing = MissingParents::default();
        state.active = Some(ActiveRevision {
            plugin,
            terms: terms.clone(),
            accepted: terms.clone(),
            served,
            passes,
            since: since.filter(|_| !is_new).unwrap_or_else(Instant::now),
        });
        Ok(())
    }

    /// Puts the grants, limits, selected parents and suspension of a spec in force for the active revision, before
    /// anything is loaded for it.
    ///
    /// Without the required grants its passes end, but it can still be compared with the declared revision. The other
    /// terms have to be checked, so [`Manager::serve`] puts them in force.
    pub(super) async fn bind(&self, declared: &Declared, state: &mut PluginState) {
        let change = state.change;
        let Some(active) = &mut state.active else {
            return;
        };
        let terms = Terms {
            field_manager: active.terms.field_manager.clone(),
            service_account: active.terms.service_account.clone(),
            crds: active.terms.crds,
            ..declared.terms.clone()
        };
        if terms == active.terms {
            return;
        }
        let serving = terms.serving(Arc::clone(&active.plugin));
        active.swap(&serving, &terms, change).await;
        active.terms = terms;
        if !active.is_granted() {
            info!(plugin = %declared.name, "stopping the passes: the active revision lacks required grants");
            active.rest().await;
        } else if active.passes.is_none() && !active.terms.suspend {
            active.passes = Some(self.start(&active.served, serving.limits).await);
        }
    }

    /// Returns the controllers of a revision, and the passes that continue.
    ///
    /// The controllers of the active revision are kept if the kinds of parents stay.
    async fn controllers(
        &self,
        declared: &Declared,
        state: &PluginState,
        active: Option<ActiveRevision>,
        serving: &Serving,
    ) -> (Arc<Served>, Option<Passes>) {
        match active {
            Some(mut active) if active.served.kinds() == serving.parent_kinds() => {
                let is_same = active.plugin.revision() == serving.plugin.revision();
                if !is_same || active.terms != declared.terms {
                    active.swap(serving, &declared.terms, state.change).await;
                }
                (active.served, active.passes)
            }
            active => {
                // A parent has at most one pass at a time: the old ones end first.
                if let Some(mut active) = active {
                    active.rest().await;
                }
                let served = Served::new(&self.context.shared, &declared.name, serving);
                if state.history.is_on_trial() {
                    for reconciler in &served.reconcilers {
                        reconciler.restart_analysis();
                    }
                }
                (Arc::new(served), None)
            }
        }
    }

    /// Prepares a revision, and takes its kinds of parents.
    ///
    /// The kinds are asked for before the preparation, because a plugin that may not have them installs nothing, and
    /// again after it, because only a prepared plugin makes a younger one stop.
    async fn take(
        &self,
        declared: &Declared,
        state: &mut PluginState,
        serving: &Serving,
        activation: &Activation,
    ) -> Result<(), StageFailure> {
        let name = &declared.name;
        let kinds = serving.parent_kinds();
        let priority = Priority::Resource(declared.created);
        let take = |is_ready| {
            let taken = self.with_priorities(|all| all.take(name, priority, &kinds, is_ready));
            taken.map_err(|TakenKind { kind, by }| {
                let plugin = name.clone();
                not_served(&Error::ParentTaken { kind, by, plugin })
            })
        };
        take(false)?;
        self.prepare(declared, state, serving, activation).await?;
        self.record_parents(state, name, serving).await?;
        take(true)
    }

    /// Writes the activation of a revision into the history.
    fn note(&self, state: &mut PluginState, plugin: &Plugin, activation: &Activation) {
        let past = PastRevision::of(plugin);
        state.history.begin(&past, activation, self.moment(state));
    }

    fn moment(&self, state: &PluginState) -> Moment {
        Moment {
            now: (self.context.shared.now)(),
            generation: state.generation,
        }
    }

    /// Installs the definitions of a revision, and checks its dry run against the rollout limits.
    async fn prepare(
        &self,
        declared: &Declared,
        state: &mut PluginState,
        serving: &Serving,
        activation: &Activation,
    ) -> Result<(), StageFailure> {
        let Declared { name, terms, .. } = declared;
        let is_rollback = matches!(activation, Activation::RolledBack { .. });
        // The definitions of the faulty revision also fit the one before it, or they would not have been installed.
        let crds = if is_rollback {
            Crds::Ignore
        } else {
            terms.crds
        };
        let has_served = state.history.has_component(serving.plugin.digest());
        let shared = &self.context.shared;
        let installed = state
            .definitions
            .install(shared, name, serving, crds, has_served)
            .await;
        installed.map_err(|error| not_served(&error))?;
        let candidate = match &state.active {
            None => candidate_without_dry_run(declared, &state.history, serving),
            // Grants and limits bind at once.
            Some(active) if active.plugin.revision() == serving.plugin.revision() => return Ok(()),
            // It was good before, and the parents do not wait for a dry run while the active revision faults.
            Some(_) if is_rollback => return Ok(()),
            Some(active) => Some(self.dry_run(declared, active, serving).await?),
        };
        let refusal = candidate.as_ref().and_then(|it| refusal(&it.status));
        state.candidate = candidate.filter(|_| refusal.is_some());
        refusal.map_or(Ok(()), Err)
    }

    async fn start(&self, served: &Arc<Served>, limits: Arc<Limits>) -> Passes {
        let passes = Passes {
            stop: self.context.stop.child_token(),
            ended: CancellationToken::new(),
        };
        let start = Start {
            served: Arc::clone(served),
            limits,
            stop: passes.stop.clone(),
            ended: passes.ended.clone().drop_guard(),
        };
        // Fails only when the process ends and drops the receiver; then no pass is to run.
        drop(self.context.starts.send(start).await);
        passes
    }

    /// Ends all passes of a plugin, and releases its kinds of parents.
    pub(super) async fn stop(&self, name: &PluginName, state: &mut PluginState) {
        if let Some(mut active) = state.active.take() {
            active.rest().await;
            let moment = self.moment(state);
            state.history.end(moment);
        }
        self.with_priorities(|all| all.release(name, &BTreeSet::new()));
    }
}

fn not_served(error: &Error) -> StageFailure {
    let (reason, retry) = match error {
        // The priorities trigger a pass once the kind is free; the back-off is only a safety net.
        Error::ParentTaken { .. } => (PARENT_TAKEN, Retry::Backoff),
        Error::BeyondNamespaces { .. } => ("BeyondNamespaces", error.retry()),
        Error::CrdRefused { .. } => ("CrdRefused", error.retry()),
        Error::NotServed { .. } => (PARENT_NOT_SERVED, error.retry()),
        _ => ("CrdFailed", error.retry()),
    };
    StageFailure::of(Stage::Serving, reason, error, retry)
}
