//! From a declaration to a revision: fetches, verifies, compiles, describes and configures the component.

mod marker;
mod marks;
mod permits;
mod progress;

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_cluster::Cluster;
use innkeeper_model::{
    ANNOTATION_HOSTS, Digest, Gvk, Object, ObjectId, PluginReason, Requests, Retry, Uid,
    error_chain,
};
use innkeeper_policy::Shortfall;
use innkeeper_sandbox::{
    Described, Plugin,
    artifact::{self, Needs},
    description::{self, Preview},
    manifest,
};
use innkeeper_source::{
    ConfigMap, Credentials, DockerConfig, Expectation, FailureKind, Fetched, Fetcher, File, Http,
    Oci, PublicKey, Source,
};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

#[cfg(test)]
pub(crate) use self::progress::Reporter;
pub(crate) use self::{marker::LoadId, progress::Loading};
use self::{
    marker::LoadMarker,
    permits::{LoadPermits, Permit},
};
use crate::{
    LoaderContext,
    context::id_of,
    resource::{self, Declared, HttpSource, Identity, LocalRef, Origin, Terms},
    stage::{Stage, StageFailure},
};

/// A Secret's values by key.
type SecretData = BTreeMap<String, ByteString>;

/// A component that was fetched, verified, compiled and described.
#[derive(Clone)]
pub(crate) struct VerifiedComponent {
    pub(crate) described: Described,
    /// The verification that the bytes passed, for people.
    pub(crate) verified_by: String,
}

impl VerifiedComponent {
    /// Returns the digest for the bytes.
    pub(crate) fn digest(&self) -> &Digest {
        self.described.digest()
    }
}

/// Loads the components that Plugins declare.
pub struct Loader {
    /// Reads Secrets and ConfigMaps.
    pub cluster: Cluster,
    /// Dependencies for loading.
    pub context: Arc<LoaderContext>,
    /// Fetches bytes from their sources.
    pub fetcher: Fetcher,
    /// The namespace for Secrets and ConfigMaps that sources reference.
    pub namespace: String,
    /// Limits concurrent loads.
    permits: LoadPermits,
    /// Marks running loads.
    marker: LoadMarker,
}

impl Loader {
    /// Returns a loader that reads referenced Secrets and ConfigMaps in a namespace; `now` returns the wall clock.
    pub fn new(
        cluster: Cluster,
        context: Arc<LoaderContext>,
        fetcher: Fetcher,
        namespace: String,
        now: fn() -> Timestamp,
    ) -> Self {
        Self {
            marker: LoadMarker::new(context.cache.clone(), now),
            cluster,
            context,
            fetcher,
            namespace,
            permits: LoadPermits::default(),
        }
    }

    /// Returns the declared component without configuration, from the cache or from the source. Calls `begin` for each
    /// stage after the first.
    pub(crate) async fn component(
        &self,
        declared: &Declared,
        load: &LoadId,
        begin: impl Fn(Stage),
    ) -> Result<VerifiedComponent, StageFailure> {
        let mut turn = self.marker.admit(load).await?;
        let mut marked = None;
        // A component with this digest is the same from any source, so the source need not be available.
        if let Some(digest) = &declared.digest {
            let permit = self.permits.local(declared).await;
            marked = Some(self.marker.begin(load, turn.take()));
            if let Ok(component) = self.load_kept(declared, digest, permit).await {
                info!(plugin = %declared.name, %digest, "loaded the component from the cache directory");
                return Ok(component);
            }
        }
        let permit = self.permits.remote(declared).await;
        // Only with a permit: a load that waits for one is not a suspect. Both attempts share one mark, because the
        // mark's end would reset the count.
        let _marked = marked.unwrap_or_else(|| self.marker.begin(load, turn));
        let fetched = self.fetch(declared).await?;
        // Also if it cannot be compiled: the cache keeps the verdict or code until another one is fetched.
        let spare = [fetched.digest.clone()].into();
        let needs = Needs {
            spare,
            ..Needs::default()
        };
        let owner = fetched_for(&id_of(&declared.name));
        self.context.cache.need(owner, needs);
        begin(Stage::Compiled);
        let verified_by = verified_by(declared, &fetched);
        info!(plugin = %declared.name, digest = %fetched.digest, "fetched a plugin");
        let context = Arc::clone(&self.context);
        let terms = declared.terms.clone();
        let identity = declared.identity.clone();
        let (described, fetched) = blocking(move || {
            let described = compile(&context, &fetched.bytes, &terms)?;
            // Only now, also if the load was cancelled: the compiler cannot be interrupted.
            drop(permit);
            check_identity(&identity, &described)?;
            Ok((described, fetched))
        })
        .await?;
        let context = Arc::clone(&self.context);
        let identity = declared.identity.clone();
        // A cancelled load does not get here: its bytes could come after those of the next load.
        blocking(move || {
            keep(&context, &fetched, &identity);
            Ok(VerifiedComponent {
                described,
                verified_by,
            })
        })
        .await
    }

    /// Returns the cached component with this digest, if its bytes are signed as the Plugin requires.
    pub(crate) async fn kept(
        &self,
        declared: &Declared,
        digest: &Digest,
        load: &LoadId,
    ) -> Result<VerifiedComponent, StageFailure> {
        let turn = self.marker.admit(load).await?;
        let permit = self.permits.local(declared).await;
        let _marked = self.marker.begin(load, turn);
        self.load_kept(declared, digest, permit).await
    }

    async fn load_kept(
        &self,
        declared: &Declared,
        digest: &Digest,
        permit: Permit,
    ) -> Result<VerifiedComponent, StageFailure> {
        let not_kept =
            |message| Stage::Fetched.failure(PluginReason::NotKept, message, Retry::OnChange);
        let cache = &self.context.cache;
        let identity = declared.identity.clone();
        // The digest alone proves no signature: the bytes may be from before the Plugin required one.
        let mut keys = declared.keys.iter().map(PublicKey::id);
        let signed_by = keys.find(|key| cache.signer(digest, &[identity.mark(key)]).is_some());
        if signed_by.is_none() && !declared.keys.is_empty() {
            let message = format!(
                "the cache directory has no signature of {digest} by a key in spec.verify.keys"
            );
            return Err(not_kept(message));
        }
        let context = Arc::clone(&self.context);
        let digest = digest.clone();
        let terms = declared.terms.clone();
        blocking(move || {
            let bytes = context
                .cache
                .kept(&digest, &context.artifact_limits)
                .ok_or_else(|| {
                    not_kept(format!(
                        "the cache directory does not hold the bytes {digest}"
                    ))
                })?;
            let signature =
                signed_by.map_or_else(String::new, |key| format!(", signed by the key {key}"));
            let described = compile(&context, &bytes, &terms)?;
            drop(permit);
            check_identity(&identity, &described)?;
            Ok(VerifiedComponent {
                described,
                verified_by: format!("{digest}, from the cache directory{signature}"),
            })
        })
        .await
    }

    /// Returns the revision for a component and a configuration. A child process checks the configuration.
    pub(crate) async fn configure(
        &self,
        component: &VerifiedComponent,
        config: &Map<String, Value>,
    ) -> Result<Arc<Plugin>, StageFailure> {
        let context = Arc::clone(&self.context);
        let config = config.clone();
        let described = component.described.clone();
        blocking(move || {
            described
                .configure(&config, &context.config_checker)
                .map(Arc::new)
                .map_err(|error| Stage::Described.error(error.reason(), &error, error.retry()))
        })
        .await
    }

    /// Sets the components that a Plugin needs beside the last fetched one. The cache removes those that no Plugin
    /// needs any more.
    pub(crate) fn need(&self, id: &ObjectId, needs: Needs) {
        self.context.cache.need(id.to_string(), needs);
    }

    /// Forgets a deleted Plugin's needs and, with a UID, the marks for its loads.
    pub(crate) fn forget(&self, id: &ObjectId, uid: Option<&Uid>) {
        for owner in [id.to_string(), fetched_for(id)] {
            self.context.cache.need(owner, Needs::default());
        }
        if let Some(uid) = uid {
            self.marker.forget(uid);
        }
    }

    /// Forgets the load marks for all other Plugins.
    pub(crate) fn forget_marks_of_others(&self, uids: &[Uid]) {
        self.marker.forget_others(uids);
    }

    async fn fetch(&self, declared: &Declared) -> Result<Fetched, StageFailure> {
        let source = self.source(&declared.origin).await?;
        let expectation = Expectation {
            digest: declared.digest.clone(),
            keys: declared.keys.clone(),
            repository: declared.identity.repository.clone(),
        };
        self.fetcher
            .fetch(&source, &expectation)
            .await
            .map_err(|error| {
                let stage = match error.source.kind {
                    FailureKind::WrongDigest
                    | FailureKind::Unsigned
                    | FailureKind::BadSignature => Stage::Verified,
                    _ => Stage::Fetched,
                };
                let retry = match (error.retry(), &declared.origin) {
                    // These are cheap to read, and no event reports a change.
                    (Retry::OnChange, Origin::ConfigMap(_) | Origin::File(_)) => Retry::Backoff,
                    (retry, _) => retry,
                };
                stage.error(error.reason(), &error, retry)
            })
    }

    /// Returns a source with the credentials and objects for a fetch from it.
    async fn source(&self, origin: &Origin) -> Result<Source, StageFailure> {
        Ok(match origin {
            Origin::Oci(oci, reference) => Source::Oci(Oci {
                reference: reference.clone(),
                docker_config: match &oci.pull_secret_ref {
                    Some(LocalRef { name }) => {
                        let secret = self.object("Secret", name).await?;
                        Some(docker_config(name, &data(&secret))?)
                    }
                    None => None,
                },
                insecure: oci.insecure,
            }),
            Origin::Http(HttpSource { url, secret_ref }) => {
                let mut http = Http {
                    url: url.clone(),
                    credentials: None,
                };
                if let Some(LocalRef { name }) = secret_ref {
                    let secret = self.object("Secret", name).await?;
                    let hosts = secret.annotation(ANNOTATION_HOSTS);
                    check_host(name, hosts.unwrap_or_default(), &http)?;
                    http.credentials = Some(credentials(name, &data(&secret))?);
                }
                Source::Http(http)
            }
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

    /// Reads an object from the host's namespace with a live request: the host watches neither Secrets nor ConfigMaps
    /// for sources.
    async fn object(&self, kind: &str, name: &str) -> Result<Object, StageFailure> {
        let namespace = &*self.namespace;
        let gvk = Gvk::new("", "v1", kind);
        self.cluster
            .live_get(&gvk, Some(namespace), name)
            .await
            .map_err(|error| {
                Stage::Fetched.error(PluginReason::ReadFailed, &error, Retry::Backoff)
            })?
            .ok_or_else(|| {
                let message =
                    format!("there is no {kind} {name} in the host's namespace {namespace}");
                Stage::Fetched.failure(PluginReason::NotFound, message, Retry::Backoff)
            })
    }
}

/// Returns the owner name for the component fetched last for a Plugin.
fn fetched_for(id: &ObjectId) -> String {
    format!("the last fetch for {id}")
}

/// Runs work as slow as a compilation on a separate thread; a panic becomes a failure.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StageFailure> + Send + 'static,
) -> Result<T, StageFailure> {
    spawn_blocking(work)
        .await
        .map_err(|error| Stage::Compiled.error(PluginReason::HostFault, &error, Retry::Backoff))?
}

/// Compiles and describes a component, if any parent kind is granted.
///
/// Blocks during the compilation.
fn compile(
    context: &LoaderContext,
    bytes: &[u8],
    terms: &Terms,
) -> Result<Described, StageFailure> {
    let engine = &context.engine;
    let limits = &context.artifact_limits;
    let not_compiled =
        |error: artifact::Error| Stage::Compiled.error(error.reason(), &error, error.retry());
    if let Err(failure) = may_compile(terms, description::preview(bytes)) {
        // No grant would help a rejected schema, or bytes that are no plugin.
        description::check_schema(bytes).map_err(|error| {
            Stage::Compiled.error(PluginReason::CannotDescribe, &error, Retry::OnChange)
        })?;
        artifact::check(bytes, limits).map_err(not_compiled)?;
        return Err(failure);
    }
    let artifact = context
        .compiler
        .compile(engine, bytes, limits)
        .map_err(not_compiled)?;
    Described::load(engine, &artifact, &terms.limits).map_err(|error| {
        Stage::Described.error(PluginReason::CannotDescribe, &error, Retry::OnChange)
    })
}

/// Checks by the embedded description that a parent kind is granted.
///
/// Otherwise anyone who may write Plugins could make the host compile as much as they like.
fn may_compile(
    terms: &Terms,
    embedded: Result<Option<Preview>, manifest::Error>,
) -> Result<(), StageFailure> {
    let requests = match embedded {
        // The author may have embedded another description, so the component's own is checked after compiling.
        Ok(Some(preview)) => preview.requests,
        // Only users who may grant can grant a parent, and one of them wants this plugin.
        _ if !terms.grants.parents.is_empty() => return Ok(()),
        other => {
            let why = other.err().map_or_else(
                || "the component has no embedded description of its parents".to_owned(),
                |error| error_chain(&error).to_string(),
            );
            let message = format!(
                "not compiled, because spec.grants.parents is empty and {why}: add the parents to spec.grants.parents, or build the component with innkeeper build"
            );
            return Err(Stage::Compiled.failure(
                PluginReason::NotGranted,
                message,
                Retry::OnChange,
            ));
        }
    };
    let missing = &terms.assess(requests.clone()).missing;
    if missing
        .iter()
        .any(|shortfall| matches!(shortfall, Shortfall::Parent(_)))
    {
        granted(terms, requests)?;
    }
    Ok(())
}

fn check_identity(identity: &Identity, described: &Described) -> Result<(), StageFailure> {
    identity
        .check(described.manifest())
        .map_err(|(reason, message)| Stage::Verified.failure(reason, message, Retry::OnChange))
}

/// Caches the fetched bytes, so a later process needs no source. A failure costs only that.
fn keep(context: &LoaderContext, fetched: &Fetched, identity: &Identity) {
    let digest = &fetched.digest;
    let mark = fetched.signed_by.as_ref().map(|key| identity.mark(key));
    if let Err(error) = context.cache.keep(digest, &fetched.bytes, mark.as_ref()) {
        warn!(%digest, error = %error_chain(&error), "failed to write a component to the cache directory");
    }
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

/// Returns a Secret's values.
fn data(secret: &Object) -> SecretData {
    // An unreadable Secret counts as empty; the caller names the keys that it requires.
    let secret: Secret = serde_json::from_str(&secret.json).unwrap_or_default();
    secret.data.unwrap_or_default()
}

fn docker_config(name: &str, data: &SecretData) -> Result<DockerConfig, StageFailure> {
    const KEY: &str = ".dockerconfigjson";

    let text = data.get(KEY).ok_or_else(|| unusable_secret(name, KEY))?;
    DockerConfig::from_json(&text.0).map_err(|failure| {
        let cause = error_chain(&failure);
        let message = format!("failed to read {KEY} of the Secret {name}: {cause}");
        Stage::Fetched.failure(PluginReason::SourceInvalid, message, Retry::Backoff)
    })
}

/// Checks that a Secret is meant for a server.
///
/// Without the Secret's annotation, an author of Plugins could send any Secret in the host's namespace anywhere.
fn check_host(name: &str, hosts: &str, http: &Http) -> Result<(), StageFailure> {
    if http.is_at_one_of(hosts) {
        return Ok(());
    }
    let message = format!(
        "the Secret {name} in the host's namespace does not name the server of spec.source.http.url: add the server's host to its annotation {ANNOTATION_HOSTS}, separated by commas"
    );
    Err(Stage::Fetched.failure(PluginReason::SecretNotForHost, message, Retry::Backoff))
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
    // The host does not watch Secrets, so no event reports a correction.
    Stage::Fetched.failure(PluginReason::SourceInvalid, message, Retry::Backoff)
}

/// Checks that terms grant all that a plugin requires.
pub(crate) fn granted(terms: &Terms, requests: impl Into<Requests>) -> Result<(), StageFailure> {
    let assessment = terms.assess(requests);
    if assessment.serves() {
        return Ok(());
    }
    let message = resource::lines(&assessment).unwrap_or_default();
    Err(StageFailure {
        // As a whole: users add these lines to the Plugin.
        message,
        ..Stage::Granted.failure(PluginReason::NotGranted, "", Retry::OnChange)
    })
}

#[cfg(test)]
mod tests {
    use innkeeper_model::Manifest;
    use serde_json::json;

    use super::*;
    use crate::testing::declared;

    /// A component without content.
    const BARE: &[u8] = b"\0asm\x0d\0\x01\0";

    #[test]
    fn only_a_component_with_a_granted_kind_of_parents_is_compiled() {
        let of = |group, kind| json!({"group": group, "kind": kind});
        let web = of("example.com", "Web");
        let description = |parents: &[&str]| {
            let parent = |kind: &&str| {
                let plural = kind.to_lowercase();
                json!({"apiVersion": "example.com/v1", "kind": kind, "plural": plural, "scope": "Namespaced"})
            };
            let parents: Vec<Value> = parents.iter().map(parent).collect();
            // A required child without a grant is only rejected after compiling.
            let child = json!({"apiVersion": "v1", "kind": "Pod", "required": true});
            let manifest = serde_json::from_value::<Manifest>(json!({
                "name": "web", "version": "1", "finalize": false, "readsOwnStatus": false, "parents": parents, "crds": [],
                "children": [child], "reads": [],
            }));
            description::embed(BARE, &manifest.unwrap())
        };
        let web_only = description(&["Web"]);
        let both = description(&["Web", "Shop"]);
        let twice = [&*web_only, &both[BARE.len()..]].concat();
        for (parents, component, refused_at) in [
            (json!([]), BARE, Some(Stage::Compiled)),
            (json!([of("example.com", "Other")]), BARE, None),
            (json!([]), &twice, Some(Stage::Compiled)),
            (json!([web]), &twice, None),
            (json!([]), &web_only, Some(Stage::Granted)),
            (
                json!([of("example.org", "Web")]),
                &web_only,
                Some(Stage::Granted),
            ),
            (json!([web]), &web_only, None),
            (json!([web]), &both, None),
            (json!([web, of("example.com", "Shop")]), &both, None),
        ] {
            let declared = declared(json!({"grants": {"parents": parents}}));
            let refused = may_compile(&declared.terms, description::preview(component)).err();
            let stage = refused.as_ref().map(|failure| failure.stage);
            assert_eq!(stage, refused_at, "{parents} {}", component.escape_ascii());
            let reason = refused.map(|failure| failure.reason);
            assert_eq!(reason, stage.map(|_| PluginReason::NotGranted));
        }
    }

    #[test]
    fn the_lines_of_many_missing_grants_are_not_cut() {
        let children = (0..60).map(|number| {
            json!({"apiVersion": "example.com/v1", "kind": format!("Part{number}"), "required": true})
        });
        let manifest = serde_json::from_value::<Manifest>(json!({
            "name": "web", "version": "1", "finalize": false, "readsOwnStatus": false, "parents": [], "crds": [],
            "children": children.collect::<Vec<_>>(), "reads": [],
        }));
        let failure = granted(&declared(json!({})).terms, &manifest.unwrap()).unwrap_err();
        assert!(failure.message.ends_with("kind: Part59\n"), "{failure:?}");
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

    #[test]
    fn a_secret_goes_only_to_the_hosts_that_it_names() {
        let http = Http {
            url: "https://plugins.test/web.wasm".to_owned(),
            credentials: None,
        };
        assert!(check_host("web", "other.test, plugins.test", &http).is_ok());
        for hosts in ["", "other.test", "plugins.test.other.test"] {
            let failure = check_host("web", hosts, &http).err().unwrap();
            assert_eq!(failure.reason, PluginReason::SecretNotForHost, "{hosts}");
            assert!(failure.message.contains(ANNOTATION_HOSTS), "{hosts}");
        }
    }
}
