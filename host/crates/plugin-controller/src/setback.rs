//! Finished attempts of a Plugin: the last load, and revisions that could not become active.

use std::sync::Arc;

use innkeeper_model::{Digest, PluginReason};
use innkeeper_sandbox::Plugin;
use tokio::time::Instant;

use crate::{load::VerifiedComponent, resource::Declared, rollout::Candidate, stage::StageFailure};

/// An attempt to load a declaration.
pub(crate) struct LoadAttempt {
    pub(crate) declared: Declared,
    /// The component; also present if it rejects the configuration.
    pub(crate) component: Option<VerifiedComponent>,
    pub(crate) result: Result<Arc<Plugin>, StageFailure>,
    /// When the load ended; another configuration does not change it.
    pub(crate) at: Instant,
    /// When to retry; none: at a change to the declaration, or the next pull.
    pub(crate) retry_at: Option<Instant>,
}

impl LoadAttempt {
    /// Returns when the next attempt or pull is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        let pull_at = self.declared.pull_every.map(|every| self.at + every);
        self.retry_at.or(pull_at)
    }

    pub(crate) fn is_due(&self) -> bool {
        is_past(self.due())
    }

    /// Returns true if the attempt returned no component, and only a Plugin change leads to another one soon.
    pub(crate) fn waits_for_change(&self) -> bool {
        let Err(failure) = &self.result else {
            return false;
        };
        // The wait after a crash is long, and its message promises an attempt after any change.
        let is_blocked = self.retry_at.is_none() || failure.reason == PluginReason::HostEnded;
        // Only changed grants help against missing ones, see `is_stale_after_grant_change`.
        failure.reason != PluginReason::NotGranted && self.component.is_none() && is_blocked
    }

    /// Returns true if the attempt ended before compiling for missing grants, and the grants have changed.
    pub(crate) fn is_stale_after_grant_change(&self, declared: &Declared) -> bool {
        let lacked_grants =
            matches!(&self.result, Err(failure) if failure.reason == PluginReason::NotGranted);
        lacked_grants && self.declared.terms.grants != declared.terms.grants
    }

    pub(crate) fn plugin(&self) -> Option<&Arc<Plugin>> {
        self.result.as_ref().ok()
    }

    /// Returns the attempt's component if it has this digest.
    pub(crate) fn component(&self, digest: &Digest) -> Option<&VerifiedComponent> {
        self.component
            .as_ref()
            .filter(|component| component.digest() == digest)
    }
}

/// A revision that could not become active, or not under the declared terms.
pub(crate) enum Setback {
    /// It is declared.
    Refused {
        failure: StageFailure,
        /// When to retry; none: at a change to the declaration.
        retry_at: Option<Instant>,
        /// The dry run that was refused, if that is the reason.
        candidate: Option<Candidate>,
    },
    /// It was active before, and could not become active again.
    Lost {
        failure: StageFailure,
        /// When to retry; none: at a change to the declaration.
        retry_at: Option<Instant>,
    },
}

impl Setback {
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match self {
            Self::Refused { retry_at, .. } | Self::Lost { retry_at, .. } => *retry_at,
        }
    }

    pub(crate) fn is_due(&self) -> bool {
        is_past(self.retry_at())
    }

    /// Returns true if another plugin is active for one of the parent kinds.
    pub(crate) fn waits_for_kind(&self) -> bool {
        let (Self::Refused { failure, .. } | Self::Lost { failure, .. }) = self;
        failure.reason == PluginReason::ParentTaken
    }

    /// Returns a declared revision's failure.
    pub(crate) fn refusal(&self) -> Option<&StageFailure> {
        match self {
            Self::Refused { failure, .. } => Some(failure),
            Self::Lost { .. } => None,
        }
    }

    /// Returns the dry run that refused the revision.
    pub(crate) fn candidate(&self) -> Option<&Candidate> {
        match self {
            Self::Refused { candidate, .. } => candidate.as_ref(),
            Self::Lost { .. } => None,
        }
    }
}

fn is_past(time: Option<Instant>) -> bool {
    time.is_some_and(|time| time <= Instant::now())
}
