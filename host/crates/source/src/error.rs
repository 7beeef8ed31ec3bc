//! Errors of fetching, pushing and signing plugins.

use std::{io, net::IpAddr, path::PathBuf, time::Duration};

use innkeeper_model::{Blame, Digest, Retry};

use super::Reference;

/// A failed operation, with its subject.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings cannot be used.
    #[error("failed to set up fetching of plugins")]
    Settings {
        /// The failed step.
        #[source]
        source: Failure,
    },
    /// There are no bytes, or they do not meet the expectation.
    #[error("failed to fetch {origin}")]
    Fetch {
        /// The source, for users.
        origin: String,
        /// The failed step.
        #[source]
        source: Box<Failure>,
    },
    /// The artifact was not pushed.
    #[error("failed to push {reference}")]
    Push {
        /// The target.
        reference: Reference,
        /// The failed step.
        #[source]
        source: Box<Failure>,
    },
    /// The signature was not pushed.
    #[error("failed to sign {reference}")]
    Sign {
        /// The artifact.
        reference: Reference,
        /// The failed step.
        #[source]
        source: Box<Failure>,
    },
}

impl Error {
    /// The step that failed.
    pub fn failure(&self) -> &Failure {
        match self {
            Self::Settings { source } => source,
            Self::Fetch { source, .. } | Self::Push { source, .. } | Self::Sign { source, .. } => {
                source
            }
        }
    }

    /// The error category in metrics and conditions.
    pub fn category(&self) -> &'static str {
        self.failure().category()
    }

    /// The time of the next attempt.
    pub fn retry(&self) -> Retry {
        self.failure().retry()
    }
}

/// A failed step, with its remedy.
///
/// Addresses are shown without their query, which often is a secret.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A certificate in the settings is invalid.
    #[error("failed to use the certificates of trusted authorities: give them as PEM")]
    Certificates {
        /// The defect.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A proxy in the settings is invalid, or the client cannot be built.
    #[error("failed to set up the HTTP client")]
    Client {
        /// The defect.
        #[source]
        source: reqwest::Error,
    },
    /// The host has no directory for plugin files.
    #[error("the host has no directory for plugin files: start it with --source-dir DIR")]
    NoSourceDir,
    /// The directory cannot be opened.
    #[error("failed to open {}, the directory for plugin files", path.display())]
    OpenSourceDir {
        /// The directory.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The path is not allowed.
    #[error("the path is refused: {problem}")]
    PathRefused {
        /// The reason.
        problem: &'static str,
    },
    /// There is no such file.
    #[error("there is no such file below the host's directory for plugin files")]
    FileMissing,
    /// The file cannot be read.
    #[error("failed to read the file")]
    ReadFile {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The reading task panicked: an error of the host.
    #[error("failed to finish reading")]
    Panicked(#[source] tokio::task::JoinError),
    /// The ConfigMap has no such key.
    #[error(
        "binaryData has no key {key}, it has {}{}",
        if found.is_empty() { "none".to_owned() } else { found.join(", ") },
        if *is_text { "; there is one in data, which holds text: put the file into binaryData" } else { "" }
    )]
    KeyMissing {
        /// The key.
        key: String,
        /// The keys that are there.
        found: Vec<String>,
        /// True if `data` has it.
        is_text: bool,
    },
    /// The value in the ConfigMap is invalid.
    #[error("the value of {key} in binaryData is not base64")]
    KeyNotBase64 {
        /// The key.
        key: String,
        /// The defect.
        #[source]
        source: base64::DecodeError,
    },
    /// The bytes exceed the limit.
    #[error("{what} is larger than the {max} bytes that are allowed")]
    TooLarge {
        /// The oversized part.
        what: &'static str,
        /// The limit, in bytes.
        max: u64,
    },
    /// The address cannot be used.
    #[error("the address {url} is refused: {problem}")]
    UrlRefused {
        /// The address.
        url: String,
        /// The reason.
        problem: &'static str,
    },
    /// The server has an address that plugins may not come from.
    #[error(
        "{host} is at {address}, which is not a public address: move it, or let the host use local addresses"
    )]
    AddressRefused {
        /// The server.
        host: String,
        /// Its address.
        address: IpAddr,
    },
    /// The credentials cannot be sent.
    #[error("the credentials for {host} cannot be used: {problem}")]
    Credentials {
        /// The server, or the kind of credentials.
        host: String,
        /// The reason.
        problem: &'static str,
    },
    /// The connection failed.
    #[error("failed to connect to {url}{between}")]
    Connect {
        /// The address.
        url: String,
        /// A note about the proxy in between, for users; empty if there is none.
        between: &'static str,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The certificate of the server is not signed by a trusted authority.
    #[error(
        "the certificate of {url} is not trusted: for a private authority, give its certificate as PEM with --source-ca-file (host) or --ca-file (other commands)"
    )]
    Untrusted {
        /// The address.
        url: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The connection broke.
    #[error("the connection to {url} broke before the answer was complete")]
    Interrupted {
        /// The address.
        url: String,
        /// The cause.
        #[source]
        source: reqwest::Error,
    },
    /// The server sent nothing for too long.
    #[error("{url} was silent for {} s", waited.as_secs())]
    Silent {
        /// The address.
        url: String,
        /// The allowed silence.
        waited: Duration,
    },
    /// The server is too slow.
    #[error("{url} sends less than {rate_min} bytes per second: {received} bytes came")]
    TooSlow {
        /// The address.
        url: String,
        /// The received bytes.
        received: u64,
        /// The required rate, in bytes per second.
        rate_min: u64,
    },
    /// The whole operation took too long.
    #[error("not finished within {} s", waited.as_secs())]
    TimedOut {
        /// The timeout.
        waited: Duration,
    },
    /// The redirect is not allowed.
    #[error("{from} redirects to {to}, which is not followed: {problem}")]
    RedirectRefused {
        /// The address.
        from: String,
        /// The target of the redirect.
        to: String,
        /// The reason.
        problem: &'static str,
    },
    /// The server denied access.
    #[error("{url} answered {status}: {advice}{detail}")]
    Denied {
        /// The address.
        url: String,
        /// 401 or 403.
        status: u16,
        /// The remedy.
        advice: &'static str,
        /// The message of the server, after a colon; empty if it had none.
        detail: String,
    },
    /// The server does not have the object.
    #[error("{url} answered 404: {what} is not there")]
    NotFound {
        /// The address.
        url: String,
        /// The missing object.
        what: &'static str,
    },
    /// The server asks for a pause.
    #[error("{url} asks for a pause of {} s", retry_after.as_secs())]
    Throttled {
        /// The address.
        url: String,
        /// The length of the pause.
        retry_after: Duration,
    },
    /// Any other error status.
    #[error("{url} answered {status}{detail}")]
    Status {
        /// The address.
        url: String,
        /// The status.
        status: u16,
        /// The message of the server, after a colon; empty if it had none.
        detail: String,
    },
    /// The answer of the server violates the protocol.
    #[error("{url} does not answer as registries do: {problem}")]
    Protocol {
        /// The address.
        url: String,
        /// The defect.
        problem: &'static str,
    },
    /// The text is not the expected JSON.
    #[error("failed to parse {what}")]
    Malformed {
        /// The parsed text.
        what: &'static str,
        /// The defect.
        #[source]
        source: serde_json::Error,
    },
    /// The artifact is not a plugin.
    #[error("the artifact is not a plugin: {problem}")]
    NotAPlugin {
        /// The difference, and the remedy.
        problem: String,
    },
    /// The bytes have another digest.
    #[error("{what} has the digest {found}, {expected} is expected")]
    WrongDigest {
        /// The checked bytes.
        what: &'static str,
        /// The expected digest.
        expected: Digest,
        /// The computed digest.
        found: Digest,
    },
    /// There is no signature.
    #[error("no signature found: {looked_for} is missing; sign it with `innkeeper sign` or cosign")]
    Unsigned {
        /// The places that were searched.
        looked_for: String,
    },
    /// The signature is invalid: by another key or of other content.
    #[error("{problem}")]
    BadSignature {
        /// The defect.
        problem: &'static str,
    },
    /// The target of a push is invalid.
    #[error("{problem}")]
    Target {
        /// The defect, and the remedy.
        problem: &'static str,
    },
    /// The operating system returned no random bytes, or the key is unusable.
    #[error("failed to make the signature")]
    MakeSignature,
}

impl Failure {
    /// The error category in metrics and conditions.
    pub const fn category(&self) -> &'static str {
        match self {
            Self::Certificates { .. } | Self::Client { .. } => "settings-invalid",
            Self::NoSourceDir
            | Self::PathRefused { .. }
            | Self::UrlRefused { .. }
            | Self::Credentials { .. }
            | Self::Target { .. } => "source-invalid",
            Self::AddressRefused { .. } | Self::RedirectRefused { .. } => "address-refused",
            Self::FileMissing | Self::KeyMissing { .. } | Self::NotFound { .. } => "not-found",
            Self::OpenSourceDir { .. } | Self::ReadFile { .. } | Self::Panicked(_) => "read-failed",
            Self::KeyNotBase64 { .. } | Self::Malformed { .. } | Self::NotAPlugin { .. } => {
                "artifact-malformed"
            }
            Self::TooLarge { .. } => "too-large",
            Self::Connect { .. } | Self::Interrupted { .. } => "unreachable",
            Self::Untrusted { .. } => "untrusted",
            Self::Silent { .. } | Self::TooSlow { .. } | Self::TimedOut { .. } => "too-slow",
            Self::Denied { .. } => "denied",
            Self::Throttled { .. } => "throttled",
            Self::Status { .. } | Self::Protocol { .. } => "server-failed",
            Self::WrongDigest { .. } => "wrong-digest",
            Self::Unsigned { .. } => "unsigned",
            Self::BadSignature { .. } => "bad-signature",
            Self::MakeSignature => "signing-failed",
        }
    }

    /// The party that is at fault: the author of the guest if the bytes are wrong, the author of the Plugin if the
    /// request is wrong, and the cluster if a server does not answer.
    pub const fn blame(&self) -> Blame {
        match self {
            Self::WrongDigest { .. }
            | Self::Unsigned { .. }
            | Self::BadSignature { .. }
            | Self::NotAPlugin { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. } => Blame::Guest,
            Self::Certificates { .. }
            | Self::Client { .. }
            | Self::Credentials { .. }
            | Self::Target { .. }
            | Self::UrlRefused { .. }
            | Self::PathRefused { .. }
            | Self::KeyMissing { .. }
            | Self::KeyNotBase64 { .. } => Blame::Parent,
            Self::NoSourceDir | Self::Panicked(_) | Self::MakeSignature => Blame::Host,
            Self::OpenSourceDir { .. }
            | Self::FileMissing
            | Self::ReadFile { .. }
            | Self::AddressRefused { .. }
            | Self::Connect { .. }
            | Self::Untrusted { .. }
            | Self::Interrupted { .. }
            | Self::Silent { .. }
            | Self::TooSlow { .. }
            | Self::TimedOut { .. }
            | Self::RedirectRefused { .. }
            | Self::Denied { .. }
            | Self::NotFound { .. }
            | Self::Throttled { .. }
            | Self::Status { .. }
            | Self::Protocol { .. } => Blame::Cluster,
        }
    }

    /// The time of the next attempt.
    ///
    /// Content that was checked and found wrong stays wrong until a user changes the source or the expectation. A
    /// missing or unreachable source may appear later, and no event tells the host.
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Certificates { .. } | Self::Client { .. } | Self::NoSourceDir => Retry::Never,
            Self::PathRefused { .. }
            | Self::UrlRefused { .. }
            | Self::Credentials { .. }
            | Self::Target { .. }
            | Self::KeyMissing { .. }
            | Self::KeyNotBase64 { .. }
            | Self::TooLarge { .. }
            | Self::Malformed { .. }
            | Self::NotAPlugin { .. }
            | Self::WrongDigest { .. }
            | Self::BadSignature { .. } => Retry::OnChange,
            Self::Throttled { retry_after, .. } => Retry::At(*retry_after),
            // These can change without an event: a server that moves, a corrected Secret, a signature that follows its
            // artifact.
            Self::AddressRefused { .. }
            | Self::RedirectRefused { .. }
            | Self::FileMissing
            | Self::NotFound { .. }
            | Self::OpenSourceDir { .. }
            | Self::ReadFile { .. }
            | Self::Panicked(_)
            | Self::Connect { .. }
            | Self::Untrusted { .. }
            | Self::Interrupted { .. }
            | Self::Silent { .. }
            | Self::TooSlow { .. }
            | Self::TimedOut { .. }
            | Self::Denied { .. }
            | Self::Status { .. }
            | Self::Protocol { .. }
            | Self::Unsigned { .. }
            | Self::MakeSignature => Retry::Backoff,
        }
    }
}
