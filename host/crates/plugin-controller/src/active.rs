//! A Plugin's active revision and passes.

use std::sync::Arc;

use innkeeper_model::Limits;
use innkeeper_reconcile::Revision;
use innkeeper_sandbox::Plugin;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    PluginControllers,
    resource::{Terms, revision_name},
};

/// An active or suspended revision.
pub(crate) struct ActivePlugin {
    pub(crate) plugin: Arc<Plugin>,
    /// The current terms.
    pub(crate) terms: Terms,
    /// The declared terms at the last activation.
    pub(crate) accepted: Terms,
    pub(crate) served: Arc<PluginControllers>,
    /// None while suspended or without required grants; the watches stay open.
    pub(crate) passes: Option<Passes>,
    /// The earliest time at which a pass of this revision began.
    pub(crate) since: Instant,
}

/// Passes that run or may begin.
pub(crate) struct Passes {
    pub(crate) stop: CancellationToken,
    pub(crate) ended: CancellationToken,
}

impl ActivePlugin {
    /// Returns the revision name.
    pub(crate) fn name(&self) -> String {
        revision_name(self.plugin.revision())
    }

    /// Returns true if the required grants, and those for every parent kind with passes, are present.
    pub(crate) fn is_granted(&self) -> bool {
        let grants = &self.terms.grants;
        self.terms.assess(self.plugin.manifest()).serves()
            && self
                .served
                .kinds()
                .iter()
                .all(|kind| grants.allows_parent(kind))
    }

    /// Prevents new passes, and waits for running ones.
    pub(crate) async fn drain(&mut self) {
        if let Some(Passes { stop, ended }) = self.passes.take() {
            stop.cancel();
            ended.cancelled().await;
        }
    }

    /// Swaps all controllers to a revision under these terms. Ends the passes if they cannot continue under them.
    pub(crate) async fn swap(
        &mut self,
        serving: &Revision,
        terms: &Terms,
        change: Option<Instant>,
    ) {
        if !self.continues_under(terms) {
            self.drain().await;
        }
        for reconciler in &self.served.reconcilers {
            reconciler.swap(serving.clone(), change);
        }
    }

    /// Returns the earliest time at which a pass of this revision began; none while it is suspended.
    pub(crate) fn passes_since(&self) -> Option<Instant> {
        self.passes.as_ref().map(|_| self.since)
    }

    /// Returns true if the controllers can continue under other terms.
    fn continues_under(&self, terms: &Terms) -> bool {
        // A controller fixes these when it starts; a swap replaces all other terms.
        let bounds = |limits: &Limits| (limits.concurrency_max, limits.passes_per_second_max);
        !terms.suspend && bounds(&self.terms.limits) == bounds(&terms.limits)
    }
}
