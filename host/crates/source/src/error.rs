//! Errors from fetching, pushing and signing plugins.

use std::{error::Error as StdError, time::Duration};

use innkeeper_model::{Blame, Digest, PluginReason, Retry};
use reqwest::Url;

use crate::address::shown;

/// A component was not fetched, verified, pushed or signed.
#[derive(Debug, thiserror::Error)]
#[error("failed to {attempt}")]
pub struct Error {
    attempt: String,
    /// The step that failed.
    pub source: Failure,
}

impl Error {
    /// Returns an error for a failed attempt, such as `fetch file a.wasm`.
    pub(super) const fn new(attempt: String, source: Failure) -> Self {
        Self { attempt, source }
    }

    /// The reason in a Plugin's condition.
    pub const fn reason(&self) -> PluginReason {
        self.source.kind.rules().0
    }

    /// When to retry.
    pub const fn retry(&self) -> Retry {
        self.source.retry()
    }
}

/// A failed step with a remedy.
///
/// Omits the query in addresses, which often is a secret, and the bodies that servers send.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    message: String,
    #[source]
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Failure kinds, which decide the reason, the party to blame and the retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The certificates or proxies in the settings are unusable.
    SettingsInvalid,
    /// The host has no directory for plugin files.
    NoSourceDir,
    /// The path, address, credentials or push target is unusable.
    SourceInvalid,
    /// The server or redirect target is at an address that plugins may not come from.
    AddressRefused,
    /// The source does not have the object.
    NotFound,
    /// The ConfigMap does not have the key.
    KeyMissing,
    /// The file cannot be read.
    ReadFailed,
    /// The bytes are no plugin, manifest or signature.
    ArtifactMalformed,
    /// The bytes exceed the limit.
    TooLarge,
    /// No connection was made, or it broke.
    Unreachable,
    /// No trusted authority signed the server's certificate.
    Untrusted,
    /// The server is too slow, or the whole operation took too long.
    TooSlow,
    /// The server denied access.
    Denied,
    /// The server requests a pause.
    Throttled {
        /// The length of the pause.
        retry_after: Duration,
    },
    /// The server failed, or violates the protocol.
    ServerFailed,
    /// The bytes have another digest.
    WrongDigest,
    /// There is no signature.
    Unsigned,
    /// The signature is invalid: made with another key or for other content.
    BadSignature,
    /// The operating system returned no random bytes, or the key is unusable.
    SigningFailed,
}

/// The longest message, in characters: a server may choose parts of it, such as media types. More than any other
/// message needs.
const MESSAGE_CHARS_MAX: usize = 1024;

impl FailureKind {
    /// Returns a failure without another error behind it.
    pub(super) fn failure(self, message: impl Into<String>) -> Failure {
        let message: String = message.into();
        Failure {
            kind: self,
            message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
            source: None,
        }
    }

    /// Returns a failure with `source` as the cause.
    pub(super) fn because(
        self,
        message: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Failure {
        Failure {
            source: Some(source.into()),
            ..self.failure(message)
        }
    }

    /// The reason, the party to blame and the retry.
    ///
    /// Wrong bytes are the guest author's fault, a wrong request is the Plugin author's, and the cluster is to blame if
    /// a server does not answer. Content that failed a check stays wrong until a user changes the source or the
    /// expectation. All else can change without an event: a server that moves, a corrected Secret, a signature that
    /// follows its artifact.
    const fn rules(self) -> (PluginReason, Blame, Retry) {
        use Blame::{Cluster, Guest, Host, Parent};
        use Retry::{At, Backoff, Never, OnChange};
        match self {
            Self::SettingsInvalid => (PluginReason::SettingsInvalid, Parent, Never),
            Self::NoSourceDir => (PluginReason::SourceInvalid, Host, Never),
            Self::SourceInvalid => (PluginReason::SourceInvalid, Parent, OnChange),
            Self::AddressRefused => (PluginReason::AddressRefused, Cluster, Backoff),
            Self::NotFound => (PluginReason::NotFound, Cluster, Backoff),
            Self::KeyMissing => (PluginReason::NotFound, Parent, OnChange),
            Self::ReadFailed => (PluginReason::ReadFailed, Cluster, Backoff),
            Self::ArtifactMalformed => (PluginReason::ArtifactMalformed, Guest, OnChange),
            Self::TooLarge => (PluginReason::TooLarge, Guest, OnChange),
            Self::Unreachable => (PluginReason::Unreachable, Cluster, Backoff),
            Self::Untrusted => (PluginReason::Untrusted, Cluster, Backoff),
            Self::TooSlow => (PluginReason::TooSlow, Cluster, Backoff),
            Self::Denied => (PluginReason::Denied, Cluster, Backoff),
            Self::Throttled { retry_after } => (PluginReason::Throttled, Cluster, At(retry_after)),
            Self::ServerFailed => (PluginReason::ServerFailed, Cluster, Backoff),
            Self::WrongDigest => (PluginReason::WrongDigest, Guest, OnChange),
            Self::Unsigned => (PluginReason::Unsigned, Guest, Backoff),
            Self::BadSignature => (PluginReason::BadSignature, Guest, OnChange),
            Self::SigningFailed => (PluginReason::HostFault, Host, Backoff),
        }
    }
}

impl Failure {
    /// The party to blame.
    pub const fn blame(&self) -> Blame {
        self.kind.rules().1
    }

    /// When to retry.
    pub const fn retry(&self) -> Retry {
        self.kind.rules().2
    }

    pub(super) fn url_refused(url: &str, problem: &str) -> Self {
        let message = format!("the address {url} is refused: {problem}");
        FailureKind::SourceInvalid.failure(message)
    }

    pub(super) fn credentials(subject: &str, problem: &str) -> Self {
        let message = format!("the credentials for {subject} cannot be used: {problem}");
        FailureKind::SourceInvalid.failure(message)
    }

    pub(super) fn protocol(url: &Url, problem: &str) -> Self {
        let url = shown(url.as_str());
        let message = format!("{url} does not answer as registries do: {problem}");
        FailureKind::ServerFailed.failure(message)
    }

    pub(super) fn not_a_plugin(problem: &str) -> Self {
        FailureKind::ArtifactMalformed.failure(format!("the artifact is not a plugin: {problem}"))
    }

    pub(super) fn unsigned(place: &str) -> Self {
        FailureKind::Unsigned.failure(format!(
            "no signature found: {place} is missing; sign it with `innkeeper sign` or cosign"
        ))
    }
}

/// Returns a search result; none if the source does not have the object.
pub(super) fn optional<T>(result: Result<T, Failure>) -> Result<Option<T>, Failure> {
    match result {
        Err(failure) if failure.kind == FailureKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

/// Checks a size in bytes.
pub(super) fn check_size(what: &str, size: u64, max: u64) -> Result<(), Failure> {
    if size <= max {
        return Ok(());
    }
    let message = format!("{what} is larger than the {max} bytes that are allowed");
    Err(FailureKind::TooLarge.failure(message))
}

/// Checks a digest.
pub(super) fn check_digest(what: &str, actual: &Digest, expected: &Digest) -> Result<(), Failure> {
    if actual == expected {
        return Ok(());
    }
    let message = format!("{what} has the digest {actual}, {expected} is expected");
    Err(FailureKind::WrongDigest.failure(message))
}
