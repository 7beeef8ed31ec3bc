//! What a plugin is and asks for.
//!
//! A manifest is a request: what is granted is decided by the cluster's administrator.

use kube::{CustomResourceExt, Resource};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value;

use crate::crd::Crd;

/// Where objects of a kind live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In namespaces.
    Namespaced,
    /// In the cluster.
    Cluster,
}

/// How much of an object the plugin sees, from most to least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The whole object.
    Full,
    /// `apiVersion`, `kind` and `metadata` only.
    Metadata,
    /// Secrets and ConfigMaps: type, metadata, and per data key a hash instead of the value.
    Hash,
}

/// From where objects are read.
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
    /// The version that the plugin speaks.
    pub version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// The lower-case plural.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub scope: Scope,
}

/// A kind of child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildKind {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// False: where the cluster does not serve the kind, its children are skipped and the rest is
    /// applied.
    pub required: bool,
    /// The condition whose status `True` makes a child of this kind ready.
    pub ready_condition: Option<String>,
}

/// A kind that the plugin reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadKind {
    /// `group/version`, or `version` alone for the core group.
    pub api_version: String,
    /// The kind in CamelCase.
    pub kind: String,
    /// How much of each object.
    pub access: Access,
    /// From where.
    pub scope: ReadScope,
    /// Limits the read to objects that carry these labels.
    pub label_selector: Option<String>,
}

/// What a plugin is and asks for.
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
    /// The plugin's own version, for people.
    pub version: String,
    /// The kinds of parents.
    pub parents: Vec<ParentKind>,
    /// CustomResourceDefinitions that the plugin brings.
    pub crds: Vec<Value>,
    /// Every kind of child that an answer may hold.
    pub children: Vec<ChildKind>,
    /// Every kind that the plugin reads.
    pub reads: Vec<ReadKind>,
    /// Whether the plugin has work to do before a parent goes.
    pub finalize: bool,
    /// A JSON schema that the plugin's configuration must satisfy; none: only `{}` is accepted.
    pub config_schema: Option<Value>,
}

impl Manifest {
    /// A plugin without parents; `env!("CARGO_PKG_VERSION")` is a good version.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            parents: Vec::new(),
            crds: Vec::new(),
            children: Vec::new(),
            reads: Vec::new(),
            finalize: false,
            config_schema: None,
        }
    }

    /// A kind of parent with the definition that [`Crd::of`] makes.
    ///
    /// # Panics
    ///
    /// As [`Crd::of`].
    pub fn parent<T: CustomResourceExt + JsonSchema + Resource<DynamicType = ()>>(self) -> Self {
        self.parent_with::<T>(|crd| crd)
    }

    /// A kind of parent whose definition is changed first: rules, properties beside `spec`, shorter
    /// descriptions.
    ///
    /// # Panics
    ///
    /// As [`Crd::of`], and where `edit` panics.
    pub fn parent_with<T: CustomResourceExt + JsonSchema + Resource<DynamicType = ()>>(
        mut self,
        edit: impl FnOnce(Crd) -> Crd,
    ) -> Self {
        let crd = edit(Crd::of::<T>());
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

    /// A kind of parent whose definition others bring.
    pub fn foreign_parent(mut self, parent: ParentKind) -> Self {
        self.parents.push(parent);
        self
    }

    /// Brings a definition, also of a kind that is only read.
    pub fn crd(mut self, crd: Crd) -> Self {
        self.crds.push(crd.into_value());
        self
    }

    /// A kind of child that every cluster serves.
    pub fn child<T: Resource<DynamicType = ()>>(self) -> Self {
        self.child_kind(&T::api_version(&()), &T::kind(&()), true)
    }

    /// A kind of child that some clusters do not serve: there its children are skipped.
    pub fn optional_child(self, api_version: &str, kind: &str) -> Self {
        self.child_kind(api_version, kind, false)
    }

    /// A kind of child that has no Rust type.
    pub fn child_kind(mut self, api_version: &str, kind: &str, required: bool) -> Self {
        self.children.push(ChildKind {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            required,
            ready_condition: None,
        });
        self
    }

    /// Names the condition that makes a child of the kind last added ready.
    pub fn ready_condition(mut self, type_: &str) -> Self {
        if let Some(child) = self.children.last_mut() {
            child.ready_condition = Some(type_.to_owned());
        }
        self
    }

    /// A kind that the plugin reads.
    pub fn read<T: Resource<DynamicType = ()>>(self, access: Access, scope: ReadScope) -> Self {
        self.read_kind(&T::api_version(&()), &T::kind(&()), access, scope)
    }

    /// A kind that the plugin reads and that has no Rust type.
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

    /// Limits the read last added to objects that carry these labels.
    pub fn label_selector(mut self, selector: impl Into<String>) -> Self {
        if let Some(read) = self.reads.last_mut() {
            read.label_selector = Some(selector.into());
        }
        self
    }

    /// The plugin has work to do before a parent goes.
    pub const fn finalize(mut self) -> Self {
        self.finalize = true;
        self
    }

    /// The schema of the plugin's configuration, from its Rust type.
    ///
    /// Give the type `#[serde(deny_unknown_fields)]`, so that a misspelt key never serves.
    pub fn config_schema<T: JsonSchema>(self) -> Self {
        let generator = SchemaSettings::draft2020_12()
            .with(|settings| settings.inline_subschemas = true)
            .into_generator();
        self.config_schema_json(generator.into_root_schema_for::<T>().to_value())
    }

    /// The schema of the plugin's configuration, by hand.
    pub fn config_schema_json(mut self, schema: Value) -> Self {
        self.config_schema = Some(schema);
        self
    }
}
