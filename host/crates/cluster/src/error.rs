//! Errors of reads from the API server.

use innkeeper_model::{Blame, Gvk, Retry, error_chain};

use super::{stored::Malformed, wire::WireFailure};

/// A failed read from the API server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The cluster does not serve the kind.
    #[error("failed to read {kind} {name}: the cluster does not serve the kind")]
    NotServed {
        /// The kind.
        kind: Gvk,
        /// The object's name.
        name: String,
    },
    /// The request failed.
    #[error("failed to read {kind} {name}")]
    Read {
        /// The kind.
        kind: Gvk,
        /// The object's name.
        name: String,
        /// The failed request.
        #[source]
        source: WireFailure,
    },
    /// The object could not be read.
    #[error("failed to understand {kind} {name}")]
    Understand {
        /// The kind.
        kind: Gvk,
        /// The object's name.
        name: String,
        /// The defect of the object.
        #[source]
        source: Malformed,
    },
    /// Objects cannot be listed.
    #[error("failed to list {kind}")]
    List {
        /// The kind.
        kind: Gvk,
        /// The failed request.
        #[source]
        source: WireFailure,
    },
    /// Discovery failed.
    #[error("failed to learn which kinds the cluster serves")]
    Discover(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A task that keeps the cache up to date panicked.
    #[error("a task that reads the cluster died")]
    TaskDied(#[source] tokio::task::JoinError),
}

impl Error {
    /// Returns true if the API server denied the host the permission.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, Self::Read { source, .. } | Self::List { source, .. } if source.is_forbidden())
    }

    /// The error category in metrics and conditions.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::NotServed { .. } => "kind-not-served",
            Self::Read { .. } => "read-failed",
            Self::Understand { .. } => "object-malformed",
            Self::List { .. } => "list-failed",
            Self::Discover(_) => "discovery-failed",
            Self::TaskDied(_) => "task-died",
        }
    }

    /// The party that is at fault.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::NotServed { .. }
            | Self::Read { .. }
            | Self::Understand { .. }
            | Self::List { .. }
            | Self::Discover(_) => Blame::Cluster,
            Self::TaskDied(_) => Blame::Host,
        }
    }

    /// The time of the next attempt.
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Read {
                source:
                    WireFailure::Status {
                        retry_after: Some(after),
                        ..
                    },
                ..
            } => Retry::At(*after),
            Self::NotServed { .. }
            | Self::Read { .. }
            | Self::Understand { .. }
            | Self::List { .. }
            | Self::Discover(_) => Retry::Backoff,
            Self::TaskDied(_) => Retry::Never,
        }
    }
}

/// Formats an error with its sources.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    error_chain(error).to_string()
}
