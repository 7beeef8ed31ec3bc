//! The manifest that a plugin returns from `describe`.

use std::{collections::BTreeSet, fmt, sync::Arc};

use kube_core::Selector;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{GroupKind, Gvk, PluginName, Scope, kind_of_crd, selector::selector_text};

/// A plugin's description and requests; a request is not a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// The plugin's name.
    pub name: PluginName,
    /// The plugin's own version, for display only.
    pub version: String,
    /// The parent kinds; at least one.
    pub parents: Vec<ParentKind>,
    /// CustomResourceDefinitions that the plugin installs.
    pub crds: Vec<Map<String, Value>>,
    /// Every child kind that an answer may hold.
    pub children: Vec<ChildKind>,
    /// Every kind that it reads.
    pub reads: Vec<ReadKind>,
    /// True if the plugin has work to do before a parent is deleted.
    pub finalize: bool,
    /// True if an answer depends on the parent's own status: then each status write triggers a pass.
    #[serde(default)]
    pub reads_own_status: bool,
    /// A JSON schema for the configuration; with `None`, the host accepts only `{}`.
    pub config_schema: Option<Value>,
}

impl Manifest {
    /// Returns the parent kinds without versions; at most one plugin serves each.
    pub fn parent_kinds(&self) -> BTreeSet<GroupKind> {
        self.parents
            .iter()
            .map(|parent| parent.kind.group_kind())
            .collect()
    }

    /// Returns true if the plugin deletes no child of this kind.
    pub fn never_deletes(&self, kind: &GroupKind) -> bool {
        self.children
            .iter()
            .any(|child| child.never_deleted && child.kind.group_kind() == *kind)
    }

    /// Returns true if the plugin reconciles parents of this kind.
    pub fn reconciles(&self, kind: &GroupKind) -> bool {
        self.parents
            .iter()
            .any(|parent| parent.kind.group_kind() == *kind)
    }

    /// Returns the CustomResourceDefinition that the plugin has for a kind.
    pub fn crd_for(&self, kind: &GroupKind) -> Option<&Map<String, Value>> {
        self.crds
            .iter()
            .find(|crd| kind_of_crd(crd).as_ref() == Some(kind))
    }
}

/// What a description requests and grants answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// The parent kinds.
    pub parents: Vec<GroupKind>,
    /// The kinds that the plugin's CustomResourceDefinitions define.
    pub crds: Vec<GroupKind>,
    /// The child kinds, and true for those that the plugin cannot serve without.
    pub children: Vec<(GroupKind, bool)>,
    /// The reads.
    pub reads: Vec<ReadKind>,
}

impl From<&Manifest> for Requests {
    fn from(manifest: &Manifest) -> Self {
        let parents = manifest.parents.iter();
        let children = manifest.children.iter();
        Self {
            parents: parents.map(|parent| parent.kind.group_kind()).collect(),
            crds: manifest.crds.iter().filter_map(kind_of_crd).collect(),
            children: children
                .map(|child| (child.kind.group_kind(), child.required))
                .collect(),
            reads: manifest.reads.clone(),
        }
    }
}

/// A parent kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentKind {
    /// The kind in the version that the plugin uses.
    #[serde(flatten)]
    pub kind: Gvk,
    /// The lower-case plural.
    pub plural: String,
    /// The kind's scope.
    pub scope: Scope,
}

/// A child kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChildKind {
    /// The kind in the version that the plugin states.
    #[serde(flatten)]
    pub kind: Gvk,
    /// If false, the host skips these children in a cluster that does not serve the kind.
    pub required: bool,
    /// The condition type that makes a child ready; `None` if the host uses its own rules.
    pub ready_condition: Option<String>,
    /// True if the host retains every such child, and never deletes one.
    #[serde(default)]
    pub never_deleted: bool,
}

/// A kind that a plugin reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadKind {
    /// The kind in the requested version.
    #[serde(flatten)]
    pub kind: Gvk,
    /// The part of each object that the guest sees.
    pub access: Access,
    /// The namespaces in which objects are read.
    pub scope: ReadScope,
    /// Limits the read to objects with these labels; the default selects all.
    #[serde(default, with = "selector_text")]
    pub label_selector: Selector,
}

/// The part of an object that a guest sees, ordered from most to least.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::Display,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Access {
    /// The whole object.
    Full,
    /// `apiVersion`, `kind`, `type`, `metadata`, and a keyed hash for each data value.
    Hash,
    /// `apiVersion`, `kind` and `metadata`.
    Metadata,
}

/// The namespaces in which objects are read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReadScope {
    /// The parent's namespace.
    ParentNamespace,
    /// These namespaces; only a grant can list them, a plugin cannot request this scope.
    #[serde(skip)]
    Namespaces(BTreeSet<Arc<str>>),
    /// The whole cluster.
    Cluster,
}

/// The namespaces that a read actually covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All namespaces, or all objects if the kind is cluster-scoped.
    Everywhere,
    /// These namespaces; empty if the scope does not cover the read.
    Within(BTreeSet<Arc<str>>),
}

impl ReadScope {
    /// Returns the namespaces that a read covers, for a parent in the namespace `own`.
    ///
    /// `requested` is the namespace that the guest names; with `None` the read covers the whole scope.
    /// Only the scope `Cluster` covers cluster-scoped objects.
    pub fn reach(
        &self,
        kind: Scope,
        own: Option<&Arc<str>>,
        requested: Option<&Arc<str>>,
    ) -> Reach {
        let covered = match (self, kind) {
            (Self::Cluster, Scope::Cluster) => return Reach::Everywhere,
            (Self::Cluster, Scope::Namespaced) => {
                return requested.map_or(Reach::Everywhere, |namespace| {
                    Reach::Within(BTreeSet::from([Arc::clone(namespace)]))
                });
            }
            // These scopes name namespaces, and the object is in none.
            (_, Scope::Cluster) => BTreeSet::new(),
            (Self::ParentNamespace, Scope::Namespaced) => own.into_iter().cloned().collect(),
            (Self::Namespaces(names), Scope::Namespaced) => names.clone(),
        };
        let is_requested = |name: &Arc<str>| requested.is_none_or(|requested| requested == name);
        Reach::Within(covered.into_iter().filter(is_requested).collect())
    }
}

/// `ParentNamespace`, `Namespaces [a, b]` or `Cluster`.
impl fmt::Display for ReadScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ParentNamespace => f.write_str("ParentNamespace"),
            Self::Namespaces(names) => {
                let names: Vec<&str> = names.iter().map(|name| &**name).collect();
                write!(f, "Namespaces [{}]", names.join(", "))
            }
            Self::Cluster => f.write_str("Cluster"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(names: &[&str]) -> Reach {
        Reach::Within(names.iter().map(|name| Arc::from(*name)).collect())
    }

    #[test]
    fn a_scope_reaches_no_other_namespace() {
        let name = |text: &str| Some(Arc::<str>::from(text));
        let listed = ReadScope::Namespaces(["a", "b"].map(Arc::from).into());
        let reach = |scope: &ReadScope, own: &Option<Arc<str>>, asked: &Option<Arc<str>>| {
            scope.reach(Scope::Namespaced, own.as_ref(), asked.as_ref())
        };
        let parent = &ReadScope::ParentNamespace;
        let cluster = &ReadScope::Cluster;
        for (scope, own, asked, expected) in [
            (parent, name("demo"), None, within(&["demo"])),
            (parent, name("demo"), name("demo"), within(&["demo"])),
            (parent, name("demo"), name("other"), within(&[])),
            (parent, None, name("demo"), within(&[])),
            (parent, None, None, within(&[])),
            (&listed, name("demo"), None, within(&["a", "b"])),
            (&listed, name("demo"), name("b"), within(&["b"])),
            (&listed, name("demo"), name("demo"), within(&[])),
            (&listed, None, name("a"), within(&["a"])),
            (cluster, name("demo"), name("other"), within(&["other"])),
            (cluster, None, None, Reach::Everywhere),
        ] {
            assert_eq!(
                reach(scope, &own, &asked),
                expected,
                "{scope} {own:?} {asked:?}"
            );
        }
    }

    #[test]
    fn only_the_cluster_scope_reaches_cluster_scoped_objects() {
        let own = Arc::from("a");
        let listed = ReadScope::Namespaces(["a"].map(Arc::from).into());
        for scope in [ReadScope::ParentNamespace, listed] {
            let reach = scope.reach(Scope::Cluster, Some(&own), None);
            assert_eq!(reach, within(&[]), "{scope}");
        }
        let reach = ReadScope::Cluster.reach(Scope::Cluster, Some(&own), Some(&own));
        assert_eq!(reach, Reach::Everywhere);
    }
}
