//! Sources of plugin bytes: a file, HTTP, an OCI registry, a ConfigMap; with the digest and the signature of the bytes.
//!
//! [`Fetcher::fetch`] returns only bytes that meet the expectation: within the limit, with the expected digest, signed
//! by one of the expected keys.
//! Everything that a fetch needs is handed in: this module reads no Secret, no ConfigMap and no environment.
//! It keeps no state between two fetches, does not retry, and does not know the form of a plugin.

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

use std::fmt;

use secrecy::SecretString;
use serde_json::Value;

pub use self::{
    docker_config::DockerConfig,
    error::{Error, Failure},
    key::{InvalidKey, PublicKey, SigningKey},
    oci::{InvalidReference, Package, Pushed, Reference},
    registry_artifact::{
        DockerConfigText, RegistryArtifact, RegistryArtifactError, RegistrySettings,
    },
    settings::{Proxies, Settings},
};
use innkeeper_model::{Digest, error_chain};

use self::{oci::Registry, transport::Transport};

/// The place of a plugin's bytes.
#[derive(Clone, Debug)]
pub enum Source {
    /// An artifact in a registry.
    Oci(Oci),
    /// A file on a web server.
    Http(Http),
    /// A value of a ConfigMap.
    ConfigMap(ConfigMap),
    /// A file below the host's directory for plugins.
    File(File),
}

/// An artifact in a registry.
#[derive(Clone, Debug)]
pub struct Oci {
    /// The name of the artifact.
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
    /// The credentials; sent only to the scheme, host and port of the address.
    pub credentials: Option<Credentials>,
}

/// A value of a ConfigMap.
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

/// Credentials of a web server or a registry.
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

/// Shows the place without secrets: an address is shown without its query.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Oci(oci) => write!(f, "artifact {}", oci.reference),
            Self::Http(http) => f.write_str(&transport::shown(&http.url)),
            Self::ConfigMap(map) => {
                let name = config_map::name(&map.object);
                write!(f, "key {} of ConfigMap {name}", map.key)
            }
            Self::File(file) => write!(f, "file {}", file.path),
        }
    }
}

/// The requirements that fetched bytes must meet.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// Their digest; none: any.
    pub digest: Option<Digest>,
    /// The accepted signers: one of these keys is enough, so that keys can be rotated.
    /// Empty: signatures are not checked.
    pub keys: Vec<PublicKey>,
}

/// Bytes that meet the expectation.
#[derive(Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Their digest.
    pub digest: Digest,
    /// The digest of the artifact's manifest, for an artifact in a registry.
    pub manifest_digest: Option<Digest>,
    /// The [`PublicKey::id`] of the key that signed, where keys were given.
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
///     let expectation = Expectation { digest: Some(digest), keys: Vec::new() };
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
        let transport = Transport::new(&settings).map_err(|source| Error::Settings { source })?;
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
        let fetched = async {
            match source {
                Source::Oci(oci) => self.fetch_artifact(oci, expectation).await,
                Source::Http(http) => {
                    http::fetch(&self.transport, http, expectation, self.settings.bytes_max).await
                }
                Source::ConfigMap(map) => {
                    config_map::fetch(map, expectation, self.settings.bytes_max)
                }
                Source::File(file) => file::fetch(&self.settings, file, expectation).await,
            }
        };
        self.in_time(fetched).await.map_err(|failure| Error::Fetch {
            origin: source.to_string(),
            source: Box::new(failure),
        })
    }

    /// Pushes a plugin as an artifact, in the layout that all tools for WebAssembly artifacts read.
    ///
    /// The same package has the same manifest, so pushing again changes nothing.
    /// The reference must have a tag and no digest.
    pub async fn push(&self, target: &Oci, package: &Package) -> Result<Pushed, Error> {
        let pushed = async {
            let mut registry = Registry::to_push(&self.transport, target)?;
            oci::push(&mut registry, target, package).await
        };
        self.in_time(pushed).await.map_err(|failure| Error::Push {
            reference: target.reference.clone(),
            source: Box::new(failure),
        })
    }

    /// Signs a pushed artifact. [`Fetcher::fetch`] and `cosign verify --key ... --insecure-ignore-tlog` find the
    /// signature.
    ///
    /// Signatures by other keys stay.
    pub async fn sign(
        &self,
        target: &Oci,
        manifest: &Digest,
        key: &SigningKey,
    ) -> Result<(), Error> {
        let signed = async {
            let mut registry = Registry::to_push(&self.transport, target)?;
            oci::sign(&mut registry, target, manifest, key).await
        };
        self.in_time(signed).await.map_err(|failure| Error::Sign {
            reference: target.reference.clone(),
            source: Box::new(failure),
        })
    }

    /// Tries the mirrors of the registry in their order, and then the registry itself.
    async fn fetch_artifact(
        &self,
        oci: &Oci,
        expectation: &Expectation,
    ) -> Result<Fetched, Failure> {
        let mirrors = self.settings.mirrors.get(oci.reference.registry());
        for mirror in mirrors.into_iter().flatten() {
            let registry = Registry::mirror(&self.transport, oci, mirror);
            match self.fetch_from(registry, oci, expectation).await {
                Ok(fetched) => return Ok(fetched),
                Err(failure) => {
                    let (artifact, failure) = (&oci.reference, error_chain(&failure));
                    tracing::info!(%mirror, %artifact, %failure, "a mirror does not have an artifact");
                }
            }
        }
        let registry = Registry::to_pull(&self.transport, oci);
        self.fetch_from(registry, oci, expectation).await
    }

    async fn fetch_from(
        &self,
        registry: Result<Registry<'_>, Failure>,
        oci: &Oci,
        expectation: &Expectation,
    ) -> Result<Fetched, Failure> {
        oci::fetch(&mut registry?, oci, expectation, self.settings.bytes_max).await
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let total = self.settings.total;
        match tokio::time::timeout(total, work).await {
            Ok(done) => done,
            Err(_) => Err(Failure::TimedOut { waited: total }),
        }
    }
}

/// Checks bytes whose signature covers the bytes themselves: those of every source except a registry.
fn accept(
    bytes: Vec<u8>,
    digest: Digest,
    expectation: &Expectation,
    signature: Option<&[u8]>,
) -> Result<Fetched, Failure> {
    check_digest(&digest, expectation)?;
    let signed_by = match signature {
        Some(text) => Some(signature::check_blob(
            text,
            &bytes,
            &digest,
            &expectation.keys,
        )?),
        None if expectation.keys.is_empty() => None,
        None => {
            return Err(Failure::Unsigned {
                looked_for: "a file that ends in .sig".to_owned(),
            });
        }
    };
    Ok(Fetched {
        bytes,
        digest,
        manifest_digest: None,
        signed_by,
    })
}

fn check_digest(found: &Digest, expectation: &Expectation) -> Result<(), Failure> {
    match &expectation.digest {
        Some(expected) if expected != found => Err(Failure::WrongDigest {
            what: "the plugin",
            expected: expected.clone(),
            found: found.clone(),
        }),
        _ => Ok(()),
    }
}
