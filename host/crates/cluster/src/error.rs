//! Errors from reads of the API server.

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
    /// The request failed, or the answer is unreadable.
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
    /// The host's account lacks a permission.
    #[error(
        "failed to read {kind} {name}: the host is not allowed to, apply the roles of its chart, and those of the plugin that `innkeeper manifests` prints"
    )]
    Forbidden {
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
    /// A caller cannot be reviewed.
    #[error(
        "failed to create a {kind}: check that the API server answers, and apply the roles in the host's chart"
    )]
    Review {
        /// The kind of review.
        kind: &'static str,
        /// The failed request.
        #[source]
        source: WireFailure,
    },
    /// Discovery failed.
    #[error("failed to discover which kinds the cluster serves")]
    Discover(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A task that keeps the cache up to date panicked.
    #[error("a task that reads the cluster panicked")]
    TaskDied(#[source] tokio::task::JoinError),
}

impl Error {
    /// Creates the error for an object that could not be read.
    pub(super) fn for_read(kind: &Gvk, name: &str, source: WireFailure) -> Self {
        let kind = kind.clone();
        let name = name.to_owned();
        match source {
            WireFailure::Status { code: 403, .. } => Self::Forbidden { kind, name, source },
            source => Self::Read { kind, name, source },
        }
    }

    /// Returns true if the API server denied the host access.
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::Forbidden { .. } => true,
            Self::Read { source, .. } | Self::List { source, .. } => source.is_forbidden(),
            _ => false,
        }
    }
}
