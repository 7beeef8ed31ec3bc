//! The active revision of a Plugin with its passes.

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

/// A revision that is active or suspended.
pub(crate) struct ActivePlugin {
    pub(crate) plugin: Arc<Plugin>,
    /// The terms in force.
    pub(crate) terms: Terms,
    /// The declared terms under which it was activated last.
    pub(crate) accepted: Terms,
    pub(crate) served: Arc<PluginControllers>,
    /// None while it is suspended or lacks required grants; its watches stay.
    pub(crate) passes: Option<Passes>,
    /// The time since which passes of the revision may begin.
    pub(crate) since: Instant,
}

/// Passes that run or may begin.
pub(crate) struct Passes {
    pub(crate) stop: CancellationToken,
    pub(crate) ended: CancellationToken,
}

impl ActivePlugin {
    /// Returns the name of the revision.
    pub(crate) fn name(&self) -> String {
        revision_name(self.plugin.revision())
    }

    /// Returns true if it has the grants that it requires, and those of all kinds of parents that have passes.
    pub(crate) fn is_granted(&self) -> bool {
        let grants = &self.terms.grants;
        self.terms.assess(self.plugin.manifest()).serves()
            && self
                .served
                .kinds()
                .iter()
                .all(|kind| grants.allows_parent(kind))
    }

    /// Lets no further pass begin, and waits until the running ones have ended.
    pub(crate) async fn rest(&mut self) {
        if let Some(Passes { stop, ended }) = self.passes.take() {
            stop.cancel();
            ended.cancelled().await;
        }
    }

    /// Swaps all its controllers to a revision under these terms. The passes end if they cannot continue under them.
    pub(crate) async fn swap(
        &mut self,
        serving: &Revision,
        terms: &Terms,
        change: Option<Instant>,
    ) {
        if !self.continues_under(terms) {
            self.rest().await;
        }
        for reconciler in &self.served.reconcilers {
            reconciler.swap(serving.clone(), change);
        }
    }

    /// Returns the time since which passes of the revision may begin; none while it is suspended.
    pub(crate) fn passes_since(&self) -> Option<Instant> {
        self.passes.as_ref().map(|_| self.since)
    }

    /// Returns true if the controllers can continue under other terms.
    ///
    /// They are started with the number of concurrent passes and the rate of passes; everything else is swapped.
    fn continues_under(&self, terms: &Terms) -> bool {
        let bounds = |limits: &Limits| (limits.concurrency_max, limits.passes_per_second_max);
        !terms.suspend && bounds(&self.terms.limits) == bounds(&terms.limits)
    }
}
