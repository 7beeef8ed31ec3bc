//! Failed requests, and what they mean for a watch.

use std::time::Duration;

use kube::core::Status;

use crate::{machine::StepFailure, stored::Malformed};

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum WireFailure {
    /// The request could not be sent, or got no response.
    #[error("failed to reach the API server")]
    Transport(#[source] kube::Error),
    /// The request could not be built.
    #[error("failed to build a request")]
    Build(#[from] kube::core::request::Error),
    /// The deadline passed.
    #[error("the API server did not answer within {0:?}")]
    Timeout(Duration),
    /// The API server returned an error status.
    #[error("the API server answered {code}: {message}")]
    Status {
        /// The HTTP status.
        code: u16,
        /// The API server's message.
        message: String,
        /// The requested pause.
        retry_after: Option<Duration>,
    },
    /// The response is larger than the limit.
    #[error("the API server sent more than {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The response is unreadable.
    #[error("failed to read the API server's response")]
    Malformed(#[from] Malformed),
}

impl WireFailure {
    /// Creates the failure for a status; the pause in a header counts more than the one in the body.
    pub(super) fn from_status(code: u16, in_header: Option<u32>, status: Status) -> Self {
        let in_body = status.details.map(|details| details.retry_after_seconds);
        let seconds = in_header.or_else(|| in_body.filter(|seconds| *seconds > 0));
        Self::Status {
            code,
            message: status.message,
            retry_after: seconds.map(|seconds| Duration::from_secs(seconds.into())),
        }
    }

    /// Returns true if the API server has just started to serve the kind and is not ready.
    pub(crate) fn is_initializing(&self) -> bool {
        // Only the text tells: a refusal by priority and fairness has the same code and reason, TooManyRequests. The
        // API server's watch cache returns "storage is (re)initializing" until it has listed a kind
        // (k8s.io/apiserver/pkg/storage/cacher/ready.go). If the text changes, the log gets one more warning.
        matches!(self, Self::Status { code: 429, message, .. } if message.contains("initializing"))
    }

    /// What the failure means for a watch.
    pub(crate) const fn meaning(&self) -> StepFailure {
        match self {
            Self::Status { code: 410, .. } => StepFailure::Gone,
            // The API server waits 3 s for its cache to reach the requested version, and then gives up.
            Self::Status { code: 504, .. } => StepFailure::Behind,
            Self::Status {
                code: 401 | 403 | 404 | 405,
                ..
            } => StepFailure::Refused,
            Self::Status {
                retry_after: Some(after),
                ..
            } => StepFailure::Throttled(*after),
            Self::Malformed(_) | Self::TooLarge { .. } => StepFailure::Unreadable,
            _ => StepFailure::Broken,
        }
    }

    /// Returns true if the object or the kind does not exist.
    pub(crate) const fn is_not_found(&self) -> bool {
        matches!(self, Self::Status { code: 404, .. })
    }

    /// Returns true if the API server does not accept the credentials.
    pub(crate) const fn is_unauthorized(&self) -> bool {
        matches!(self, Self::Status { code: 401, .. })
    }

    /// Returns true if the API server denied access.
    pub(crate) const fn is_forbidden(&self) -> bool {
        matches!(
            self,
            Self::Status {
                code: 401 | 403,
                ..
            }
        )
    }
}

impl From<serde_json::Error> for WireFailure {
    fn from(error: serde_json::Error) -> Self {
        Self::Malformed(Malformed::Parse(error))
    }
}
