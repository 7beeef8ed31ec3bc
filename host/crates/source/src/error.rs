//! Why a plugin could not be fetched or pushed.

use std::{io, net::IpAddr, path::PathBuf, time::Duration};

use innkeeper_model::{Blame, Digest, Retry};

use super::Reference;

/// Why a plugin could not be fetched or pushed: which one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings cannot be used.
    #[error("failed to set up fetching of plugins")]
    Settings {
        /// Why.
        #[source]
        source: Failure,
    },
    /// There are no bytes, or they are not what they must be.
    #[error("failed to fetch {origin}")]
    Fetch {
        /// The source, for people.
        origin: String,
        /// Why.
        #[source]
        source: Box<Failure>,
    },
    /// The registry does not have the artifact.
    #[error("failed to push {reference}")]
    Push {
        /// Where to.
        reference: Reference,
        /// Why.
        #[source]
        source: Box<Failure>,
    },
    /// The registry does not have the signature.
    #[error("failed to sign {reference}")]
    Sign {
        /// What.
        reference: Reference,
        /// Why.
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

    /// The word for metrics and conditions.
    pub fn category(&self) -> &'static str {
        self.failure().category()
    }

    /// When to try again.
    pub fn retry(&self) -> Retry {
        self.failure().retry()
    }
}

/// Why a plugin could not be fetched or pushed: which step, and what to do.
///
/// Addresses are shown without what follows a question mark, which often is a secret.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A certificate of the settings is none.
    #[error("the certificates of trusted authorities cannot be used: give them as PEM")]
    Certificates {
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A proxy of the settings is none, or the client cannot be built.
    #[error("the HTTP client cannot be set up")]
    Client {
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The host reads no files.
    #[error("the host has no directory for plugin files: start it with --source-dir DIR")]
    NoSourceDir,
    /// The directory is not there.
    #[error("failed to open {}, the directory for plugin files", path.display())]
    OpenSourceDir {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The path leads elsewhere.
    #[error("the path is refused: {problem}")]
    PathRefused {
        /// Why.
        problem: &'static str,
    },
    /// There is no such file.
    #[error("there is no such file below the host's directory for plugin files")]
    FileMissing,
    /// The file cannot be read.
    #[error("failed to read the file")]
    ReadFile {
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Reading panicked: an error of the host.
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
        /// Whether `data` has it.
        is_text: bool,
    },
    /// The ConfigMap's value is broken.
    #[error("the value of {key} in binaryData is not base64")]
    KeyNotBase64 {
        /// The key.
        key: String,
        /// Why.
        #[source]
        source: base64::DecodeError,
    },
    /// There are more bytes than allowed.
    #[error("{what} is larger than the {max} bytes that are allowed")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// The limit, in bytes.
        max: u64,
    },
    /// The address cannot be used.
    #[error("the address {url} is refused: {problem}")]
    UrlRefused {
        /// The address.
        url: String,
        /// Why.
        problem: &'static str,
    },
    /// The server is where no plugin may come from.
    #[error(
        "{host} is at {address}, which is not a public address: move it, or let the host use local addresses"
    )]
    AddressRefused {
        /// The server.
        host: String,
        /// Its address.
        address: IpAddr,
    },
    /// A name or a password cannot be sent.
    #[error("the credentials for {host} cannot be used: {problem}")]
    Credentials {
        /// The server, or what the credentials are.
        host: String,
        /// Why.
        problem: &'static str,
    },
    /// There is no connection.
    #[error("failed to connect to {url}{between}")]
    Connect {
        /// The address.
        url: String,
        /// The proxy that may be between, for people; empty if there is none.
        between: &'static str,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// There is a server, and nobody whom we know says that it is the right one.
    #[error(
        "the certificate of {url} is not trusted: where an authority of your own made it, give that as PEM by --source-ca-file to the host, by --ca-file to other commands"
    )]
    Untrusted {
        /// The address.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The connection broke.
    #[error("the connection to {url} broke before everything was there")]
    Interrupted {
        /// The address.
        url: String,
        /// Why.
        #[source]
        source: reqwest::Error,
    },
    /// The server says nothing.
    #[error("{url} was silent for {} s", waited.as_secs())]
    Silent {
        /// The address.
        url: String,
        /// For how long.
        waited: Duration,
    },
    /// The server says too little.
    #[error("{url} sends less than {rate_min} bytes per second: {received} bytes came")]
    TooSlow {
        /// The address.
        url: String,
        /// What came, in bytes.
        received: u64,
        /// What has to come, in bytes per second.
        rate_min: u64,
    },
    /// Everything together took too long.
    #[error("it was not done after {} s", waited.as_secs())]
    TimedOut {
        /// For how long it was tried.
        waited: Duration,
    },
    /// The server sends us elsewhere.
    #[error("{from} redirects to {to}, which is not followed: {problem}")]
    RedirectRefused {
        /// The address.
        from: String,
        /// Where it points.
        to: String,
        /// Why not.
        problem: &'static str,
    },
    /// The server does not let us.
    #[error("{url} answered {status}, {advice}{detail}")]
    Denied {
        /// The address.
        url: String,
        /// 401 or 403.
        status: u16,
        /// What to do.
        advice: &'static str,
        /// The server's own words, with a colon before them; empty if it had none.
        detail: String,
    },
    /// The server does not have it.
    #[error("{url} answered 404: {what} is not there")]
    NotFound {
        /// The address.
        url: String,
        /// What.
        what: &'static str,
    },
    /// The server asks for a pause.
    #[error("{url} asks for a pause of {} s", retry_after.as_secs())]
    Throttled {
        /// The address.
        url: String,
        /// How long to wait.
        retry_after: Duration,
    },
    /// The server answers something else.
    #[error("{url} answered {status}{detail}")]
    Status {
        /// The address.
        url: String,
        /// The status.
        status: u16,
        /// The server's own words, with a colon before them; empty if it had none.
        detail: String,
    },
    /// An answer of the server is not what the protocol says.
    #[error("{url} does not answer as registries do: {problem}")]
    Protocol {
        /// The address.
        url: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// JSON is expected and something else is there.
    #[error("{what} cannot be understood")]
    Malformed {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The artifact is something else.
    #[error("the artifact is not a plugin: {problem}")]
    NotAPlugin {
        /// What it is instead, and what to do.
        problem: String,
    },
    /// The bytes are others.
    #[error("{what} has the digest {found}, {expected} is expected")]
    WrongDigest {
        /// Of what.
        what: &'static str,
        /// What is expected.
        expected: Digest,
        /// What is there.
        found: Digest,
    },
    /// Nobody signed.
    #[error("there is no signature: {looked_for} is not there; sign it with the key's other half")]
    Unsigned {
        /// Where a signature was looked for.
        looked_for: String,
    },
    /// Somebody else signed, or something else was signed.
    #[error("{problem}")]
    BadSignature {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// What is to be pushed names no place.
    #[error("{problem}")]
    Target {
        /// What is wrong, and what to do.
        problem: &'static str,
    },
    /// The operating system gave no randomness, or the key cannot be used.
    #[error("failed to make the signature")]
    MakeSignature,
}

impl Failure {
    /// The word for metrics and conditions.
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

    /// Whose fault it is: the guest's author's what is there and is something else, the parent's what was asked for, the
    /// cluster's whoever does not answer.
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

    /// When to try again.
    ///
    /// What was looked at and found wrong stays wrong until somebody gives another source or other expectations.
    /// What is not there yet, or cannot be reached, may be there later: nothing tells the host.
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
            // A server that moves, a Secret that is mended, a signature that follows its artifact.
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
