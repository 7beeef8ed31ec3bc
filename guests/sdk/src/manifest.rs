//! The manifest: a plugin's identity and requests.
//!
//! A manifest grants nothing; the cluster's administrator grants the requests.

use kube::{CustomResourceExt, Resource};
use schemars::JsonSchema;
use serde_json::Value;

use crate::children::group_of;
use crate::crd::Crd;

/// A kind's scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Objects live in namespaces.
    Namespaced,
    /// Objects belong to the whole cluster.
    Cluster,
}

/// How much of an object the plugin sees, from most to least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The whole object.
    Full,
    /// `apiVersion`, `kind` and `metadata` only.
    Metadata,
    /// Secrets and ConfigMaps only: type, metadata, and a hash per data key instead of the value.
    Hash,
}

/// The namespaces of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadScope {
    /// The parent's namespace.
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
    /// The kind's scope.
    pub scope: Scope,
}

/// A kind of child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildKind {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// False: the plugin runs without the grant for the kind. Where the cluster does not serve the kind, the host skips
    /// these children and applies the rest.
    pub required: bool,
    /// The condition whose status `True` makes a child of this kind ready; none: the rule of the host
    /// for the kind.
    pub ready_condition: Option<String>,
    /// Whether the host never deletes children of this kind.
    pub never_deleted: bool,
}

impl ChildKind {
    /// A kind that each cluster must serve and each administrator must grant.
    pub fn new(api_version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            required: true,
            ready_condition: None,
            never_deleted: false,
        }
    }

    /// As [`new`](Self::new), for a Rust type.
    pub fn for_type<T: Resource<DynamicType = ()>>() -> Self {
        Self::new(T::api_version(&()), T::kind(&()))
    }

    /// Makes the kind optional.
    ///
    /// The plugin runs without the grant for an optional kind, and on a cluster that does not serve it; only parents with
    /// such a child report the problem. Make kinds for optional features optional, so that a new plugin version runs with
    /// the previous grants.
    pub const fn optional(mut self) -> Self {
        self.required = false;
        self
    }

    /// Sets the condition that makes a child of this kind ready, for kinds whose status the host does not know.
    ///
    /// Children that are `after` such a child wait for the condition.
    pub fn ready_condition(mut self, type_: impl Into<String>) -> Self {
        self.ready_condition = Some(type_.into());
        self
    }

    /// Makes the host retain every child of this kind, whatever an answer says.
    ///
    /// For kinds that hold data, if the plugin deletes none of them. Otherwise use
    /// [`Child::retain`](crate::child::Child::retain) for the children to keep.
    pub const fn never_deleted(mut self) -> Self {
        self.never_deleted = true;
        self
    }
}

/// A kind that the plugin reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadKind {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// How much of each object the plugin sees.
    pub access: Access,
    /// The namespaces.
    pub scope: ReadScope,
    /// A label selector in Kubernetes' text form that limits the read; none: all objects.
    pub label_selector: Option<String>,
}

impl ReadKind {
    /// Returns whether this declares reads of the kind, in any version.
    pub(crate) fn is_of(&self, api_version: &str, kind: &str) -> bool {
        group_of(&self.api_version) == group_of(api_version) && self.kind == kind
    }
}

/// A plugin's identity and requests, from `describe`.
///
/// ```
/// use innkeeper_sdk::prelude::*;
/// use k8s_openapi::api::core::v1::{Pod, Secret};
///
/// let manifest = Manifest::new("memcached", "1.0.0")
///     .read::<Secret>(Access::Hash, ReadScope::ParentNamespace)
///     .read::<Pod>(Access::Metadata, ReadScope::ParentNamespace)
///     .label_selector("app.kubernetes.io/managed-by=innkeeper");
/// assert!(manifest.reads[1].label_selector.is_some());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The plugin's name: a DNS label with at most 40 characters.
    pub name: String,
    /// The plugin's own version, shown to users and never compared.
    pub version: String,
    /// The kinds of parents.
    pub parents: Vec<ParentKind>,
    /// The plugin's CustomResourceDefinitions.
    pub crds: Vec<Value>,
    /// The child kinds that answers may contain.
    pub children: Vec<ChildKind>,
    /// The kinds that the plugin reads.
    pub reads: Vec<ReadKind>,
    /// Whether the host calls the plugin before a parent is deleted.
    pub finalize: bool,
    /// Whether each write of the parent's status triggers a pass.
    pub reads_own_status: bool,
    /// The configuration's schema, in the form of CustomResourceDefinitions; none accepts only `{}`.
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

    /// Adds a parent kind with the CRD from [`Crd::for_kind`].
    ///
    /// # Panics
    ///
    /// Panics as [`Crd::for_kind`] does.
    pub fn parent<T: CustomResourceExt + JsonSchema + Resource<DynamicType = ()>>(self) -> Self {
        self.parent_with::<T>(|crd| crd)
    }

    /// Adds a parent kind with an edited CRD: rules, properties beside `spec`, shorter descriptions.
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

    /// Adds a parent kind whose CRD is already in the cluster, or comes from [`crd`](Self::crd).
    pub fn parent_without_crd(mut self, parent: ParentKind) -> Self {
        self.parents.push(parent);
        self
    }

    /// Adds a CRD for a parent kind, or for a kind that the plugin only reads.
    ///
    /// Strings, lists and maps without a bound get one, see [`Crd::bounded`].
    pub fn crd(mut self, crd: Crd) -> Self {
        self.crds.push(crd.bounded().into_value());
        self
    }

    /// Adds a kind of child without a Rust type; [`child_kinds!`](crate::child_kinds!) adds the others.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    ///
    /// let certificates = ChildKind::new("cert-manager.io/v1", "Certificate").optional();
    /// let manifest = Manifest::new("ponds", "1.0.0").untyped_child(certificates);
    /// assert!(!manifest.children[0].required);
    /// ```
    pub fn untyped_child(mut self, kind: ChildKind) -> Self {
        self.children.push(kind);
        self
    }

    /// Returns whether the plugin declares reads of a kind, in any version.
    pub(crate) fn declares_read(&self, api_version: &str, kind: &str) -> bool {
        self.reads.iter().any(|read| read.is_of(api_version, kind))
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

    /// Makes the host call the plugin after each write of the parent's status.
    ///
    /// For plugins that record steps in the status and continue from there. Others do not need it: changes of children and
    /// reads trigger passes.
    ///
    /// ```
    /// use innkeeper_sdk::prelude::*;
    /// use serde_json::json;
    ///
    /// /// Takes one step in each pass: the status records the steps before.
    /// fn dig(request: &Request) -> Answer {
    ///     let stored = request.stored_status_value().cloned().unwrap_or_default();
    ///     let depth = stored["depth"].as_u64().unwrap_or_default();
    ///     let target = request.parent_value()["spec"]["depth"].as_u64().unwrap_or_default();
    ///     Answer::keep(Report::new().status(&json!({"depth": target.min(depth + 1)})))
    /// }
    ///
    /// assert!(Manifest::new("ponds", "1.0.0").reads_own_status().reads_own_status);
    /// ```
    pub const fn reads_own_status(mut self) -> Self {
        self.reads_own_status = true;
        self
    }
}
