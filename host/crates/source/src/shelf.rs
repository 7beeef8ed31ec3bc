//! An artifact in a registry as a command line names it: the reference, and how its registry is spoken with.

use std::path::PathBuf;

use innkeeper_model::Digest;
use serde_json::Value;

use super::{
    DockerConfig, Error, Expectation, Failure, Fetched, Fetcher, InvalidReference, Oci, Package,
    Pushed, Reference, Settings, SigningKey, Source,
};

/// What may stand before a reference, as other tools write it.
const SCHEME: &str = "oci://";

/// How registries are spoken with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrySettings {
    /// By plain HTTP.
    pub insecure: bool,
    /// Authorities that are trusted as well, as PEM.
    pub certificates_pem: Vec<u8>,
    /// What to sign in with; none: as nobody.
    pub docker_config: Option<DockerConfigText>,
    /// Proxies for `https` and for `http`, and what needs none.
    pub proxies: [Option<String>; 3],
}

/// A file in the form of `~/.docker/config.json`.
#[derive(Clone, PartialEq, Eq)]
pub struct DockerConfigText {
    /// Where it was read.
    pub path: PathBuf,
    /// What it says.
    pub text: Vec<u8>,
    /// Whether it was named, and not only found where it usually is.
    pub is_named: bool,
}

/// Shows no password.
impl std::fmt::Debug for DockerConfigText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DockerConfigText({})", self.path.display())
    }
}

/// Why an artifact cannot be spoken of.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// The reference names nothing.
    #[error("failed to understand the reference")]
    Reference(#[source] InvalidReference),
    /// The credentials cannot be used.
    #[error("failed to use the credentials in {}", path.display())]
    DockerConfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<Failure>,
    },
    /// The authorities or the proxies cannot be used.
    #[error(transparent)]
    Settings(Box<Error>),
}

/// An artifact in a registry.
pub struct Shelf {
    fetcher: Fetcher,
    artifact: Oci,
}

impl Shelf {
    /// Understands what was given; speaks with nobody yet.
    pub fn open(reference: &str, settings: &RegistrySettings) -> Result<Self, ShelfError> {
        let RegistrySettings {
            insecure,
            certificates_pem,
            docker_config,
            proxies,
        } = settings;
        let reference = reference.strip_prefix(SCHEME).unwrap_or(reference);
        let reference: Reference = reference.parse().map_err(ShelfError::Reference)?;
        let docker_config = docker_config
            .as_ref()
            // Where others only keep the names of programs that know passwords.
            .filter(|found| found.is_named || has_logins(&found.text))
            .map(|given| {
                DockerConfig::from_json(&given.text).map_err(|source| ShelfError::DockerConfig {
                    path: given.path.clone(),
                    source: Box::new(source),
                })
            })
            .transpose()?;
        let fetcher = Fetcher::new(Settings {
            // Whoever types the address may reach it anyway.
            allow_local: true,
            certificates_pem: certificates_pem.clone(),
            proxies: proxies.clone().into(),
            ..Settings::default()
        })
        .map_err(|error| ShelfError::Settings(Box::new(error)))?;
        Ok(Self {
            fetcher,
            artifact: Oci {
                reference,
                docker_config,
                insecure: *insecure,
            },
        })
    }

    /// The artifact's name.
    pub const fn reference(&self) -> &Reference {
        &self.artifact.reference
    }

    /// The artifact's name by the digest of its manifest.
    pub fn pinned(&self, manifest: Option<&Digest>) -> String {
        let reference = self.reference();
        let name = format!("{}/{}", reference.registry(), reference.repository());
        manifest.map_or_else(|| name.clone(), |digest| format!("{name}@{digest}"))
    }

    /// Fetches it.
    pub async fn fetch(&self, expectation: &Expectation) -> Result<Fetched, Error> {
        let source = Source::Oci(self.artifact.clone());
        self.fetcher.fetch(&source, expectation).await
    }

    /// Puts a plugin there.
    pub async fn push(&self, package: &Package) -> Result<Pushed, Error> {
        self.fetcher.push(&self.artifact, package).await
    }

    /// Signs what is there under a manifest.
    pub async fn sign(&self, manifest: &Digest, key: &SigningKey) -> Result<(), Error> {
        self.fetcher.sign(&self.artifact, manifest, key).await
    }
}

fn has_logins(text: &[u8]) -> bool {
    let value: Value = serde_json::from_slice(text).unwrap_or_default();
    value["auths"].is_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str, is_named: bool) -> Result<Shelf, ShelfError> {
        let settings = RegistrySettings {
            docker_config: Some(DockerConfigText {
                path: PathBuf::from("config.json"),
                text: text.into(),
                is_named,
            }),
            ..RegistrySettings::default()
        };
        Shelf::open("oci://ghcr.io/plugins/pond:1", &settings)
    }

    #[test]
    fn what_docker_keeps_elsewhere_is_no_reason_to_fail() {
        let elsewhere = r#"{"credsStore": "desktop"}"#;
        let shelf = open(elsewhere, false).unwrap();
        assert!(shelf.artifact.docker_config.is_none());
        assert_eq!(shelf.reference().to_string(), "ghcr.io/plugins/pond:1");
        assert!(open("not JSON", false).is_ok());
        assert!(
            open(r#"{"auths": {}}"#, false)
                .unwrap()
                .artifact
                .docker_config
                .is_some()
        );
        let error = open(elsewhere, true).err().unwrap();
        assert_eq!(
            error.to_string(),
            "failed to use the credentials in config.json"
        );
    }
}
