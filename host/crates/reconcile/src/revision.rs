//! The revision that passes run, with its grants and limits.

pub(crate) mod analysis;
pub(crate) mod epoch;
pub(crate) mod faults;
pub(crate) mod interest;
pub(crate) mod predictions;

use std::{collections::BTreeSet, sync::Arc};

use innkeeper_model::{
    Access, GroupKind, Gvk, Limits, ParentKind, PluginName, ReadKind, ReadScope, Scope, Selector,
};
use innkeeper_policy::{Grants, Selection};
use innkeeper_sandbox::Plugin;

/// A plugin revision with its grants and limits.
///
/// Immutable, so a pass ends with the values that it began with.
#[derive(Clone)]
pub struct Revision {
    /// The component with its configuration.
    pub plugin: Arc<Plugin>,
    /// The permitted reads and children.
    pub grants: Arc<Grants>,
    /// The permitted resources.
    pub limits: Arc<Limits>,
    /// The declared reads that are granted.
    pub(crate) reads: Arc<[ReadKind]>,
    /// The user whose permissions writes of children use; `None` for the host itself.
    pub(crate) account: Option<Arc<str>>,
    /// The children's field manager; `None` for the plugin's own.
    pub(crate) field_manager: Option<Arc<str>>,
    /// The selected parents.
    pub(crate) selection: Arc<Selection>,
    /// The host's own reads for the selection.
    pub(crate) own_reads: Arc<[ReadKind]>,
}

impl Revision {
    /// Combines a plugin with grants and limits.
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

    /// Returns the parent kinds that it may serve.
    pub fn parents(&self) -> impl Iterator<Item = &ParentKind> {
        self.grants.parents_of(self.plugin.manifest())
    }

    /// Returns these kinds without their versions.
    pub fn parent_kinds(&self) -> BTreeSet<GroupKind> {
        self.grants.parent_kinds_of(self.plugin.manifest())
    }

    /// Writes children as this user, who needs the permissions.
    pub fn acting_as(self, user: Option<String>) -> Self {
        Self {
            account: user.map(Arc::from),
            ..self
        }
    }

    /// Applies children with this field manager.
    pub fn applying_as(self, manager: &str) -> Self {
        Self {
            field_manager: Some(Arc::from(manager)),
            ..self
        }
    }

    /// Restricts it to the selected parents.
    pub fn selecting(self, selection: Selection) -> Self {
        let namespaces = selection.asks_for_namespaces().then(namespace_read);
        Self {
            own_reads: namespaces.into_iter().collect(),
            selection: Arc::new(selection),
            ..self
        }
    }

    /// Returns what passes depend on beside their inputs, as text to compare.
    pub(crate) fn terms(&self) -> String {
        // Without `..`: a new field does not compile before someone has decided whether passes depend on it.
        let Self {
            // The digest is among the inputs.
            plugin: _,
            grants,
            limits,
            reads,
            account,
            field_manager,
            selection,
            own_reads,
        } = self;
        format!(
            "{grants:?} {limits:?} {reads:?} {account:?} {field_manager:?} {selection:?} {own_reads:?}"
        )
    }

    /// Returns the children's field manager.
    pub(crate) fn manager(&self, plugin: &PluginName) -> Arc<str> {
        self.field_manager
            .clone()
            .unwrap_or_else(|| Arc::from(plugin.field_manager()))
    }

    /// Returns true if the guest may read Secret values.
    pub fn shows_secrets(&self) -> bool {
        let secret = Gvk::new("", "v1", "Secret").group_kind();
        let as_read =
            |read: &ReadKind| read.access == Access::Full && read.kind.group_kind() == secret;
        let as_child = |parent| self.grants.child_access(&secret, parent) == Access::Full;
        self.reads.iter().any(as_read) || as_child(Scope::Namespaced) || as_child(Scope::Cluster)
    }

    /// Returns true if the manifest declares children of this kind.
    pub fn declares_child(&self, kind: &Gvk) -> bool {
        let group_kind = kind.group_kind();
        self.plugin
            .manifest()
            .children
            .iter()
            .any(|child| child.kind.group_kind() == group_kind)
    }
}

pub(crate) fn namespace_kind() -> Gvk {
    Gvk::new("", "v1", "Namespace")
}

fn namespace_read() -> ReadKind {
    ReadKind {
        kind: namespace_kind(),
        access: Access::Metadata,
        scope: ReadScope::Cluster,
        label_selector: Selector::default(),
    }
}
