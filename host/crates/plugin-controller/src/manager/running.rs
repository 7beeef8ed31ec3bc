//! The active revision of a Plugin with its passes. Owned by the state of the Plugin.

use std::sync::Arc;

use innkeeper_model::Limits;
use innkeeper_sandbox::Plugin;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Served, resource::Charter};

/// A plugin that serves, or is suspended.
pub(super) struct Running {
    pub(super) plugin: Arc<Plugin>,
    pub(super) charter: Charter,
    pub(super) served: Arc<Served>,
    /// None while it is suspended: its watches stay.
    pub(super) passes: Option<Passes>,
    /// Since when the revision has had its passes, or could have.
    pub(super) since: Instant,
}

/// Passes that run or may begin.
pub(super) struct Passes {
    pub(super) stop: CancellationToken,
    pub(super) ended: CancellationToken,
}

impl Running {
    /// Lets the passes that run end, and no other begin.
    pub(super) async fn rest(&mut self) {
        if let Some(Passes { stop, ended }) = self.passes.take() {
            stop.cancel();
            ended.cancelled().await;
        }
    }

    /// Since when the revision has had its passes; none if it has none.
    pub(super) fn passes_since(&self) -> Option<Instant> {
        self.passes.as_ref().map(|_| self.since)
    }

    /// Returns whether the running passes can continue under another charter.
    pub(super) fn may_go_on(&self, charter: &Charter) -> bool {
        let bounds = |limits: &Limits| (limits.concurrency_max, limits.passes_per_second_max);
        !charter.suspend && bounds(&self.charter.limits) == bounds(&charter.limits)
    }
}
