//! Write failures, from the API server's answers.

use std::{error::Error as StdError, io, time::Duration};

use http::{StatusCode, header::RETRY_AFTER, response::Parts};
use innkeeper_model::{Object, Retry, causes, error_chain, reason};
use innkeeper_plan::{WriteFailure, finalizer_refused, unfinalizable};
use kube::core::Status;

use super::request::Verb;

/// The pause if the API server asks for one without a duration: as long as the usual `Retry-After`.
const PAUSE_DEFAULT: Duration = Duration::from_secs(1);

/// The longest pause that is accepted from an answer: a wrong header must not stop the host for hours. The API server
/// itself asks for seconds.
const PAUSE_MAX: Duration = Duration::from_mins(5);

/// The category for failures after which the API server may have done the write.
const AMBIGUOUS: &str = "Ambiguous";

/// The API server's answer to a refused write.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refused {
    /// The HTTP status.
    pub code: u16,
    /// The API server's own words.
    pub message: String,
}

/// A write that failed, or whose result is unknown.
#[derive(Debug, thiserror::Error)]
#[error("{}", kind.message(what))]
pub struct Error {
    /// The write, as it reads after "failed to".
    pub what: String,
    /// The failure.
    pub kind: ErrorKind,
    /// The API server's answer, or the connection's error; none if the write was not sent or not answered.
    pub source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The possible write failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// An object with this name exists already.
    Exists,
    /// The object changed since it was observed.
    Conflict,
    /// The object was deleted since it was observed.
    Gone,
    /// The host's account lacks a permission.
    Forbidden,
    /// A quota, a webhook or an admission policy denied the write.
    Denied,
    /// The namespace is being deleted. Nothing can be created in it, and nothing has to be.
    NamespaceTerminating,
    /// The namespace does not exist.
    NamespaceMissing,
    /// The object breaks the kind's rules.
    Rejected,
    /// The answer lacks metadata that the host has written.
    MetadataLost,
    /// The object exceeds the API server's size limit.
    TooLarge,
    /// The cluster does not serve the kind.
    NotServed,
    /// The API server asks for a pause.
    Throttled {
        /// The pause.
        retry_after: Duration,
    },
    /// The API server failed before it did the write.
    Unavailable,
    /// The API server timed out; it may have done the write.
    GaveUp,
    /// No connection was made, so the write was not sent.
    Unreachable,
    /// The connection broke after the write was sent; the API server may have done it.
    Lost,
    /// No answer came in time; the API server may have done the write.
    TimedOut {
        /// The time limit.
        deadline: Duration,
    },
    /// Too many writes were in flight, so this one was not sent.
    NoPermit {
        /// The time limit.
        deadline: Duration,
    },
    /// The process does not hold the lease, so the write was not sent.
    NoClaim,
    /// The process lost the lease before the answer came; the API server may have done the write.
    CutOff,
    /// The answer is not an object; the API server may have done the write.
    Unreadable,
    /// The write cannot be encoded as a request.
    Unbuildable,
}

impl ErrorKind {
    /// Returns the error for a write without an answer.
    pub(super) const fn without_source(self, what: String) -> Error {
        Error {
            what,
            kind: self,
            source: None,
        }
    }

    /// Returns the error for a write that `source` caused to fail.
    pub(super) fn because(
        self,
        what: String,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Error {
        Error {
            what,
            kind: self,
            source: Some(source.into()),
        }
    }

    /// The category, and the cause in words.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Exists => ("Exists", "it exists"),
            Self::Conflict => ("Conflict", "it has changed since it was observed"),
            Self::Gone => ("Gone", "it is gone"),
            Self::Forbidden => (
                "Forbidden",
                "the host is not allowed to, apply the roles of its chart, and those of the plugin that `innkeeper manifests` prints",
            ),
            Self::Denied => ("Denied", "the cluster's admission denied it"),
            Self::NamespaceTerminating => {
                ("NamespaceTerminating", "its namespace is being deleted")
            }
            Self::NamespaceMissing => ("NamespaceMissing", "its namespace does not exist"),
            Self::Rejected => ("Rejected", "the API server rejected it"),
            Self::MetadataLost => (
                "MetadataLost",
                "the API server's answer lacks metadata by which the host finds it again, exempt it from the admission policy or webhook that removes",
            ),
            Self::TooLarge => ("TooLarge", "it is too large"),
            Self::NotServed => ("NotServed", "the cluster does not serve its kind"),
            Self::Throttled { .. } => ("Throttled", "the API server asks for a pause of"),
            Self::Unavailable => ("Unavailable", "the API server failed"),
            Self::Unreachable => ("Unavailable", "no connection to the API server"),
            Self::NoPermit { .. } => ("Unavailable", "it was not sent within"),
            Self::NoClaim => ("NoClaim", "this process does not hold the lease"),
            Self::GaveUp => (AMBIGUOUS, "the API server gave up"),
            Self::Lost => (AMBIGUOUS, "the connection broke"),
            Self::TimedOut { .. } => (AMBIGUOUS, "no answer within"),
            Self::CutOff => (AMBIGUOUS, "this process lost the lease"),
            Self::Unreadable => (AMBIGUOUS, "the API server's answer cannot be read"),
            Self::Unbuildable => ("Unbuildable", "it cannot be encoded as a request"),
        }
    }

    fn message(self, what: &str) -> String {
        let (category, why) = self.words();
        let failed = if category == AMBIGUOUS {
            "failed to learn the result of the attempt to"
        } else {
            "failed to"
        };
        match self {
            Self::Throttled { retry_after: time }
            | Self::NoPermit { deadline: time }
            | Self::TimedOut { deadline: time } => format!("{failed} {what}: {why} {time:?}"),
            _ => format!("{failed} {what}: {why}"),
        }
    }
}

impl Error {
    /// Returns the metric label and log field.
    pub const fn category(&self) -> &'static str {
        self.kind.words().0
    }

    /// Returns when to retry.
    ///
    /// A rejected object waits for a change: the API server would reject the same object again.
    pub const fn retry(&self) -> Retry {
        match self.kind {
            ErrorKind::Rejected | ErrorKind::TooLarge | ErrorKind::Unbuildable => Retry::OnChange,
            // A terminating namespace takes no new object again.
            ErrorKind::NamespaceTerminating => Retry::Never,
            ErrorKind::Throttled { retry_after } => Retry::At(retry_after),
            _ => Retry::Backoff,
        }
    }

    /// Returns true if the failure needs no report.
    ///
    /// The cluster changed and the next pass sees the change, or another process holds the lease and reports.
    pub const fn is_conflict_only(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Conflict
                | ErrorKind::Gone
                | ErrorKind::NamespaceTerminating
                | ErrorKind::NoClaim
                | ErrorKind::CutOff
        )
    }

    /// Returns true if the object changed or went since it was observed.
    pub const fn is_stale(&self) -> bool {
        matches!(self.kind, ErrorKind::Conflict | ErrorKind::Gone)
    }

    /// Returns true if the API server may have done the write.
    pub fn is_ambiguous(&self) -> bool {
        self.category() == AMBIGUOUS
    }

    /// Returns true if the API server would reject the same content from any writer.
    pub const fn is_rejection(&self) -> bool {
        matches!(
            self.kind,
            ErrorKind::Rejected | ErrorKind::TooLarge | ErrorKind::Denied | ErrorKind::Unbuildable
        )
    }

    /// Returns true if the API server has understood the write and refuses it.
    pub const fn is_refusal(&self) -> bool {
        self.is_rejection() || matches!(self.kind, ErrorKind::Forbidden)
    }

    /// Returns true if the write blocks the parent's deletion: the guest wants a child that can never be created.
    pub fn blocks_deletion_of(&self, parent: &Object) -> bool {
        parent.is_deleting() && self.kind == ErrorKind::NamespaceTerminating
    }

    /// Converts to the failure for a write to the parent's finalizer.
    pub fn finalizer_failure(&self) -> WriteFailure {
        let failure = self.failure();
        if !self.is_refusal() {
            return failure;
        }
        WriteFailure {
            reason: reason::FINALIZER_REFUSED,
            message: finalizer_refused(&failure.message),
            // A changed definition or policy triggers no pass.
            retry: Retry::Backoff,
        }
    }

    /// Converts to the failure that `plan` puts into the conditions.
    pub fn failure(&self) -> WriteFailure {
        let message = error_chain(self).to_string();
        if self.kind == ErrorKind::NamespaceTerminating {
            return WriteFailure {
                reason: reason::NAMESPACE_TERMINATING,
                message: unfinalizable(&message),
                // The next pass tells the guest, and has no such create.
                retry: Retry::Backoff,
            };
        }
        let reason = match self.kind {
            ErrorKind::Rejected | ErrorKind::TooLarge | ErrorKind::Unbuildable => {
                reason::CHILD_REJECTED
            }
            ErrorKind::MetadataLost => reason::METADATA_LOST,
            ErrorKind::Throttled { .. } => reason::THROTTLED,
            _ => reason::APPLY_FAILED,
        };
        WriteFailure {
            reason,
            message,
            retry: self.retry(),
        }
    }
}

/// Returns the error for an answer other than a success.
///
/// Decides by code, reason and cause. It reads a message only where the API server gives nothing else.
pub(super) fn refused(verb: Verb, what: String, parts: &Parts, body: &[u8]) -> Error {
    let status: Status = serde_json::from_slice(body).unwrap_or_default();
    // Proxies and load balancers answer with text or HTML, not with a Status.
    let message = if status.message.is_empty() {
        String::from_utf8_lossy(body).chars().take(256).collect()
    } else {
        status.message.clone()
    };
    let source = Refused {
        code: parts.status.as_u16(),
        message,
    };
    let pause = retry_after(parts, &status);
    let kind = match parts.status {
        StatusCode::TOO_MANY_REQUESTS => ErrorKind::Throttled {
            retry_after: pause.unwrap_or(PAUSE_DEFAULT),
        },
        // Before the codes that mean something here: a webhook that answers 404 does not say that the object is gone.
        code if code.is_client_error() && is_denial(&source.message) => ErrorKind::Denied,
        StatusCode::CONFLICT => conflict(verb, &status),
        StatusCode::NOT_FOUND => not_found(verb, &status),
        StatusCode::UNPROCESSABLE_ENTITY if is_outdated(verb, &status) => ErrorKind::Conflict,
        StatusCode::UNAUTHORIZED => ErrorKind::Forbidden,
        StatusCode::FORBIDDEN => forbidden(&status, &source.message),
        StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::TooLarge,
        StatusCode::SERVICE_UNAVAILABLE => pause.map_or(ErrorKind::Unavailable, |retry_after| {
            ErrorKind::Throttled { retry_after }
        }),
        // The API server gave up waiting, but its request to etcd may still succeed.
        StatusCode::GATEWAY_TIMEOUT => ErrorKind::GaveUp,
        // etcd's own limit: a 500 without a reason.
        _ if source.message.contains("request is too large") => ErrorKind::TooLarge,
        // A patch that does not fit the kind's schema: a 500 without a reason, although the guest is at fault.
        _ if source
            .message
            .contains("failed to create typed patch object") =>
        {
            ErrorKind::Rejected
        }
        code if code.is_client_error() => ErrorKind::Rejected,
        _ => ErrorKind::Unavailable,
    };
    match kind {
        // The API server's words add nothing.
        ErrorKind::NotServed => kind.without_source(what),
        kind => kind.because(what, source),
    }
}

/// Returns the error for an exchange without an answer.
pub(super) fn broken(what: String, source: kube::Error) -> Error {
    let kind = if never_connected(&source) {
        ErrorKind::Unreachable
    } else {
        ErrorKind::Lost
    };
    kind.because(what, source)
}

/// Returns true if no connection was made, so that the request cannot have been sent.
fn never_connected(error: &(dyn StdError + 'static)) -> bool {
    causes(error).any(|error| {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        // Without resets and timeouts: these may also hit a request that was already sent.
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
    // The header's other form, a date, does not parse and counts as no pause.
    let from_header = parts
        .headers
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let from_body = status
        .details
        .as_ref()
        .map(|details| u64::from(details.retry_after_seconds));
    // The client's type has 0 where the body has no such field.
    let seconds = from_header.or_else(|| from_body.filter(|seconds| *seconds > 0))?;
    Some(Duration::from_secs(seconds).min(PAUSE_MAX))
}

fn kind(status: &Status) -> &str {
    status.details.as_ref().map_or("", |details| &details.kind)
}

fn conflict(verb: Verb, status: &Status) -> ErrorKind {
    // Two requests that change a quota at the same time also cause a 409, with the quota's kind.
    if verb == Verb::Create && kind(status) != "resourcequotas" {
        ErrorKind::Exists
    } else {
        ErrorKind::Conflict
    }
}

fn not_found(verb: Verb, status: &Status) -> ErrorKind {
    match verb {
        _ if kind(status) == "namespaces" => ErrorKind::NamespaceMissing,
        // Both create an object that is missing, so only the URL can be unknown.
        Verb::Create | Verb::Apply => ErrorKind::NotServed,
        Verb::Update | Verb::Status | Verb::JsonPatch | Verb::Delete => ErrorKind::Gone,
    }
}

/// Returns true if a 422 means that the object is not the observed one.
fn is_outdated(verb: Verb, status: &Status) -> bool {
    let causes = status
        .details
        .as_ref()
        .map_or(&[][..], |details| &details.causes);
    match verb {
        // A test in the patch failed: the API server has neither a reason nor a field for that.
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

fn forbidden(status: &Status, message: &str) -> ErrorKind {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    if causes.any(|cause| cause.reason == "NamespaceTerminating") {
        return ErrorKind::NamespaceTerminating;
    }
    // The authorizer and all admission plugins answer with the same code and reason; only the message differs.
    let is_by_authorizer = message.contains(" cannot ") && message.contains(" resource ");
    if is_by_authorizer {
        ErrorKind::Forbidden
    } else {
        ErrorKind::Denied
    }
}

/// Returns true if admission denied the write. Webhooks choose the code and the reason themselves.
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
