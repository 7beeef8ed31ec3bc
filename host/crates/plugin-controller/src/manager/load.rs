//! From a declaration to a revision: fetch and verify the bytes, compile them, let the component describe itself, and
//! give it its configuration.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use innkeeper_cluster::Cluster;
use innkeeper_model::{Digest, Gvk, Limits, Object, Retry, error_chain};
use innkeeper_sandbox::{Described, Plugin};
use innkeeper_source::{
    ConfigMap, Credentials, DockerConfig, Expectation, Failure, Fetched, Fetcher, File, Http, Oci,
    PublicKey, Source,
};
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::{info, warn};

use super::{Attempt, Failed, Known, Manager};
use crate::{
    Workshop,
    lifecycle::{Stage, has_the_same_component, loads_the_same},
    resource::{Declared, Origin},
};

/// Bytes that were fetched, checked, compiled and described.
#[derive(Clone)]
pub(super) struct Component {
    described: Described,
    /// The verification that they passed, for people.
    pub(super) verified_by: String,
}

impl Component {
    /// The digest of the bytes.
    pub(super) fn digest(&self) -> &Digest {
        self.described.digest()
    }

    /// Makes one of bytes that are kept. Blocks for as long as compiling takes, if that is not kept, too.
    pub(super) fn of_kept(
        workshop: &Workshop,
        digest: &Digest,
        signed_by: Option<Digest>,
        limits: &Limits,
    ) -> Result<Self, Failed> {
        let cache = workshop.cache.as_ref();
        let bytes = cache.and_then(|cache| cache.kept(digest, &workshop.artifact_limits));
        let bytes = bytes.ok_or_else(|| {
            let message = format!("the bytes {digest} are not in the cache directory any more");
            Failed::new(Stage::Fetched, "NotKept", message, Retry::OnChange)
        })?;
        let verified_by = match signed_by {
            Some(key) => format!("{digest}, kept since it was fetched, signed by the key {key}"),
            None => format!("{digest}, kept since it was fetched"),
        };
        Ok(Self {
            described: compile(workshop, &bytes, limits)?,
            verified_by,
        })
    }
}

impl Manager {
    /// Attempts to load the declaration; for a loaded component only the configuration.
    pub(super) async fn load(&self, declared: &Declared, known: &mut Known) {
        let last = known.attempt.take();
        let repeats = |last: &Attempt| loads_the_same(&last.of, declared);
        if !last.as_ref().is_some_and(repeats) {
            known.delays = None;
        }
        let usable = |last: &Attempt| has_the_same_component(&last.of, declared) && !last.is_due();
        let component = last.filter(usable).and_then(|last| last.component);
        let component = match component {
            Some(component) => Ok(component),
            None => self.parts.loader.component(declared).await,
        };
        let ended = component
            .as_ref()
            .map_err(Failed::clone)
            .and_then(|component| configure(component, &declared.config));
        let retry_at = match &ended {
            Ok(_) => {
                known.delays = None;
                None
            }
            Err(failed) => known.due(failed.retry),
        };
        if let Err(Failed { problem, .. }) = &ended {
            let (plugin, stage) = (&declared.name, problem.stage);
            warn!(%plugin, ?stage, error = problem.message, "failed to load what a Plugin declares");
        }
        known.attempt = Some(Attempt {
            of: declared.clone(),
            component: component.ok(),
            ended: ended.map_err(|failed| failed.problem),
            at: Instant::now(),
            retry_at,
        });
    }
}

/// Loads the components that Plugins declare.
pub struct Loader {
    /// The reader of Secrets and ConfigMaps.
    pub cluster: Cluster,
    /// The dependencies of loading.
    pub workshop: Arc<Workshop>,
    /// The sources of bytes.
    pub fetcher: Fetcher,
    /// The namespace of the Secrets and ConfigMaps that sources name.
    pub namespace: String,
}

impl Loader {
    /// Returns the declared component without its configuration, from the cache or from its source.
    pub(super) async fn component(&self, declared: &Declared) -> Result<Component, Failed> {
        // A component named by its digest is the same from any source.
        if let Some(digest) = &declared.digest
            && let Ok(component) = self.kept(declared, digest).await
        {
            info!(plugin = %declared.name, %digest, "a plugin is here already");
            return Ok(component);
        }
        let fetched = self.fetch(declared).await?;
        let verified_by = verified_by(declared, &fetched);
        info!(plugin = %declared.name, digest = %fetched.digest, "fetched a plugin");
        let workshop = Arc::clone(&self.workshop);
        let limits = declared.charter.limits.clone();
        let work = move || {
            let described = compile(&workshop, &fetched.bytes, &limits)?;
            keep(&workshop, &fetched);
            Ok::<_, Failed>(described)
        };
        let described = tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| Failed::of(Stage::Compiled, "HostFault", &error, Retry::Backoff))??;
        Ok(Component {
            described,
            verified_by,
        })
    }

    /// A component out of bytes that are kept: of this digest, and signed as the Plugin asks for.
    pub(super) async fn kept(
        &self,
        declared: &Declared,
        digest: &Digest,
    ) -> Result<Component, Failed> {
        let not_kept =
            |message: String| Failed::new(Stage::Fetched, "NotKept", message, Retry::OnChange);
        let Some(cache) = &self.workshop.cache else {
            return Err(not_kept("there is no cache directory".to_owned()));
        };
        let keys: Vec<Digest> = declared.keys.iter().map(PublicKey::id).collect();
        let signed_by = cache.signer(digest, &keys).cloned();
        if signed_by.is_none() && !keys.is_empty() {
            let message =
                format!("the bytes {digest} are not known to be signed by one of the keys");
            return Err(not_kept(message));
        }
        let (workshop, digest) = (Arc::clone(&self.workshop), digest.clone());
        let limits = declared.charter.limits.clone();
        let work = move || Component::of_kept(&workshop, &digest, signed_by, &limits);
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| Failed::of(Stage::Compiled, "HostFault", &error, Retry::Backoff))?
    }

    async fn fetch(&self, declared: &Declared) -> Result<Fetched, Failed> {
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
                // It is cheap to read, and no event reports a change.
                (Retry::OnChange, Origin::ConfigMap { .. } | Origin::File { .. }) => Retry::Backoff,
                (retry, _) => retry,
            };
            Failed::of(stage, &camel_case(error.category()), &error, retry)
        })
    }

    /// A source with all that it takes to fetch from it.
    async fn source(&self, origin: &Origin) -> Result<Source, Failed> {
        Ok(match origin {
            Origin::Oci {
                reference,
                pull_secret,
                insecure,
            } => Source::Oci(Oci {
                reference: reference.clone(),
                docker_config: match pull_secret {
                    Some(name) => Some(docker_config(name, &self.secret(name).await?)?),
                    None => None,
                },
                insecure: *insecure,
            }),
            Origin::Http { url, secret } => Source::Http(Http {
                url: url.clone(),
                credentials: match secret {
                    Some(name) => Some(credentials(name, &self.secret(name).await?)?),
                    None => None,
                },
            }),
            Origin::ConfigMap { name, key } => {
                let map = self.object("ConfigMap", name).await?;
                Source::ConfigMap(ConfigMap {
                    // The cache only hands out JSON.
                    object: serde_json::from_str(&map.json).unwrap_or_default(),
                    key: key.clone(),
                })
            }
            Origin::File { path } => Source::File(File {
                path: path.display().to_string(),
            }),
        })
    }

    async fn secret(&self, name: &str) -> Result<BTreeMap<String, Vec<u8>>, Failed> {
        #[derive(Deserialize)]
        struct Secret {
            #[serde(default)]
            data: BTreeMap<String, Value>,
        }
        let secret = self.object("Secret", name).await?;
        let Ok(Secret { data }) = serde_json::from_str(&secret.json) else {
            return Err(unusable_secret(name, "data of the usual form"));
        };
        let decode = |value: &Value| STANDARD.decode(value.as_str()?).ok();
        let decoded = data.into_iter();
        Ok(decoded
            .filter_map(|(key, value)| Some((key, decode(&value)?)))
            .collect())
    }

    /// An object of the host's namespace, by a read of its own: it is in no cache.
    async fn object(&self, kind: &str, name: &str) -> Result<Object, Failed> {
        let namespace = &*self.namespace;
        let gvk = Gvk::new("", "v1", kind);
        let found = self.cluster.live_get(&gvk, Some(namespace), name).await;
        let found = found
            .map_err(|error| Failed::of(Stage::Fetched, "ReadFailed", &error, Retry::Backoff))?;
        found.ok_or_else(|| {
            let message = format!("there is no {kind} {name} in the host's namespace {namespace}");
            Failed::new(Stage::Fetched, "NotFound", message, Retry::Backoff)
        })
    }
}

/// Blocks for as long as compiling takes.
fn compile(workshop: &Workshop, bytes: &[u8], limits: &Limits) -> Result<Described, Failed> {
    let Workshop {
        engine,
        compiler,
        artifact_limits,
        ..
    } = workshop;
    let artifact = compiler.compile(engine, bytes, artifact_limits);
    let artifact = artifact
        .map_err(|error| Failed::of(Stage::Compiled, error.reason(), &error, error.retry()))?;
    Described::load(engine, &artifact, limits)
        .map_err(|error| Failed::of(Stage::Described, "CannotDescribe", &error, Retry::OnChange))
}

/// Keeps the fetched bytes for a later time without the source.
fn keep(workshop: &Workshop, fetched: &Fetched) {
    let Some(cache) = &workshop.cache else {
        return;
    };
    let Fetched {
        digest,
        bytes,
        signed_by,
        ..
    } = fetched;
    if let Err(error) = cache.keep(digest, bytes, signed_by.as_ref()) {
        warn!(%digest, error = %error_chain(&error), "failed to keep what was fetched");
    }
}

/// The revision that a component makes with a configuration.
pub(super) fn configure(
    component: &Component,
    config: &Map<String, Value>,
) -> Result<Arc<Plugin>, Failed> {
    let configured = component.described.configure(config);
    configured
        .map(Arc::new)
        .map_err(|error| Failed::of(Stage::Described, "ConfigInvalid", &error, Retry::OnChange))
}

fn verified_by(declared: &Declared, fetched: &Fetched) -> String {
    let digest = &fetched.digest;
    match (&fetched.signed_by, &declared.digest) {
        (Some(key), _) => format!("{digest}, signed by the key {key}"),
        (None, Some(_)) => format!("{digest}, as spec.digest says"),
        (None, None) => format!("{digest}; neither spec.digest nor spec.verify asks for more"),
    }
}

fn docker_config(name: &str, data: &BTreeMap<String, Vec<u8>>) -> Result<DockerConfig, Failed> {
    const KEY: &str = ".dockerconfigjson";

    let text = data.get(KEY).ok_or_else(|| unusable_secret(name, KEY))?;
    DockerConfig::from_json(text).map_err(|failure| {
        let message = format!(
            "the Secret {name} cannot be used: {}",
            error_chain(&failure)
        );
        Failed::new(Stage::Fetched, "SourceInvalid", message, Retry::Backoff)
    })
}

fn credentials(name: &str, data: &BTreeMap<String, Vec<u8>>) -> Result<Credentials, Failed> {
    let text = |key: &str| {
        let value = data.get(key)?.clone();
        String::from_utf8(value).ok()
    };
    match (text("token"), text("username"), text("password")) {
        (Some(token), ..) => Ok(Credentials::Bearer(token.into())),
        (None, Some(user), Some(password)) => Ok(Credentials::Basic {
            user,
            password: password.into(),
        }),
        _ => Err(unusable_secret(name, "token, or username and password")),
    }
}

fn unusable_secret(name: &str, lacking: &str) -> Failed {
    let message = format!("the Secret {name} of the host's namespace does not hold {lacking}");
    Failed::new(Stage::Fetched, "SourceInvalid", message, Retry::Backoff)
}

/// `WrongDigest` of `wrong-digest`.
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
            let data = keys.iter().map(|key| ((*key).to_owned(), b"x".to_vec()));
            credentials("web", &data.collect())
        };
        assert!(matches!(read(&["token"]), Ok(Credentials::Bearer(_))));
        let basic = read(&["username", "password"]);
        assert!(matches!(basic, Ok(Credentials::Basic { .. })));
        let lacking = read(&["username"]).err().unwrap();
        let message =
            "the Secret web of the host's namespace does not hold token, or username and password";
        assert_eq!(lacking.problem.message, message);
    }
}
