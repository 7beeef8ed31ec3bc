//! The interest of a controller in the cluster, and the reasons why it cannot be satisfied.

use std::{collections::BTreeSet, fmt, sync::Arc};

use innkeeper_model::{Access, Gvk, Object, PluginName, ReadKind, Selector};
use tokio::time::Instant;

use super::store::CacheSize;

/// The needs of one plugin for one kind of parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The plugin.
    pub plugin: PluginName,
    /// The kind of parent.
    pub parent: Gvk,
    /// Selects the parents by their labels; the default selects all.
    pub selector: Selector,
    /// The kinds of children: those declared now and those ever created. If a kind occurs twice, the first entry
    /// counts.
    pub children: Vec<ChildInterest>,
    /// The granted reads.
    pub reads: Vec<ReadKind>,
    /// Field managers, beyond those that start with `innkeeper:`, whose managedFields entries of children are kept.
    pub field_managers: BTreeSet<Arc<str>>,
    /// The most children of the plugin in one namespace whose texts are cached, and the size of these texts.
    pub namespace_max: CacheSize,
}

/// One kind of child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildInterest {
    /// The kind in the version to watch.
    pub kind: Gvk,
    /// True if no pass may run without it.
    pub required: bool,
    /// True if the plugin may have children of the kind: then passes wait for them a while, also if the kind is optional.
    pub recorded: bool,
    /// The part of each object that guests see.
    pub access: Access,
}

/// Everything observed of a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The parent.
    pub parent: Object,
    /// The controlled and retained objects, in the order of [`child_order`](innkeeper_model::child_order).
    pub children: Vec<Object>,
    /// The optional kinds of children that are served and cannot be read. The parent may have children of them.
    pub unreadable: Vec<Waiting>,
}

/// The result of `observe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Everything is there.
    Ready(Observation),
    /// There is no such parent.
    Gone,
    /// A kind that every pass needs cannot be read; a trigger follows when it can.
    NotReady {
        /// The parent, if it is known.
        parent: Option<Object>,
        /// The missing kinds.
        waiting: Vec<Waiting>,
    },
    /// The namespace has no room for the texts of all children of the parent; no trigger follows when it has.
    NamespaceFull {
        /// The parent.
        parent: Object,
        /// The bound.
        full: NamespaceFull,
    },
    /// Own writes are not seen yet, or children are still to be read; a trigger follows when the writes are seen.
    Behind {
        /// The latest time to ask again; the writes are read live then.
        until: Instant,
    },
}

/// A namespace in which the cache holds children of a plugin without their texts, because they exceed its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFull {
    /// The namespace; empty for cluster-scoped children.
    pub namespace: Arc<str>,
    /// True if the number of objects exceeds the bound; otherwise their size does.
    pub by_objects: bool,
    /// The bound.
    pub max: CacheSize,
    /// The kind of children that uses most of it.
    pub largest: Gvk,
}

/// A kind that a pass waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The kind.
    pub kind: Gvk,
    /// The reason.
    pub why: Why,
    /// The start of the wait.
    pub since: Instant,
}

/// The reason why a kind cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Discovery has not answered yet.
    Discovering,
    /// The cluster does not serve it.
    NotServed,
    /// The first list is in progress.
    Listing,
    /// The host has no permission to list or watch it.
    Forbidden {
        /// The message of the API server.
        message: String,
    },
    /// It was never listed completely, and the last attempt failed.
    Failing {
        /// The last failure.
        message: String,
    },
    /// It is shown as keyed hashes, and there is no key.
    HashKeyMissing,
    /// It is cached, but may lack the last writes of the previous writer: the freshness check has not passed yet.
    Unchecked,
}

impl Why {
    /// Returns true if waiting alone does not help, so that an optional kind is left out.
    pub const fn is_lasting(&self) -> bool {
        matches!(self, Self::NotServed | Self::Forbidden { .. })
    }
}

/// The second half of a sentence that starts with the kind: `is not served by the cluster`.
impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Discovering => f.write_str("is not known yet: the API server has not answered"),
            Self::NotServed => f.write_str("is not served by the cluster"),
            Self::Listing => f.write_str("is being listed"),
            Self::Forbidden { message } => write!(
                f,
                "may not be read by the host, grant it list and watch (innkeeper manifests prints the role): {message}"
            ),
            Self::Failing { message } => write!(f, "could not be listed: {message}"),
            Self::HashKeyMissing => f.write_str("is shown as hashes, and the hash key is missing"),
            Self::Unchecked => f.write_str("is being compared with the cluster"),
        }
    }
}
