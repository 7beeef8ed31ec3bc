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
    /// The account of the host lacks a permission.
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
    /// A caller of the host cannot be reviewed.
    #[error(
        "failed to create a {kind}: check that the API server answers, and apply the roles of the host's chart"
    )]
    Review {
        /// The kind of the review.
        kind: &'static str,
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
    /// Returns the error of a failed read of an object.
    pub(super) fn of_read(kind: &Gvk, name: &str, source: WireFailure) -> Self {
        let (kind, name) = (kind.clone(), name.to_owned());
        match source {
            WireFailure::Status { code: 403, .. } => Self::Forbidden { kind, name, source },
            source => Self::Read { kind, name, source },
        }
    }

    /// Returns true if the API server denied the host the permission.
    pub fn is_forbidden(&self) -> bool {
        match self {
            Self::Forbidden { .. } => true,
            Self::Read { source, .. } | Self::List { source, .. } => source.is_forbidden(),
            _ => false,
        }
    }
}
