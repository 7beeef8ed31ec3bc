//! An artifact in a registry as a command line names it: the reference and the connection settings.

use std::path::PathBuf;

use innkeeper_model::Digest;
use serde_json::Value;

use super::{
    DockerConfig, Error, Expectation, FailureKind, Fetched, Fetcher, Oci, Package, Proxies, Pushed,
    Reference, Settings, SigningKey, Source,
};

/// An optional reference prefix, as other tools write it.
const SCHEME: &str = "oci://";

/// Connection settings for registries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrySettings {
    /// Use plain HTTP.
    pub insecure: bool,
    /// Additional trusted authorities, as PEM.
    pub certificates_pem: Vec<u8>,
    /// The registry credentials; none: anonymous.
    pub docker_config: Option<DockerConfigText>,
    /// The proxies.
    pub proxies: Proxies,
}

/// A file in the form of `~/.docker/config.json`.
#[derive(Clone, PartialEq, Eq)]
pub struct DockerConfigText {
    /// The file's path.
    pub path: PathBuf,
    /// The file's content.
    pub text: Vec<u8>,
    /// True if the user named the file, false if it was found in its default place.
    pub is_named: bool,
}

/// Hides the passwords.
impl std::fmt::Debug for DockerConfigText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DockerConfigText({})", self.path.display())
    }
}

/// An artifact in a registry.
pub struct RegistryArtifact {
    fetcher: Fetcher,
    artifact: Oci,
}

impl RegistryArtifact {
    /// Parses the reference and prepares the client; sends nothing yet.
    pub fn open(reference: &str, settings: &RegistrySettings) -> Result<Self, Error> {
        let RegistrySettings {
            insecure,
            certificates_pem,
            docker_config,
            proxies,
        } = settings;
        let reference = reference
            .strip_prefix(SCHEME)
            .unwrap_or(reference)
            .parse::<Reference>()
            .map_err(|invalid| {
                let failure = FailureKind::SourceInvalid.failure(invalid.to_string());
                Error::new("understand the reference".to_owned(), failure)
            })?;
        let docker_config = docker_config
            .as_ref()
            // A file that only names credential helpers is ignored, unless the user named the file.
            .filter(|config| config.is_named || has_logins(&config.text))
            .map(|DockerConfigText { path, text, .. }| {
                DockerConfig::from_json(text).map_err(|failure| {
                    let attempt = format!("use the credentials in {}", path.display());
                    Error::new(attempt, failure)
                })
            })
            .transpose()?;
        let fetcher = Fetcher::new(Settings {
            // The user who types the address can reach it anyway.
            allow_local: true,
            certificates_pem: certificates_pem.clone(),
            proxies: proxies.clone(),
            ..Settings::default()
        })?;
        Ok(Self {
            fetcher,
            artifact: Oci {
                reference,
                docker_config,
                insecure: *insecure,
            },
        })
    }

    /// The artifact's reference.
    pub const fn reference(&self) -> &Reference {
        &self.artifact.reference
    }

    /// Returns the artifact's name with the manifest digest.
    pub fn pinned(&self, manifest: Option<&Digest>) -> String {
        let name = self.reference().name();
        manifest.map_or_else(|| name.clone(), |digest| format!("{name}@{digest}"))
    }

    /// Fetches the artifact.
    pub async fn fetch(&self, expectation: &Expectation) -> Result<Fetched, Error> {
        let source = Source::Oci(self.artifact.clone());
        self.fetcher.fetch(&source, expectation).await
    }

    /// Pushes a plugin to the reference.
    pub async fn push(&self, package: &Package) -> Result<Pushed, Error> {
        self.fetcher.push(&self.artifact, package).await
    }

    /// Signs the artifact with this manifest, for the repository that the signature names: by default the artifact's.
    pub async fn sign(
        &self,
        repository: Option<&str>,
        manifest: &Digest,
        key: &SigningKey,
    ) -> Result<(), Error> {
        let own = self.artifact.reference.name();
        let repository = repository.unwrap_or(&own);
        self.fetcher
            .sign(&self.artifact, repository, manifest, key)
            .await
    }
}

fn has_logins(text: &[u8]) -> bool {
    let value: Value = serde_json::from_slice(text).unwrap_or_default();
    value["auths"].is_object()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(text: &str, is_named: bool) -> Result<RegistryArtifact, Error> {
        let settings = RegistrySettings {
            docker_config: Some(DockerConfigText {
                path: PathBuf::from("config.json"),
                text: text.into(),
                is_named,
            }),
            ..RegistrySettings::default()
        };
        RegistryArtifact::open("oci://ghcr.io/plugins/pond:1", &settings)
    }

    #[test]
    fn a_found_config_without_logins_is_ignored() {
        let elsewhere = r#"{"credsStore": "desktop"}"#;
        let artifact = open(elsewhere, false).unwrap();
        assert!(artifact.artifact.docker_config.is_none());
        assert_eq!(artifact.reference().to_string(), "ghcr.io/plugins/pond:1");
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
