//! From a declaration to a revision: fetch and verify the bytes, compile them, let the component describe itself, and
//! give it its configuration.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_cluster::Cluster;
use innkeeper_model::{Digest, Gvk, Limits, Object, Retry, error_chain};
use innkeeper_sandbox::{Described, Plugin};
use innkeeper_source::{
    ConfigMap, Credentials, DockerConfig, Expectation, Failure, Fetched, Fetcher, File, Http, Oci,
    PublicKey, Source,
};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::loading::{Places, Reporter};
use crate::{
    LoaderContext,
    lifecycle::{Stage, StageFailure},
    resource::{Declared, LocalRef, Origin},
};

/// The values of a Secret by key.
type SecretData = BTreeMap<String, ByteString>;

/// A component that was fetched, verified, compiled and described.
#[derive(Clone)]
pub(super) struct VerifiedComponent {
    pub(super) described: Described,
    /// The verification that the bytes passed, for people.
    pub(super) verified_by: String,
}

impl VerifiedComponent {
    /// Returns the digest of the bytes.
    pub(super) fn digest(&self) -> &Digest {
        self.described.digest()
    }
}

/// Loads the components that Plugins declare.
pub struct Loader {
    /// The reader of Secrets and ConfigMaps.
    pub cluster: Cluster,
    /// The dependencies of loading.
    pub context: Arc<LoaderContext>,
    /// The sources of bytes.
    pub fetcher: Fetcher,
    /// The namespace of the Secrets and ConfigMaps that sources name.
    pub namespace: String,
    /// The bounds of all loads together.
    pub places: Places,
}

impl Loader {
    /// Returns the declared component without its configuration, from the cache or from its source.
    pub(super) async fn component(
        &self,
        declared: &Declared,
        reporter: &Reporter,
    ) -> Result<VerifiedComponent, StageFailure> {
        // A component with this digest is the same from any source, so the source need not be available.
        if let Some(digest) = &declared.digest
            && let Ok(component) = self.kept(declared, digest).await
        {
            info!(plugin = %declared.name, %digest, "loaded the component from the cache directory");
            return Ok(component);
        }
        let place = self.places.of(declared).await;
        let fetched = self.fetch(declared).await?;
        reporter.at(Stage::Compiled);
        let verified_by = verified_by(declared, &fetched);
        info!(plugin = %declared.name, digest = %fetched.digest, "fetched a plugin");
        let context = Arc::clone(&self.context);
        let limits = declared.terms.limits.clone();
        let (described, fetched) = blocking(move || {
            let described = compile(&context, &fetched.bytes, &limits)?;
            // Only now, also if the load was cancelled: the compiler cannot be interrupted.
            drop(place);
            Ok((described, fetched))
        })
        .await?;
        let context = Arc::clone(&self.context);
        // A cancelled load does not get here: no Plugin would ask for the removal of its bytes.
        blocking(move || {
            keep(&context, &fetched);
            Ok(VerifiedComponent {
                described,
                verified_by,
            })
        })
        .await
    }

    /// Returns the component with this digest from the cache, if its bytes are signed as the Plugin requires.
    pub(super) async fn kept(
        &self,
        declared: &Declared,
        digest: &Digest,
    ) -> Result<VerifiedComponent, StageFailure> {
        let not_kept =
            |message| StageFailure::new(Stage::Fetched, "NotKept", message, Retry::OnChange);
        let Some(cache) = self.context.cache.clone() else {
            return Err(not_kept("there is no cache directory".to_owned()));
        };
        let keys: Vec<Digest> = declared.keys.iter().map(PublicKey::id).collect();
        let signed_by = cache.signer(digest, &keys).cloned();
        if signed_by.is_none() && !keys.is_empty() {
            let message = format!(
                "the cache directory has no signature of {digest} by a key in spec.verify.keys"
            );
            return Err(not_kept(message));
        }
        let (context, digest) = (Arc::clone(&self.context), digest.clone());
        let limits = declared.terms.limits.clone();
        let place = self.places.local().await;
        blocking(move || {
            let bytes = cache.kept(&digest, &context.artifact_limits);
            let bytes = bytes.ok_or_else(|| {
                not_kept(format!(
                    "the cache directory does not hold the bytes {digest}"
                ))
            })?;
            let signature =
                signed_by.map_or_else(String::new, |key| format!(", signed by the key {key}"));
            let described = compile(&context, &bytes, &limits)?;
            drop(place);
            Ok(VerifiedComponent {
                described,
                verified_by: format!("{digest}, from the cache directory{signature}"),
            })
        })
        .await
    }

    async fn fetch(&self, declared: &Declared) -> Result<Fetched, StageFailure> {
        let source = self.source(&declared.origin).await?;
        let expectation = Expectation {
            digest: declared.digest.clone(),
            keys: declared.keys.clone(),
        };
        let fetched = self.fetcher.fetch(&source, &expectation).await;
        fetched.map_err(|error| {
            let stage = match error.failure() {
                Failure::WrongDigest { .. }
                | Failure::Unsigned { .. }
                | Failure::BadSignature { .. } => Stage::Verified,
                _ => Stage::Fetched,
            };
            let retry = match (error.retry(), &declared.origin) {
                // These are cheap to read, and no event reports a change.
                (Retry::OnChange, Origin::ConfigMap(_) | Origin::File(_)) => Retry::Backoff,
                (retry, _) => retry,
            };
            StageFailure::of(stage, &camel_case(error.category()), &error, retry)
        })
    }

    /// Returns a source with the credentials and objects for a fetch from it.
    async fn source(&self, origin: &Origin) -> Result<Source, StageFailure> {
        Ok(match origin {
            Origin::Oci(oci, reference) => Source::Oci(Oci {
                reference: reference.clone(),
                docker_config: match &oci.pull_secret_ref {
                    Some(secret) => Some(docker_config(&secret.name, &self.secret(secret).await?)?),
                    None => None,
                },
                insecure: oci.insecure,
            }),
            Origin::Http(http) => Source::Http(Http {
                url: http.url.clone(),
                credentials: match &http.secret_ref {
                    Some(secret) => Some(credentials(&secret.name, &self.secret(secret).await?)?),
                    None => None,
                },
            }),
            Origin::ConfigMap(source) => {
                let map = self.object("ConfigMap", &source.name).await?;
                Source::ConfigMap(ConfigMap {
                    // Never fails: the cluster client returns only JSON.
                    object: serde_json::from_str(&map.json).unwrap_or_default(),
                    key: source.key.clone(),
                })
            }
            Origin::File(file) => Source::File(File {
                path: file.path.clone(),
            }),
        })
    }

    async fn secret(&self, LocalRef { name }: &LocalRef) -> Result<SecretData, StageFailure> {
        let secret = self.object("Secret", name).await?;
        // An unreadable Secret counts as empty; the caller names the keys that it requires.
        let secret: Secret = serde_json::from_str(&secret.json).unwrap_or_default();
        Ok(secret.data.unwrap_or_default())
    }

    /// Returns an object of the host's namespace by a live read: the host watches neither Secrets nor ConfigMaps for
    /// sources.
    async fn object(&self, kind: &str, name: &str) -> Result<Object, StageFailure> {
        let namespace = &*self.namespace;
        let gvk = Gvk::new("", "v1", kind);
        let found = self.cluster.live_get(&gvk, Some(namespace), name).await;
        let found = found.map_err(|error| {
            StageFailure::of(Stage::Fetched, "ReadFailed", &error, Retry::Backoff)
        })?;
        found.ok_or_else(|| {
            let message = format!("there is no {kind} {name} in the host's namespace {namespace}");
            StageFailure::new(Stage::Fetched, "NotFound", message, Retry::Backoff)
        })
    }
}

/// Runs work that takes as long as a compilation on a thread of its own; a panic of it becomes a failure.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StageFailure> + Send + 'static,
) -> Result<T, StageFailure> {
    spawn_blocking(work)
        .await
        .map_err(|error| StageFailure::of(Stage::Compiled, "HostFault", &error, Retry::Backoff))?
}

/// Blocks for as long as compiling takes.
fn compile(
    context: &LoaderContext,
    bytes: &[u8],
    limits: &Limits,
) -> Result<Described, StageFailure> {
    let engine = &context.engine;
    let artifact = context
        .compiler
        .compile(engine, bytes, &context.artifact_limits);
    let artifact = artifact.map_err(|error| {
        StageFailure::of(Stage::Compiled, error.reason(), &error, error.retry())
    })?;
    Described::load(engine, &artifact, limits).map_err(|error| {
        StageFailure::of(Stage::Described, "CannotDescribe", &error, Retry::OnChange)
    })
}

/// Keeps the fetched bytes, so that a later process needs no source. A failure only costs that.
fn keep(context: &LoaderContext, fetched: &Fetched) {
    let Some(cache) = &context.cache else {
        return;
    };
    let digest = &fetched.digest;
    if let Err(error) = cache.keep(digest, &fetched.bytes, fetched.signed_by.as_ref()) {
        warn!(%digest, error = %error_chain(&error), "failed to write a component to the cache directory");
    }
}

/// Returns the revision that a component and a configuration make.
pub(super) fn configure(
    component: &VerifiedComponent,
    config: &Map<String, Value>,
) -> Result<Arc<Plugin>, StageFailure> {
    let configured = component.described.configure(config);
    configured.map(Arc::new).map_err(|error| {
        StageFailure::of(Stage::Described, "ConfigInvalid", &error, Retry::OnChange)
    })
}

fn verified_by(declared: &Declared, fetched: &Fetched) -> String {
    let digest = &fetched.digest;
    match (&fetched.signed_by, &declared.digest) {
        (Some(key), _) => format!("{digest}, signed by the key {key}"),
        (None, Some(_)) => format!("{digest}, as spec.digest requires"),
        (None, None) => {
            format!("{digest}, not checked: neither spec.digest nor spec.verify is set")
        }
    }
}

fn docker_config(name: &str, data: &SecretData) -> Result<DockerConfig, StageFailure> {
    const KEY: &str = ".dockerconfigjson";

    let text = data.get(KEY).ok_or_else(|| unusable_secret(name, KEY))?;
    DockerConfig::from_json(&text.0).map_err(|failure| {
        let cause = error_chain(&failure);
        let message = format!("failed to read {KEY} of the Secret {name}: {cause}");
        StageFailure::new(Stage::Fetched, "SourceInvalid", message, Retry::Backoff)
    })
}

fn credentials(name: &str, data: &SecretData) -> Result<Credentials, StageFailure> {
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    match (text("token"), text("username"), text("password")) {
        (Some(token), ..) => Ok(Credentials::Bearer(token.into())),
        (None, Some(user), Some(password)) => Ok(Credentials::Basic {
            user,
            password: password.into(),
        }),
        _ => Err(unusable_secret(name, "token, or username and password")),
    }
}

fn unusable_secret(name: &str, required: &str) -> StageFailure {
    let message = format!("the Secret {name} in the host's namespace must hold {required}");
    StageFailure::new(Stage::Fetched, "SourceInvalid", message, Retry::Backoff)
}

/// Converts a category like `wrong-digest` to a reason like `WrongDigest`.
fn camel_case(words: &str) -> String {
    let capital = |word: &str| {
        let mut characters = word.chars();
        let first = characters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(characters).collect::<String>()
    };
    words.split('-').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_words_in_camel_case() {
        assert_eq!(camel_case("wrong-digest"), "WrongDigest");
        assert_eq!(camel_case("denied"), "Denied");
    }

    #[test]
    fn credentials_are_a_token_or_a_name_and_a_password() {
        let read = |keys: &[&str]| {
            let data = keys
                .iter()
                .map(|key| ((*key).to_owned(), ByteString(b"x".to_vec())));
            credentials("web", &data.collect())
        };
        assert!(matches!(read(&["token"]), Ok(Credentials::Bearer(_))));
        let basic = read(&["username", "password"]);
        assert!(matches!(basic, Ok(Credentials::Basic { .. })));
        let failure = read(&["username"]).err().unwrap();
        let message =
            "the Secret web in the host's namespace must hold token, or username and password";
        assert_eq!(failure.message, message);
    }
}
