//! Sources for plugin bytes: a file, HTTP, an OCI registry or a ConfigMap, with digest and signature checks.
//!
//! [`Fetcher::fetch`] returns only bytes that meet the expectation: within the limit, with the expected digest, signed
//! with one of the expected keys. The caller provides everything for a fetch: this crate reads no Secret, no ConfigMap
//! and no environment. It keeps no state between fetches, does not retry, and does not know the plugin format.

mod address;
mod config_map;
mod docker_config;
mod error;
mod file;
mod http;
mod key;
mod oci;
mod registry_artifact;
mod settings;
mod signature;
#[cfg(any(test, feature = "testing"))]
#[expect(clippy::unwrap_used, missing_docs, reason = "helpers for tests")]
pub mod tests;
mod transport;
mod trust;

use std::{
    fmt, future,
    io::{self, Read},
};

use secrecy::SecretString;
use serde_json::Value;

#[cfg(feature = "testing")]
pub use self::oci::hostile;
pub use self::{
    docker_config::DockerConfig,
    error::{Error, Failure, FailureKind},
    key::{InvalidKey, PublicKey, SigningKey},
    oci::{InvalidReference, Package, Pushed, Reference},
    registry_artifact::{DockerConfigText, RegistryArtifact, RegistrySettings},
    settings::{Proxies, Settings},
    trust::{certificate_error, trust},
};
use innkeeper_model::Digest;

use self::transport::Transport;

/// The plugin's name in errors.
const PLUGIN: &str = "the plugin";

/// The place of plugin bytes.
#[derive(Clone, Debug)]
pub enum Source {
    /// An artifact in a registry.
    Oci(Oci),
    /// A file on a web server.
    Http(Http),
    /// A ConfigMap value.
    ConfigMap(ConfigMap),
    /// A file below the host's directory for plugins.
    File(File),
}

/// An artifact in a registry.
#[derive(Clone, Debug)]
pub struct Oci {
    /// The artifact reference.
    pub reference: Reference,
    /// The pull secret; none: anonymous.
    pub docker_config: Option<DockerConfig>,
    /// Uses plain HTTP. Anyone on the network path can read and change everything, so give a digest or keys.
    pub insecure: bool,
}

/// A file on a web server.
#[derive(Clone, Debug)]
pub struct Http {
    /// The address: `http` or `https`, without user and password.
    pub url: String,
    /// The credentials; sent only to the address's scheme, host and port.
    pub credentials: Option<Credentials>,
}

/// A ConfigMap value.
#[derive(Clone, Debug)]
pub struct ConfigMap {
    /// The whole object, as the API server has it.
    pub object: Value,
    /// The key in `binaryData`.
    pub key: String,
}

/// A file below the host's directory for plugins.
#[derive(Clone, Debug)]
pub struct File {
    /// The path from that directory.
    pub path: String,
}

/// Credentials for a web server or a registry.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A name and a password.
    Basic {
        /// The name.
        user: String,
        /// The password.
        password: SecretString,
    },
    /// A token.
    Bearer(SecretString),
}

/// Shows the place without secrets: omits the query in addresses.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oci(oci) => write!(f, "artifact {}", oci.reference),
            Self::Http(http) => f.write_str(&address::shown(&http.url)),
            Self::ConfigMap(map) => {
                let name = config_map::name(&map.object);
                write!(f, "ConfigMap key {name}/{}", map.key)
            }
            Self::File(file) => write!(f, "file {}", file.path),
        }
    }
}

/// The requirements that fetched bytes must meet.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// The required digest; none: any.
    pub digest: Option<Digest>,
    /// The accepted signers: one key is enough, so keys can be rotated. Empty: signatures are not checked.
    pub keys: Vec<PublicKey>,
    /// The registry and repository that a signature must name, as `registry.example/plugins/memcached`; none: any.
    pub repository: Option<String>,
}

/// Bytes that meet the expectation.
#[derive(Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The digest for these bytes.
    pub digest: Digest,
    /// The manifest digest, for an artifact in a registry.
    pub manifest_digest: Option<Digest>,
    /// The signer's [`PublicKey::id`], if keys were given.
    pub signed_by: Option<Digest>,
}

impl fmt::Debug for Fetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fetched")
            .field("bytes", &self.bytes.len())
            .field("digest", &self.digest)
            .field("manifest_digest", &self.manifest_digest)
            .field("signed_by", &self.signed_by)
            .finish()
    }
}

/// Fetches plugins, pushes them to registries, and signs them.
///
/// Remembers nothing between two calls, so one fetcher serves a whole process.
///
/// ```
/// use innkeeper_source::{Error, Expectation, Fetcher, File, Settings, Source};
///
/// async fn read(digest: innkeeper_model::Digest) -> Result<Vec<u8>, Error> {
///     let fetcher = Fetcher::new(Settings {
///         source_dir: Some("/plugins".into()),
///         ..Settings::default()
///     })?;
///     let source = Source::File(File { path: "memcached.wasm".to_owned() });
///     let expectation = Expectation { digest: Some(digest), ..Expectation::default() };
///     Ok(fetcher.fetch(&source, &expectation).await?.bytes)
/// }
/// ```
pub struct Fetcher {
    settings: Settings,
    transport: Transport,
}

impl Fetcher {
    /// Creates a fetcher; fails if the certificates or the proxies are invalid.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let transport = Transport::new(&settings)
            .map_err(|failure| Error::new("set up fetching of plugins".to_owned(), failure))?;
        Ok(Self {
            settings,
            transport,
        })
    }

    /// Fetches bytes and checks them against the expectation.
    ///
    /// Takes at most [`Settings::total`].
    pub async fn fetch(
        &self,
        source: &Source,
        expectation: &Expectation,
    ) -> Result<Fetched, Error> {
        let Self {
            settings,
            transport,
        } = self;
        let fetched = async {
            match source {
                Source::Oci(oci) => oci::fetch(transport, settings, oci, expectation).await,
                Source::Http(http) => {
                    let read = |part| http::read(transport, http, part);
                    self.fetch_parts(source, expectation, read).await
                }
                Source::ConfigMap(map) => {
                    let read = |part| future::ready(config_map::read(map, part));
                    self.fetch_parts(source, expectation, read).await
                }
                Source::File(file) => {
                    let read = |part| file::read(settings, file, part);
                    self.fetch_parts(source, expectation, read).await
                }
            }
        };
        self.in_time(format!("fetch {source}"), fetched).await
    }

    /// Pushes a plugin as an artifact, in the layout that all WebAssembly artifact tools read.
    ///
    /// The same package has the same manifest, so pushing again changes nothing. The reference must have a tag and no
    /// digest.
    pub async fn push(&self, target: &Oci, package: &Package) -> Result<Pushed, Error> {
        let pushed = oci::push(&self.transport, target, package);
        self.in_time(format!("push {}", target.reference), pushed)
            .await
    }

    /// Signs a pushed artifact, for the repository that the signature names. [`Fetcher::fetch`] and `cosign verify
    /// --key ... --insecure-ignore-tlog` find the signature.
    ///
    /// Signatures with other keys stay.
    pub async fn sign(
        &self,
        target: &Oci,
        repository: &str,
        manifest: &Digest,
        key: &SigningKey,
    ) -> Result<(), Error> {
        let signed = oci::sign(&self.transport, target, repository, manifest, key);
        self.in_time(format!("sign {}", target.reference), signed)
            .await
    }

    /// Fetches bytes whose signature covers the bytes themselves, as in every source except a registry.
    async fn fetch_parts<F>(
        &self,
        source: &Source,
        expectation: &Expectation,
        read: impl Fn(Part) -> F,
    ) -> Result<Fetched, Failure>
    where
        F: Future<Output = Result<(Vec<u8>, Digest), Failure>>,
    {
        let (bytes, digest) = read(Part::plugin(self.settings.bytes_max)).await?;
        expectation.check_digest(&digest)?;
        let signed_by = if expectation.keys.is_empty() {
            None
        } else {
            let signature = read(Part::SIGNATURE).await;
            let (text, _) = signature.map_err(|failure| match failure.kind {
                FailureKind::NotFound | FailureKind::KeyMissing => {
                    Failure::unsigned(&format!("{source}{}", Part::SIGNATURE.suffix))
                }
                _ => failure,
            })?;
            Some(signature::check_blob(&text, &bytes, &digest, expectation)?)
        };
        Ok(Fetched {
            bytes,
            digest,
            manifest_digest: None,
            signed_by,
        })
    }

    async fn in_time<T>(
        &self,
        attempt: String,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Error> {
        let total = self.settings.total;
        let result = tokio::time::timeout(total, work).await.unwrap_or_else(|_| {
            let message = format!("not finished within {} s", total.as_secs());
            Err(FailureKind::TooSlow.failure(message))
        });
        result.map_err(|failure| Error::new(attempt, failure))
    }
}

/// The plugin or the signature, in a source that has both as files.
#[derive(Clone, Copy)]
struct Part {
    /// The part in errors.
    what: &'static str,
    /// The file name suffix.
    suffix: &'static str,
    /// The limit, in bytes.
    bytes_max: u64,
}

impl Part {
    const SIGNATURE: Self = Self {
        what: "the signature",
        suffix: ".sig",
        bytes_max: signature::FILE_BYTES_MAX,
    };

    const fn plugin(bytes_max: u64) -> Self {
        Self {
            what: PLUGIN,
            suffix: "",
            bytes_max,
        }
    }

    const fn is_signature(self) -> bool {
        !self.suffix.is_empty()
    }

    /// Reads to the end, or one byte beyond the limit.
    fn read(self, from: impl Read) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        from.take(self.bytes_max.saturating_add(1))
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the bytes with the digest, if they are within the limit.
    fn with_digest(self, bytes: Vec<u8>) -> Result<(Vec<u8>, Digest), Failure> {
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        error::check_size(self.what, size, self.bytes_max)?;
        let digest = Digest::hash(&bytes);
        Ok((bytes, digest))
    }
}

impl Expectation {
    fn check_digest(&self, actual: &Digest) -> Result<(), Failure> {
        let expected = self.digest.as_ref().unwrap_or(actual);
        error::check_digest(PLUGIN, actual, expected)
    }
}
