//! The manifest: identity and requests of a plugin.
//!
//! A manifest grants nothing; the cluster's administrator decides which requests are granted.

use kube::{CustomResourceExt, Resource};
use schemars::JsonSchema;
use serde_json::Value;

use crate::children::group_of;
use crate::config;
use crate::crd::Crd;

/// The scope of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Objects live in namespaces.
    Namespaced,
    /// Objects belong to the whole cluster.
    Cluster,
}

/// The part of an object that the plugin sees, from largest to smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The whole object.
    Full,
    /// `apiVersion`, `kind` and `metadata` only.
    Metadata,
    /// Secrets and ConfigMaps: type, metadata, and per data key a hash instead of the value.
    Hash,
}

/// The namespaces from which objects are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// The namespace of the parent.
    ParentNamespace,
    /// The whole cluster; needed for cluster-scoped kinds.
    Cluster,
}

/// A kind of parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentKind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version that the plugin reads and writes.
    pub version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// The lower-case plural.
    pub plural: String,
    /// The scope of the kind.
    pub scope: Scope,
}

/// A kind of child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildKind {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// False: the plugin serves without the grant for the kind, and on a cluster that does not serve it the
    /// host skips its children and applies the rest.
    pub required: bool,
    /// The condition whose status `True` makes a child of this kind ready; none: the rule of the host
    /// for the kind.
    pub ready_condition: Option<String>,
    /// True if the plugin deletes no child of this kind.
    pub never_deleted: bool,
}

/// A kind that the plugin reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadKind {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// The part of each object.
    pub access: Access,
    /// The namespaces.
    pub scope: ReadScope,
    /// A label selector in Kubernetes' text form that limits the read; none: all objects.
    pub label_selector: Option<String>,
}

impl ReadKind {
    /// True if this is a request for reads of the kind, in any version.
    pub(crate) fn is_of(&self, api_version: &str, kind: &str) -> bool {
        group_of(&self.api_version) == group_of(api_version) && self.kind == kind
    }
}

/// Identity and requests of a plugin, filled in by `describe`.
///
/// ```
/// use innkeeper_sdk::manifest::{Access, Manifest, ReadScope};
/// use k8s_openapi::api::{apps::v1::Deployment, core::v1::{Pod, Secret}};
///
/// let manifest = Manifest::new("memcached", "1.0.0")
///     .child::<Deployment>()
///     .optional_child("monitoring.coreos.com/v1", "ServiceMonitor")
///     .read::<Secret>(Access::Hash, ReadScope::ParentNamespace)
///     .read::<Pod>(Access::Metadata, ReadScope::ParentNamespace)
///     .label_selector("app.kubernetes.io/managed-by=innkeeper");
/// assert_eq!(manifest.children.len(), 2);
/// assert!(manifest.reads[1].label_selector.is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The plugin's name: a DNS label of at most 40 characters.
    pub name: String,
    /// The plugin's own version, shown to users and never compared.
    pub version: String,
    /// The kinds of parents.
    pub parents: Vec<ParentKind>,
    /// CustomResourceDefinitions that the plugin brings.
    pub crds: Vec<Value>,
    /// Each kind of child that an answer may contain.
    pub children: Vec<ChildKind>,
    /// Each kind that the plugin reads.
    pub reads: Vec<ReadKind>,
    /// True if the plugin has work to do before a parent is deleted.
    pub finalize: bool,
    /// True if an answer depends on the parent's own status, so that each write of the status triggers a pass.
    pub reads_own_status: bool,
    /// A schema that the plugin's configuration must satisfy, in the form of CustomResourceDefinitions; none: only `{}` is
    /// accepted.
    pub config_schema: Option<Value>,
}

impl Manifest {
    /// A manifest without kinds; `env!("CARGO_PKG_VERSION")` is a good version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            parents: Vec::new(),
            crds: Vec::new(),
            children: Vec::new(),
            reads: Vec::new(),
            finalize: false,
            reads_own_status: false,
            config_schema: None,
        }
    }

    /// Adds a kind of parent with the definition of [`Crd::for_kind`].
    ///
    /// # Panics
    ///
    /// Panics as [`Crd::for_kind`] does.
    pub fn parent<T: CustomResourceExt + JsonSchema + Resource<DynamicType = ()>>(self) -> Self {
        self.parent_with::<T>(|crd| crd)
    }

    /// Adds a kind of parent after a change of its definition: rules, properties beside `spec`,
    /// shorter descriptions.
    ///
    /// # Panics
    ///
    /// Panics as [`Crd::for_kind`] and `edit` do.
    pub fn parent_with<T: CustomResourceExt + JsonSchema + Resource<DynamicType = ()>>(
        mut self,
        edit: impl FnOnce(Crd) -> Crd,
    ) -> Self {
        let crd = edit(Crd::for_kind::<T>());
        self.parents.push(ParentKind {
            group: T::group(&()).into_owned(),
            version: T::version(&()).into_owned(),
            kind: T::kind(&()).into_owned(),
            plural: T::plural(&()).into_owned(),
            scope: if crd.value()["spec"]["scope"] == "Cluster" {
                Scope::Cluster
            } else {
                Scope::Namespaced
            },
        });
        self.crd(crd)
    }

    /// Adds a kind of parent whose definition the cluster has already, or [`crd`](Self::crd) brings.
    pub fn parent_without_crd(mut self, parent: ParentKind) -> Self {
        self.parents.push(parent);
        self
    }

    /// Adds a definition, of a parent or of a kind that the plugin only reads.
    ///
    /// Texts, lists and maps without a bound get one, see [`Crd::bounded`].
    pub fn crd(mut self, crd: Crd) -> Self {
        self.crds.push(crd.bounded().into_value());
        self
    }

    /// Adds a kind of child that each cluster must serve and each administrator must grant.
    pub fn child<T: Resource<DynamicType = ()>>(self) -> Self {
        self.child_kind(&T::api_version(&()), &T::kind(&()), true)
    }

    /// True if the plugin asks for reads of a kind, in any version.
    pub(crate) fn declares_read(&self, api_version: &str, kind: &str) -> bool {
        self.reads.iter().any(|it| it.is_of(api_version, kind))
    }

    /// Makes the last added kind of child optional.
    ///
    /// A plugin serves without the grant for an optional kind and where the cluster does not serve it: only
    /// the parents whose answers have such a child report it. Kinds of features that a parent switches on
    /// are optional, so that a new version of the plugin serves with the grants of the last one.
    ///
    /// ```
    /// use innkeeper_sdk::manifest::Manifest;
    /// use k8s_openapi::api::core::v1::Service;
    /// use k8s_openapi::api::networking::v1::Ingress;
    ///
    /// // Only ponds with `spec.host` have an Ingress, since version 1.1.
    /// let manifest = Manifest::new("ponds", "1.1.0").child::<Service>().child::<Ingress>().optional();
    /// assert!(manifest.children[0].required && !manifest.children[1].required);
    /// ```
    pub fn optional(mut self) -> Self {
        if let Some(child) = self.children.last_mut() {
            child.required = false;
        }
        self
    }

    /// Adds an optional kind of child without a Rust type.
    pub fn optional_child(self, api_version: &str, kind: &str) -> Self {
        self.child_kind(api_version, kind, false)
    }

    /// Adds a kind of child without a Rust type.
    pub fn child_kind(mut self, api_version: &str, kind: &str, required: bool) -> Self {
        self.children.push(ChildKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            required,
            ready_condition: None,
            never_deleted: false,
        });
        self
    }

    /// Sets the condition that makes a child of the last added kind ready.
    ///
    /// ```
    /// use innkeeper_sdk::manifest::Manifest;
    ///
    /// // The host knows no status of this kind. Children that are `after` a certificate wait for the condition.
    /// let manifest = Manifest::new("ponds", "1.0.0")
    ///     .optional_child("cert-manager.io/v1", "Certificate")
    ///     .ready_condition("Ready");
    /// assert_eq!(manifest.children[0].ready_condition.as_deref(), Some("Ready"));
    /// ```
    pub fn ready_condition(mut self, type_: &str) -> Self {
        if let Some(child) = self.children.last_mut() {
            child.ready_condition = Some(type_.to_owned());
        }
        self
    }

    /// Makes the host retain every child of the last added kind, whatever an answer says, and never delete one.
    ///
    /// For kinds that hold data, if the plugin deletes none of them. Where it deletes some, the removal policy of each child
    /// decides, see [`Child::retain`](crate::child::Child::retain).
    ///
    /// ```
    /// use innkeeper_sdk::manifest::Manifest;
    /// use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
    ///
    /// let manifest = Manifest::new("etcd", "1.0.0")
    ///     .child::<Service>()
    ///     .child::<PersistentVolumeClaim>()
    ///     .never_deleted();
    /// assert!(manifest.children[1].never_deleted && !manifest.children[0].never_deleted);
    /// ```
    pub fn never_deleted(mut self) -> Self {
        if let Some(child) = self.children.last_mut() {
            child.never_deleted = true;
        }
        self
    }

    /// Adds a kind that the plugin reads.
    pub fn read<T: Resource<DynamicType = ()>>(self, access: Access, scope: ReadScope) -> Self {
        self.read_kind(&T::api_version(&()), &T::kind(&()), access, scope)
    }

    /// Adds a kind that the plugin reads, without a Rust type.
    pub fn read_kind(
        mut self,
        api_version: &str,
        kind: &str,
        access: Access,
        scope: ReadScope,
    ) -> Self {
        self.reads.push(ReadKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            access,
            scope,
            label_selector: None,
        });
        self
    }

    /// Limits the last added read to objects with these labels.
    pub fn label_selector(mut self, selector: impl Into<String>) -> Self {
        if let Some(read) = self.reads.last_mut() {
            read.label_selector = Some(selector.into());
        }
        self
    }

    /// Makes the host call the plugin before a parent is deleted.
    pub const fn finalize(mut self) -> Self {
        self.finalize = true;
        self
    }

    /// Makes the host call the plugin again after each write of the parent's status.
    ///
    /// For a plugin that keeps a record in the status and takes its next step from it. Other plugins need no pass for their
    /// own status: the children and the reads trigger one.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::{FakeHost, TestRequest};
    /// use serde_json::json;
    ///
    /// struct Ponds;
    ///
    /// impl Reconciler for Ponds {
    ///     fn describe() -> Manifest {
    ///         Manifest::new("ponds", "1.0.0").reads_own_status()
    ///     }
    ///
    ///     // One step in each pass: the status is the record of the steps before.
    ///     fn reconcile(request: &Request, _: &dyn Host) -> Result<Outcome, Fault> {
    ///         let stored = request.stored_status_value().cloned().unwrap_or_default();
    ///         let depth = stored["depth"].as_u64().unwrap_or_default();
    ///         let wanted = request.parent_value()["spec"]["depth"].as_u64().unwrap_or_default();
    ///         let status = json!({"depth": wanted.min(depth + 1)});
    ///         Ok(Outcome::keep(Report::new().status(&status)))
    ///     }
    /// }
    ///
    /// let pond = json!({
    ///     "apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"},
    ///     "spec": {"depth": 3},
    /// });
    /// let request = TestRequest::new(&pond).status(&json!({"depth": 1})).build();
    /// let outcome = Ponds::reconcile(&request, &FakeHost::new()).unwrap();
    /// assert_eq!(outcome.report().status.as_ref().unwrap()["depth"], 2);
    /// ```
    pub const fn reads_own_status(mut self) -> Self {
        self.reads_own_status = true;
        self
    }

    /// Sets the schema of the plugin's configuration from its Rust type.
    ///
    /// The type should have `#[serde(deny_unknown_fields)]`, so that the host refuses a misspelt key.
    ///
    /// The schema has the form that the host accepts, that of CustomResourceDefinitions: options are `nullable`, and enums
    /// have no data.
    ///
    /// # Panics
    ///
    /// Panics if the type has no such schema, because it contains itself or an enum with data. So call `describe` in a
    /// unit test.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use innkeeper_sdk::testing::{FakeHost, TestRequest};
    /// use serde::{Deserialize, Serialize};
    /// use serde_json::json;
    ///
    /// // With `Serialize`, the schema has the defaults.
    /// #[derive(Serialize, Deserialize, schemars::JsonSchema)]
    /// #[serde(default, deny_unknown_fields)]
    /// struct Settings {
    ///     /// The image of the pump.
    ///     image: String,
    /// }
    ///
    /// impl Default for Settings {
    ///     fn default() -> Self {
    ///         Self { image: "pump:1".to_owned() }
    ///     }
    /// }
    ///
    /// struct Ponds;
    ///
    /// impl Reconciler for Ponds {
    ///     fn describe() -> Manifest {
    ///         Manifest::new("ponds", "1.0.0").child_kind("v1", "Pod", true).config_schema::<Settings>()
    ///     }
    ///
    ///     fn reconcile(request: &Request, _: &dyn Host) -> Result<Outcome, Fault> {
    ///         let settings: Settings = request.config()?;
    ///         let pump = json!({
    ///             "apiVersion": "v1", "kind": "Pod", "metadata": {"name": request.name()},
    ///             "spec": {"containers": [{"name": "pump", "image": settings.image}]},
    ///         });
    ///         Ok(Outcome::desired([Child::new("pump", &pump)], Report::new()))
    ///     }
    /// }
    ///
    /// let schema = Ponds::describe().config_schema.unwrap();
    /// assert_eq!(schema["properties"]["image"]["default"], "pump:1");
    /// assert_eq!(schema["additionalProperties"], false);
    ///
    /// let pond = json!({"apiVersion": "example.com/v1", "kind": "Pond", "metadata": {"name": "north"}});
    /// let request = TestRequest::new(&pond).config(&json!({"image": "pump:2"})).build();
    /// let outcome = Ponds::reconcile(&request, &FakeHost::new()).unwrap();
    /// let pump = &outcome.child("pump").unwrap().object;
    /// assert_eq!(pump["spec"]["containers"][0]["image"], "pump:2");
    /// ```
    pub fn config_schema<T: JsonSchema>(self) -> Self {
        self.config_schema_json(config::schema_of::<T>())
    }

    /// Sets the schema of the plugin's configuration as JSON. The contract says which form the host accepts;
    /// `innkeeper build` refuses others.
    pub fn config_schema_json(mut self, schema: Value) -> Self {
        self.config_schema = Some(schema);
        self
    }
}
