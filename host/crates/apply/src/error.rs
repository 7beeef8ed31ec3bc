//! What can become of a write, from the API server's answers.

use std::{error::Error as StdError, io, time::Duration};

use http::{StatusCode, header::RETRY_AFTER, response::Parts};
use innkeeper_model::{Blame, Retry, causes, reason};
use innkeeper_plan::Failure;
use kube::core::Status;

use super::request::Verb;

/// How long to wait when the API server asks for a pause without saying how long.
const PAUSE_DEFAULT: Duration = Duration::from_secs(1);

/// The longest pause that is taken from an answer.
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// What the API server said when it refused a write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The HTTP status.
    pub code: u16,
    /// The API server's own words.
    pub message: String,
}

/// Why a write was not done, or is not known to be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object of the name exists, where one was to be created.
    #[error("failed to {what}: it exists")]
    Exists {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// The object is not any more what was observed: observe again.
    #[error("failed to {what}: it has changed since it was observed")]
    Conflict {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// The object is gone: observe again.
    #[error("failed to {what}: it is gone")]
    Gone {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// The host's account may not do this.
    #[error(
        "failed to {what}: the host is not allowed to, see `innkeeper manifests` for the permissions that it needs"
    )]
    Forbidden {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// A quota, a webhook or an admission policy does not let it through.
    #[error("failed to {what}: the cluster's admission denied it")]
    Denied {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// The namespace is being deleted; nothing can be created in it any more, and nothing has to be.
    #[error("failed to {what}: its namespace is being deleted")]
    NamespaceTerminating {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// The namespace does not exist.
    #[error("failed to {what}: its namespace does not exist")]
    NamespaceMissing {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// The object breaks the rules of its kind.
    #[error("failed to {what}: the API server rejected it")]
    Rejected {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// The object is larger than the API server takes.
    #[error("failed to {what}: it is too large")]
    TooLarge {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// The cluster does not serve the kind any more.
    #[error("failed to {what}: the cluster does not serve its kind")]
    NotServed {
        /// The write.
        what: String,
    },
    /// The API server asks for a pause.
    #[error("failed to {what}: the API server asks for a pause of {retry_after:?}")]
    Throttled {
        /// The write.
        what: String,
        /// How long to wait.
        retry_after: Duration,
        /// The API server's answer.
        source: Refused,
    },
    /// The API server failed; the write was not done.
    #[error("failed to {what}: the API server failed")]
    Unavailable {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// The API server gave up on the write, which may have been done.
    #[error("failed to learn what became of the attempt to {what}")]
    GaveUp {
        /// The write.
        what: String,
        /// The API server's answer.
        source: Refused,
    },
    /// There was no connection; the write was not done.
    #[error("failed to {what}: no connection to the API server")]
    Unreachable {
        /// The write.
        what: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// The connection broke after the write was sent, which may have been done.
    #[error("failed to learn what became of the attempt to {what}: the connection broke")]
    Lost {
        /// The write.
        what: String,
        /// Why.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer came in time; the write may have been done.
    #[error("failed to learn what became of the attempt to {what}: no answer within {deadline:?}")]
    TimedOut {
        /// The write.
        what: String,
        /// How long was waited.
        deadline: Duration,
    },
    /// Too many writes were under way; this one was not sent.
    #[error("failed to {what}: its turn did not come within {deadline:?}")]
    NoTurn {
        /// The write.
        what: String,
        /// How long was waited.
        deadline: Duration,
    },
    /// Another process may write instead of this one; the write was not sent.
    #[error("failed to {what}: this process does not hold the lease")]
    NoClaim {
        /// The write.
        what: String,
    },
    /// The claim to write ended before the answer came; the write may have been done.
    #[error("failed to learn what became of the attempt to {what}: this process lost the lease")]
    CutOff {
        /// The write.
        what: String,
    },
    /// The API server answered with something else than an object; the write may have been done.
    #[error("failed to read the API server's answer to the attempt to {what}")]
    Unreadable {
        /// The write.
        what: String,
        /// Why.
        #[source]
        source: Box<dyn StdError + Send + Sync>,
    },
    /// The request cannot be written down.
    #[error("failed to {what}: it cannot be put into a request")]
    Unbuildable {
        /// The write.
        what: String,
        /// Why.
        #[source]
        source: Box<kube::core::request::Error>,
    },
}

impl Error {
    /// A word for metrics and logs.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Exists { .. } => "Exists",
            Self::Conflict { .. } => "Conflict",
            Self::Gone { .. } => "Gone",
            Self::Forbidden { .. } => "Forbidden",
            Self::Denied { .. } => "Denied",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::NamespaceMissing { .. } => "NamespaceMissing",
            Self::Rejected { .. } => "Rejected",
            Self::TooLarge { .. } => "TooLarge",
            Self::NotServed { .. } => "NotServed",
            Self::Throttled { .. } => "Throttled",
            Self::Unavailable { .. } | Self::Unreachable { .. } | Self::NoTurn { .. } => {
                "Unavailable"
            }
            Self::NoClaim { .. } => "NoClaim",
            Self::GaveUp { .. }
            | Self::Lost { .. }
            | Self::TimedOut { .. }
            | Self::CutOff { .. }
            | Self::Unreadable { .. } => "Ambiguous",
            Self::Unbuildable { .. } => "Unbuildable",
        }
    }

    /// Whose fault it is.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Rejected { .. } | Self::TooLarge { .. } | Self::Unbuildable { .. } => {
                Blame::Guest
            }
            Self::NamespaceMissing { .. } | Self::Exists { .. } => Blame::Parent,
            _ => Blame::Cluster,
        }
    }

    /// When to try again.
    ///
    /// What the API server rejects it rejects again, until something about the answer or the object changes.
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Rejected { .. } | Self::TooLarge { .. } | Self::Unbuildable { .. } => {
                Retry::OnChange
            }
            Self::NamespaceTerminating { .. } => Retry::Never,
            Self::Throttled { retry_after, .. } => Retry::At(*retry_after),
            _ => Retry::Backoff,
        }
    }

    /// Whether there is nothing to report: the world has moved on, and the next pass sees it, or it is another
    /// process's to report.
    pub const fn is_silent(&self) -> bool {
        matches!(
            self,
            Self::Conflict { .. }
                | Self::Gone { .. }
                | Self::NamespaceTerminating { .. }
                | Self::NoClaim { .. }
                | Self::CutOff { .. }
        )
    }

    /// Whether the object is not any more what was observed.
    pub const fn is_stale(&self) -> bool {
        matches!(self, Self::Conflict { .. } | Self::Gone { .. })
    }

    /// Whether the write may have been done all the same.
    pub const fn is_ambiguous(&self) -> bool {
        matches!(
            self,
            Self::GaveUp { .. }
                | Self::Lost { .. }
                | Self::TimedOut { .. }
                | Self::CutOff { .. }
                | Self::Unreadable { .. }
        )
    }

    /// Whether the API server will not have what was written, whoever writes it.
    pub const fn is_rejection(&self) -> bool {
        matches!(
            self,
            Self::Rejected { .. }
                | Self::TooLarge { .. }
                | Self::Denied { .. }
                | Self::Unbuildable { .. }
        )
    }

    /// The failure as the plan's conclusion takes it.
    pub fn failure(&self) -> Failure {
        let reason = match self {
            Self::Rejected { .. } | Self::TooLarge { .. } | Self::Unbuildable { .. } => {
                reason::CHILD_REJECTED
            }
            Self::Throttled { .. } => reason::THROTTLED,
            _ => reason::APPLY_FAILED,
        };
        Failure {
            reason,
            message: innkeeper_model::error_chain(self).to_string(),
            retry: self.retry(),
        }
    }
}

/// The error for an answer that is not a success.
pub(super) fn refused(verb: Verb, what: String, parts: &Parts, body: &[u8]) -> Error {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    let message = if status.message.is_empty() {
        String::from_utf8_lossy(body).chars().take(256).collect()
    } else {
        status.message.clone()
    };
    let source = Refused {
        code: parts.status.as_u16(),
        message,
    };
    let asked = retry_after(parts, &status);
    match parts.status {
        StatusCode::CONFLICT => conflict(verb, what, &status, source),
        StatusCode::NOT_FOUND => not_found(verb, what, &status, source),
        StatusCode::UNPROCESSABLE_ENTITY if names_another(verb, &status) => {
            Error::Conflict { what, source }
        }
        StatusCode::UNAUTHORIZED => Error::Forbidden { what, source },
        StatusCode::FORBIDDEN => forbidden(what, &status, source),
        StatusCode::PAYLOAD_TOO_LARGE => Error::TooLarge { what, source },
        StatusCode::TOO_MANY_REQUESTS => Error::Throttled {
            what,
            retry_after: asked.unwrap_or(PAUSE_DEFAULT),
            source,
        },
        StatusCode::SERVICE_UNAVAILABLE => match asked {
            Some(retry_after) => Error::Throttled {
                what,
                retry_after,
                source,
            },
            None => Error::Unavailable { what, source },
        },
        StatusCode::GATEWAY_TIMEOUT => Error::GaveUp { what, source },
        _ if source.message.contains("request is too large") => Error::TooLarge { what, source },
        // A patch that does not fit the kind's schema is the guest's doing, whatever the code says.
        _ if source
            .message
            .contains("failed to create typed patch object") =>
        {
            Error::Rejected { what, source }
        }
        code if code.is_client_error() && is_denial(&source.message) => {
            Error::Denied { what, source }
        }
        code if code.is_client_error() => Error::Rejected { what, source },
        _ => Error::Unavailable { what, source },
    }
}

/// The error for an exchange that did not come to an end.
pub(super) fn broken(what: String, source: kube::Error) -> Error {
    let source = Box::new(source);
    if never_connected(&*source) {
        Error::Unreachable { what, source }
    } else {
        Error::Lost { what, source }
    }
}

/// Whether the connection was never made, so that nothing can have been sent.
fn never_connected(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|error| {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        matches!(
            kind,
            Some(
                io::ErrorKind::ConnectionRefused
                    | io::ErrorKind::HostUnreachable
                    | io::ErrorKind::NetworkUnreachable
                    | io::ErrorKind::AddrNotAvailable
            )
        )
    })
}

fn retry_after(parts: &Parts, status: &Status) -> Option<Duration> {
    let header = parts.headers.get(RETRY_AFTER);
    let from_header = header.and_then(|value| value.to_str().ok()?.parse().ok());
    let details = status.details.as_ref();
    let from_body = details.map(|details| u64::from(details.retry_after_seconds));
    let seconds = from_header.or_else(|| from_body.filter(|seconds| *seconds > 0))?;
    Some(Duration::from_secs(seconds).min(PAUSE_MAX))
}

fn kind(status: &Status) -> &str {
    status.details.as_ref().map_or("", |details| &details.kind)
}

fn conflict(verb: Verb, what: String, status: &Status, source: Refused) -> Error {
    // A quota that two requests change at once answers 409, too, with its own kind.
    if verb == Verb::Create && kind(status) != "resourcequotas" {
        Error::Exists { what, source }
    } else {
        Error::Conflict { what, source }
    }
}

fn not_found(verb: Verb, what: String, status: &Status, source: Refused) -> Error {
    if kind(status) == "namespaces" {
        Error::NamespaceMissing { what, source }
    } else if matches!(verb, Verb::Create | Verb::Apply) {
        Error::NotServed { what }
    } else {
        Error::Gone { what, source }
    }
}

/// Whether a 422 says that the object is another than was observed: a test of a JSON patch failed, or the UID differs.
fn names_another(verb: Verb, status: &Status) -> bool {
    let causes = status
        .details
        .as_ref()
        .map_or(&[][..], |details| &details.causes);
    match verb {
        Verb::JsonPatch => {
            causes.iter().any(|cause| {
                cause.message.contains("testing value") || cause.message.contains("test failed")
            }) || status
                .message
                .contains("the server rejected our request due to an error in our request")
        }
        Verb::Update | Verb::Status => causes.iter().any(|cause| cause.field == "metadata.uid"),
        Verb::Create | Verb::Apply | Verb::Delete => false,
    }
}

fn forbidden(what: String, status: &Status, source: Refused) -> Error {
    let terminating = status.details.iter().flat_map(|details| &details.causes);
    if terminating
        .into_iter()
        .any(|cause| cause.reason == "NamespaceTerminating")
    {
        return Error::NamespaceTerminating { what, source };
    }
    // Only the authorizer speaks of what an account cannot do.
    let authorizer = source.message.contains(" cannot ") && source.message.contains(" resource ");
    if authorizer && !is_denial(&source.message) {
        Error::Forbidden { what, source }
    } else {
        Error::Denied { what, source }
    }
}

fn is_denial(message: &str) -> bool {
    [
        "denied the request",
        "denied request",
        "exceeded quota",
        "violates PodSecurity",
    ]
    .iter()
    .any(|words| message.contains(words))
}
