//! The activation of a revision: its definitions, kinds of parents and controllers, and the swap to the next one.

use std::{collections::BTreeSet, sync::Arc};

use innkeeper_model::{Limits, PluginName, Retry};
use innkeeper_reconcile::Serving;
use innkeeper_sandbox::Plugin;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, info};

use super::{
    Failed, Known, Manager, PARENT_TAKEN, accounts,
    rehearse::refusal,
    running::{Passes, Running},
};
use crate::{
    Error, Served, crds,
    lifecycle::{Beginning, Moment, Past, Stage},
    resource::{Charter, Crds, Declared, ServiceAccount, revision_name},
    rivals::{Rival, Seniority},
};

/// A plugin whose passes are to run until told to stop.
pub struct Start {
    /// The plugin.
    pub served: Arc<Served>,
    /// The limits of its passes.
    pub limits: Arc<Limits>,
    /// Lets the passes that run end, and no other begin.
    pub stop: CancellationToken,
    /// To be dropped when none runs any more.
    pub ended: DropGuard,
}

impl Manager {
    /// Activates a revision under the declared charter, as the first one or in place of the active one.
    ///
    /// On failure the active revision stays active.
    pub(super) async fn serve(
        &self,
        declared: &Declared,
        known: &mut Known,
        plugin: Arc<Plugin>,
        why: Beginning,
    ) -> Result<(), Failed> {
        let Declared { name, charter, .. } = declared;
        let serving = self.serving(declared, &plugin).await?;
        let limits = Arc::clone(&serving.limits);
        let kinds = plugin.manifest().parent_kinds();
        if let Err(failed) = self.take(declared, known, &serving, &why).await {
            let kept = known.running.as_ref();
            let kept = kept.map(|running| running.plugin.manifest().parent_kinds());
            self.among_rivals(|rivals| rivals.release(name, &kept.unwrap_or_default()));
            return Err(failed);
        }

        let running = known.running.take();
        let is_new = running
            .as_ref()
            .is_none_or(|running| running.plugin.revision() != plugin.revision());
        if is_new {
            if running.is_some() {
                known.left_serving = None;
            }
            self.note(known, &plugin, &why);
        }
        let since = running.as_ref().and_then(Running::passes_since);
        let (served, passes) = self.controllers(declared, known, running, &serving).await;
        self.among_rivals(|rivals| rivals.release(name, &kinds));
        let passes = match passes {
            None if !charter.suspend => Some(self.start(&served, limits).await),
            passes => passes,
        };
        if is_new {
            let version = &plugin.manifest().version;
            let revision = revision_name(plugin.revision());
            info!(plugin = %name, version, revision, "serving plugin");
        } else {
            debug!(plugin = %name, "serving plugin under another charter");
        }
        known.running = Some(Running {
            plugin,
            charter: charter.clone(),
            served,
            passes,
            since: since.filter(|_| !is_new).unwrap_or_else(Instant::now),
        });
        Ok(())
    }

    /// Returns the controllers of a revision, and the passes that continue.
    ///
    /// The controllers of the active revision are kept if the kinds of parents stay.
    async fn controllers(
        &self,
        declared: &Declared,
        known: &Known,
        running: Option<Running>,
        serving: &Serving,
    ) -> (Arc<Served>, Option<Passes>) {
        let kinds = serving.plugin.manifest().parent_kinds();
        match running {
            Some(mut running) if running.plugin.manifest().parent_kinds() == kinds => {
                if !running.may_go_on(&declared.charter) {
                    running.rest().await;
                }
                for reconciler in &running.served.reconcilers {
                    reconciler.swap(serving.clone(), known.change);
                }
                (running.served, running.passes)
            }
            running => {
                // A parent has at most one pass at a time: the old ones end first.
                if let Some(mut running) = running {
                    running.rest().await;
                }
                let served = Served::new(&self.parts.shared, &declared.name, serving);
                if known.history.is_on_trial() {
                    for reconciler in &served.reconcilers {
                        reconciler.put_on_trial();
                    }
                }
                (Arc::new(served), None)
            }
        }
    }

    /// Takes the kinds of parents of a revision that can serve.
    async fn take(
        &self,
        declared: &Declared,
        known: &mut Known,
        serving: &Serving,
        why: &Beginning,
    ) -> Result<(), Failed> {
        let name = &declared.name;
        let kinds = serving.plugin.manifest().parent_kinds();
        let seniority = Seniority::Plugin(known.created, name.clone());
        let taken = |Rival { kind, by }| {
            let plugin = name.clone();
            not_served(&Error::ParentTaken { kind, by, plugin })
        };
        self.among_rivals(|rivals| rivals.ask(&seniority, &kinds))
            .map_err(taken)?;
        self.prepare(declared, known, serving, why).await?;
        self.hold(known, name, &serving.plugin).await?;
        self.among_rivals(|rivals| rivals.insist(&seniority, &kinds))
            .map_err(taken)
    }

    /// A revision under the charter that is declared, if that can be kept.
    async fn serving(&self, declared: &Declared, plugin: &Arc<Plugin>) -> Result<Serving, Failed> {
        let Declared { name, charter, .. } = declared;
        if let Some(account) = &charter.service_account {
            accounts::check(self.cluster(), name, account).await?;
        }
        Ok(under(charter, Arc::clone(plugin)))
    }

    /// Writes into the history that a revision begins to serve.
    fn note(&self, known: &mut Known, plugin: &Plugin, why: &Beginning) {
        let past = Past {
            revision: plugin.revision().clone(),
            digest: plugin.digest().clone(),
            // It is made from such a map.
            config: serde_json::from_str(plugin.config()).unwrap_or_default(),
        };
        known.history.begin(&past, why, self.moment(known));
    }

    fn moment(&self, known: &Known) -> Moment {
        Moment {
            now: (self.parts.shared.now)(),
            generation: known.generation,
        }
    }

    /// Installs the definitions of a revision, and checks its dry run against the rollout limits.
    async fn prepare(
        &self,
        declared: &Declared,
        known: &mut Known,
        serving: &Serving,
        why: &Beginning,
    ) -> Result<(), Failed> {
        let Declared { name, charter, .. } = declared;
        let is_way_back = matches!(why, Beginning::RolledBack { .. });
        // The definitions of the revision that is left are good for the one before it, too, or would not be there.
        let crds = if is_way_back {
            Crds::Ignore
        } else {
            charter.crds
        };
        let installed = crds::install(&self.parts.shared, name, serving, crds).await;
        installed.map_err(|error| not_served(&error))?;
        let Some(running) = &known.running else {
            let candidate = Self::check_unrehearsed(declared, known, serving);
            let refusal = candidate.as_ref().and_then(refusal);
            known.candidate = candidate.filter(|_| refusal.is_some());
            return refusal.map_or(Ok(()), Err);
        };
        // Grants and limits bind at once.
        if running.plugin.revision() == serving.plugin.revision() {
            return Ok(());
        }
        // It was good before, and parents must not wait for a dry run without passes.
        if is_way_back {
            return Ok(());
        }
        let candidate = self.rehearse(declared, running, serving).await?;
        let refusal = refusal(&candidate);
        known.candidate = refusal.is_some().then_some(candidate);
        refusal.map_or(Ok(()), Err)
    }

    async fn start(&self, served: &Arc<Served>, limits: Arc<Limits>) -> Passes {
        let passes = Passes {
            stop: self.parts.stop.child_token(),
            ended: CancellationToken::new(),
        };
        let start = Start {
            served: Arc::clone(served),
            limits,
            stop: passes.stop.clone(),
            ended: passes.ended.clone().drop_guard(),
        };
        // The receiver is gone only when the process ends, and then no pass runs.
        drop(self.parts.starts.send(start).await);
        passes
    }

    /// Ends all passes of a plugin, and lets others have its kinds of parents.
    pub(super) async fn stop(&self, name: &PluginName, known: &mut Known) {
        if let Some(mut running) = known.running.take() {
            running.rest().await;
            let moment = self.moment(known);
            known.history.end(moment);
        }
        self.among_rivals(|rivals| rivals.release(name, &BTreeSet::new()));
    }
}

/// A revision under a charter.
pub(super) fn under(charter: &Charter, plugin: Arc<Plugin>) -> Serving {
    let limits = Arc::new(charter.limits.clone());
    let grants = Arc::new(charter.grants.clone());
    let account = charter.service_account.as_ref();
    Serving::new(plugin, grants, limits)
        .applying_as(&charter.field_manager)
        .selecting(charter.parents.clone())
        .acting_as(account.map(ServiceAccount::user))
}

fn not_served(error: &Error) -> Failed {
    let (reason, retry) = match error {
        // The other one may go.
        Error::ParentTaken { .. } => (PARENT_TAKEN, Retry::Backoff),
        Error::BeyondNamespaces { .. } => ("BeyondNamespaces", error.retry()),
        Error::CrdRefused { .. } => ("CrdRefused", error.retry()),
        Error::NotServed { .. } => ("ParentNotServed", error.retry()),
        _ => ("CrdFailed", error.retry()),
    };
    Failed::of(Stage::Serving, reason, error, retry)
}
