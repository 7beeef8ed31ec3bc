//! The attempts of a Plugin that have ended: the last load, and the revisions that could not become active.

use std::sync::Arc;

use innkeeper_sandbox::Plugin;
use tokio::time::Instant;

use super::{
    load::{NOT_GRANTED, VerifiedComponent},
    marker::HOST_ENDED,
};
use crate::{lifecycle::StageFailure, resource::Declared};

/// The reason while another plugin is active for the same kind of parents.
pub(super) const PARENT_TAKEN: &str = "ParentTaken";

/// An attempt to load a declaration.
pub(super) struct LoadAttempt {
    pub(super) declared: Declared,
    /// The component; also present if it does not accept its configuration.
    pub(super) component: Option<VerifiedComponent>,
    pub(super) result: Result<Arc<Plugin>, StageFailure>,
    pub(super) at: Instant,
    /// The time of the next attempt; none: at a change of the declaration, or the next pull.
    pub(super) retry_at: Option<Instant>,
}

impl LoadAttempt {
    /// Returns the time of the next attempt or pull.
    pub(super) fn due(&self) -> Option<Instant> {
        let pull_at = self.declared.pull_every.map(|every| self.at + every);
        self.retry_at.or(pull_at)
    }

    pub(super) fn is_due(&self) -> bool {
        is_past(self.due())
    }

    /// Returns true if the attempt brought no component, and only a change of the Plugin leads to another one before a long
    /// wait. Only a change of grants can fix missing grants.
    pub(super) fn waits_for_change(&self) -> bool {
        let Err(failure) = &self.result else {
            return false;
        };
        let is_blocked = self.retry_at.is_none() || failure.reason == HOST_ENDED;
        failure.reason != NOT_GRANTED && self.component.is_none() && is_blocked
    }

    /// Returns true if the attempt ended before compiling for lack of grants, and the grants have changed.
    pub(super) fn is_outgrown(&self, declared: &Declared) -> bool {
        let lacked_grants = matches!(&self.result, Err(failure) if failure.reason == NOT_GRANTED);
        lacked_grants && self.declared.terms.grants != declared.terms.grants
    }

    pub(super) fn plugin(&self) -> Option<&Arc<Plugin>> {
        self.result.as_ref().ok()
    }
}

/// A revision that is not active, or not under the declared terms, and the reason.
pub(super) struct RefusedRevision {
    pub(super) failure: StageFailure,
    pub(super) retry_at: Option<Instant>,
}

impl RefusedRevision {
    /// Returns true if another plugin is active for one of its kinds of parents.
    pub(super) fn waits_for_kind(&self) -> bool {
        self.failure.reason == PARENT_TAKEN
    }
}

pub(super) fn is_past(time: Option<Instant>) -> bool {
    time.is_some_and(|time| time <= Instant::now())
}
