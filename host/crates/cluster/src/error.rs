//! Errors of reads from the API server.

use innkeeper_model::Gvk;

use super::wire::WireFailure;

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
    /// The request failed, or its answer could not be read.
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
}
