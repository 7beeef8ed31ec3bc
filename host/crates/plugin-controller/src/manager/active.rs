//! The active revision of a Plugin with its passes.

use std::sync::Arc;

use innkeeper_model::Limits;
use innkeeper_sandbox::Plugin;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    Served,
    resource::{Terms, revision_name},
};

/// A revision that is active or suspended.
pub(super) struct ActiveRevision {
    pub(super) plugin: Arc<Plugin>,
    pub(super) terms: Terms,
    pub(super) served: Arc<Served>,
    /// None while it is suspended; its watches stay.
    pub(super) passes: Option<Passes>,
    /// The time since which passes of the revision may begin.
    pub(super) since: Instant,
}

/// Passes that run or may begin.
pub(super) struct Passes {
    pub(super) stop: CancellationToken,
    pub(super) ended: CancellationToken,
}

impl ActiveRevision {
    /// Returns the name of the revision.
    pub(super) fn name(&self) -> String {
        revision_name(self.plugin.revision())
    }

    /// Lets no further pass begin, and waits until the running ones have ended.
    pub(super) async fn rest(&mut self) {
        if let Some(Passes { stop, ended }) = self.passes.take() {
            stop.cancel();
            ended.cancelled().await;
        }
    }

    /// Returns the time since which passes of the revision may begin; none while it is suspended.
    pub(super) fn passes_since(&self) -> Option<Instant> {
        self.passes.as_ref().map(|_| self.since)
    }

    /// Returns true if the controllers can continue under other terms.
    ///
    /// They are started with the number of concurrent passes and the rate of passes; everything else is swapped.
    pub(super) fn continues_under(&self, terms: &Terms) -> bool {
        let bounds = |limits: &Limits| (limits.concurrency_max, limits.passes_per_second_max);
        !terms.suspend && bounds(&self.terms.limits) == bounds(&terms.limits)
    }
}
