//! A cluster user who applies, edits, deletes and reads objects.

use std::{collections::BTreeMap, fmt, path::Path, sync::Mutex, time::Duration};

use anyhow::{Context as _, Result};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams},
    config::{KubeConfigOptions, Kubeconfig},
    core::{GroupVersionKind, TypeMeta},
    discovery::{self, ApiGroup, Discovery, Scope, verbs},
};
use serde_json::Value;
use tokio::{runtime::Runtime, time::timeout};

/// The field manager for user writes.
const MANAGER: &str = "test-user";

/// A client with one identity, usable from synchronous tests.
pub struct User {
    runtime: Runtime,
    client: Client,
    known: Mutex<BTreeMap<(String, String), (ApiResource, bool)>>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "the tests act as users, who write directly"
)]
impl User {
    /// Connects with a kubeconfig file.
    pub fn connect(kubeconfig: &Path) -> Result<Self> {
        Self::connect_with(Kubeconfig::read_from(kubeconfig)?)
    }

    /// Connects with a kubeconfig file whose user may impersonate others, as the user `name` without groups.
    pub fn connect_as(kubeconfig: &Path, name: &str) -> Result<Self> {
        let mut kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        for named in &mut kubeconfig.auth_infos {
            let info = named.auth_info.get_or_insert_default();
            info.impersonate = Some(name.to_owned());
        }
        Self::connect_with(kubeconfig)
    }

    fn connect_with(kubeconfig: Kubeconfig) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let client = runtime.block_on(async {
            let config =
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        Ok(Self {
            runtime,
            client,
            known: Mutex::default(),
        })
    }

    /// The underlying client, for requests that this type has no method for.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Blocks until a future completes.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// Applies an object with `force`, as `kubectl apply --server-side --force-conflicts` does.
    pub fn apply(&self, object: &Value) -> Result<Value> {
        self.apply_as(MANAGER, object)
    }

    /// Applies an object with `force` as a field manager.
    pub fn apply_as(&self, manager: &str, object: &Value) -> Result<Value> {
        let api = self.api_of(object)?;
        let name = object["metadata"]["name"]
            .as_str()
            .context("the object has no name")?;
        let params = PatchParams::apply(manager).force();
        let applied = self
            .runtime
            .block_on(api.patch(name, &params, &Patch::Apply(object)))?;
        Ok(serde_json::to_value(applied)?)
    }

    /// Applies an object's status with `force` as a field manager.
    pub fn apply_status_as(&self, manager: &str, object: &Value) -> Result<Value> {
        let api = self.api_of(object)?;
        let name = object["metadata"]["name"]
            .as_str()
            .context("the object has no name")?;
        let params = PatchParams::apply(manager).force();
        let applied =
            self.runtime
                .block_on(api.patch_status(name, &params, &Patch::Apply(object)))?;
        Ok(serde_json::to_value(applied)?)
    }

    /// Creates an object as `kubectl create` does.
    pub fn create(&self, object: &Value) -> Result<Value> {
        let api = self.api_of(object)?;
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let created = self
            .runtime
            .block_on(api.create(&Default::default(), &object))?;
        Ok(serde_json::to_value(created)?)
    }

    /// Replaces an object at this resource version, as `kubectl replace` does.
    pub fn replace(&self, object: &Value) -> Result<Value> {
        let api = self.api_of(object)?;
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        let name = object
            .metadata
            .name
            .as_deref()
            .context("the object has no name")?;
        let replaced = self
            .runtime
            .block_on(api.replace(name, &Default::default(), &object))?;
        Ok(serde_json::to_value(replaced)?)
    }

    /// Merges a patch into an object, as `kubectl patch --type=merge` does.
    pub fn merge(&self, kind: Kind<'_>, name: &str, patch: &Value) -> Result<Value> {
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..Default::default()
        };
        let api = self.api(kind)?;
        let patched = self
            .runtime
            .block_on(api.patch(name, &params, &Patch::Merge(patch)))?;
        Ok(serde_json::to_value(patched)?)
    }

    /// Merges a patch into an object's status.
    pub fn merge_status(&self, kind: Kind<'_>, name: &str, patch: &Value) -> Result<Value> {
        let api = self.api(kind)?;
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..Default::default()
        };
        let patched =
            self.runtime
                .block_on(api.patch_status(name, &params, &Patch::Merge(patch)))?;
        Ok(serde_json::to_value(patched)?)
    }

    /// Reads one object; none if it does not exist.
    pub fn get(&self, kind: Kind<'_>, name: &str) -> Result<Option<Value>> {
        let api = self.api(kind)?;
        let object = self.runtime.block_on(api.get_opt(name))?;
        Ok(object.map(serde_json::to_value).transpose()?)
    }

    /// Returns true if a list succeeds within two seconds: a client retries responses with status 429 for minutes.
    pub fn can_list(&self, kind: Kind<'_>) -> Result<bool> {
        let api = self.api(kind)?;
        let params = ListParams::default();
        let list = async { timeout(Duration::from_secs(2), api.list(&params)).await };
        Ok(matches!(self.runtime.block_on(list), Ok(Ok(_))))
    }

    /// Lists a kind's objects that match a label selector.
    pub fn list(&self, kind: Kind<'_>, selector: &str) -> Result<Vec<Value>> {
        let api = self.api(kind)?;
        let params = ListParams::default().labels(selector);
        let objects = self.runtime.block_on(api.list(&params))?;
        objects
            .items
            .into_iter()
            .map(|mut item| {
                // The API server sets apiVersion and kind once for the list, not for each item.
                item.types = Some(TypeMeta {
                    api_version: kind.api_version.to_owned(),
                    kind: kind.kind.to_owned(),
                });
                Ok(serde_json::to_value(item)?)
            })
            .collect()
    }

    /// Lists all objects in a namespace, except Events.
    pub fn everything(&self, namespace: &str) -> Result<Vec<Value>> {
        let served = self.runtime.block_on(Discovery::new(self.client()).run())?;
        let mut all = Vec::new();
        for (resource, capabilities) in served.groups().flat_map(ApiGroup::recommended_resources) {
            let is_listed = capabilities.scope == Scope::Namespaced
                && capabilities.supports_operation(verbs::LIST)
                && resource.kind != "Event";
            if is_listed {
                let kind = Kind::new(&resource.api_version, &resource.kind, namespace);
                all.extend(self.list(kind, "")?);
            }
        }
        Ok(all)
    }

    /// Deletes an object; a missing object is not an error.
    pub fn delete(&self, kind: Kind<'_>, name: &str) -> Result<()> {
        self.delete_with(kind, name, &DeleteParams::default())
    }

    /// Deletes an object with parameters; a missing object is not an error.
    pub fn delete_with(&self, kind: Kind<'_>, name: &str, params: &DeleteParams) -> Result<()> {
        let api = self.api(kind)?;
        match self.runtime.block_on(api.delete(name, params)) {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn api_of(&self, object: &Value) -> Result<Api<DynamicObject>> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let api_version = text(&object["apiVersion"]).context("the object has no apiVersion")?;
        let kind = text(&object["kind"]).context("the object has no kind")?;
        let namespace = text(&object["metadata"]["namespace"]);
        self.api(Kind {
            api_version: &api_version,
            kind: &kind,
            namespace: namespace.as_deref(),
        })
    }

    fn api(&self, kind: Kind<'_>) -> Result<Api<DynamicObject>> {
        let (resource, namespaced) = self.resource(kind)?;
        Ok(match kind.namespace {
            Some(namespace) if namespaced => {
                Api::namespaced_with(self.client.clone(), namespace, &resource)
            }
            _ => Api::all_with(self.client.clone(), &resource),
        })
    }

    pub(crate) fn resource(&self, kind: Kind<'_>) -> Result<(ApiResource, bool)> {
        let key = (kind.api_version.to_owned(), kind.kind.to_owned());
        let resources = self
            .known
            .lock()
            .expect("no test panics while it looks a kind up");
        if let Some(resource) = resources.get(&key) {
            return Ok(resource.clone());
        }
        drop(resources);
        let (group, version) = kind
            .api_version
            .split_once('/')
            .unwrap_or(("", kind.api_version));
        let gvk = GroupVersionKind::gvk(group, version, kind.kind);
        let (resource, capabilities) = self
            .runtime
            .block_on(discovery::pinned_kind(&self.client, &gvk))?;
        let scope = (resource, capabilities.scope == Scope::Namespaced);
        let mut resources = self
            .known
            .lock()
            .expect("no test panics while it looks a kind up");
        resources.insert(key, scope.clone());
        Ok(scope)
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").finish_non_exhaustive()
    }
}

/// A kind, and the namespace of the objects.
#[derive(Clone, Copy, Debug)]
pub struct Kind<'a> {
    /// `apps/v1`.
    pub api_version: &'a str,
    /// `Deployment`.
    pub kind: &'a str,
    /// The namespace; `None` for all namespaces and for cluster-scoped kinds.
    pub namespace: Option<&'a str>,
}

impl<'a> Kind<'a> {
    /// A kind in a namespace.
    pub fn new(api_version: &'a str, kind: &'a str, namespace: &'a str) -> Self {
        Self {
            api_version,
            kind,
            namespace: Some(namespace),
        }
    }

    /// A cluster-scoped kind, or a namespaced one in all namespaces.
    pub fn cluster(api_version: &'a str, kind: &'a str) -> Self {
        Self {
            api_version,
            kind,
            namespace: None,
        }
    }
}
