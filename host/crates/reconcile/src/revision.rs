//! The revision that passes run, with everything that a pass must not change on the way.

pub(crate) mod analysis;
pub(crate) mod epoch;
pub(crate) mod faults;
mod given_up;
pub(crate) mod interest;

use std::{collections::BTreeSet, sync::Arc};

use innkeeper_model::{
    Access, GroupKind, Gvk, Limits, ParentKind, PluginName, ReadKind, ReadScope, Scope, Selector,
};
use innkeeper_policy::{Grants, Selection};
use innkeeper_sandbox::Plugin;

/// One revision of a plugin with its grants and limits.
///
/// Immutable, so that a pass ends with the values that it began with.
#[derive(Clone)]
pub struct Serving {
    /// The revision.
    pub plugin: Arc<Plugin>,
    /// The actions that it may take.
    pub grants: Arc<Grants>,
    /// The resources that it may use.
    pub limits: Arc<Limits>,
    /// The reads that it declares, as far as they are granted.
    pub(crate) reads: Arc<[ReadKind]>,
    /// The user that its children are written as; none for the host itself.
    pub(crate) account: Option<Arc<str>>,
    /// The field manager of its children; none for the plugin's own.
    pub(crate) field_manager: Option<Arc<str>>,
    /// The selection of its parents.
    pub(crate) selection: Arc<Selection>,
    /// The reads of the host itself that the selection needs.
    pub(crate) own_reads: Arc<[ReadKind]>,
}

impl Serving {
    /// Combines a revision with its grants and limits.
    pub fn new(plugin: Arc<Plugin>, grants: Arc<Grants>, limits: Arc<Limits>) -> Self {
        let reads = grants.reads_for(plugin.manifest());
        Self {
            plugin,
            grants,
            limits,
            reads: reads.into(),
            account: None,
            field_manager: None,
            selection: Arc::default(),
            own_reads: Arc::default(),
        }
    }

    /// Returns the kinds of parents that it may serve.
    pub fn parents(&self) -> impl Iterator<Item = &ParentKind> {
        self.grants.parents_of(self.plugin.manifest())
    }

    /// Returns these kinds without their versions.
    pub fn parent_kinds(&self) -> BTreeSet<GroupKind> {
        self.grants.parent_kinds_of(self.plugin.manifest())
    }

    /// Writes its children as this user, which needs the permissions for them.
    pub fn acting_as(self, user: Option<String>) -> Self {
        Self {
            account: user.map(Arc::from),
            ..self
        }
    }

    /// Applies its children with this field manager.
    pub fn applying_as(self, manager: &str) -> Self {
        Self {
            field_manager: Some(Arc::from(manager)),
            ..self
        }
    }

    /// Restricts its parents to the selected ones.
    pub fn selecting(self, selection: Selection) -> Self {
        let namespaces = selection.asks_for_namespaces().then(namespace_read);
        Self {
            own_reads: namespaces.into_iter().collect(),
            selection: Arc::new(selection),
            ..self
        }
    }

    /// Returns the field manager of its children.
    pub(crate) fn manager(&self, plugin: &PluginName) -> Arc<str> {
        let own = || Arc::from(plugin.field_manager());
        self.field_manager.clone().unwrap_or_else(own)
    }

    /// Returns true if its guest may get the values of Secrets.
    pub fn shows_secrets(&self) -> bool {
        let secret = Gvk::new("", "v1", "Secret").group_kind();
        let reads = self.reads.iter();
        let mut full = reads.filter(|read| read.access == Access::Full);
        let as_child = |parent| self.grants.child_access(&secret, parent) == Access::Full;
        full.any(|read| read.kind.group_kind() == secret)
            || [Scope::Namespaced, Scope::Cluster]
                .into_iter()
                .any(as_child)
    }

    /// Returns true if its manifest declares children of this kind.
    pub fn declares_child(&self, kind: &Gvk) -> bool {
        let group_kind = kind.group_kind();
        let mut declared = self.plugin.manifest().children.iter();
        declared.any(|child| child.kind.group_kind() == group_kind)
    }
}

pub(crate) fn namespace_kind() -> Gvk {
    Gvk::new("", "v1", "Namespace")
}

/// The read of namespaces.
fn namespace_read() -> ReadKind {
    ReadKind {
        kind: namespace_kind(),
        access: Access::Metadata,
        scope: ReadScope::Cluster,
        label_selector: Selector::default(),
    }
}
