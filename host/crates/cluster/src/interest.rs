//! A controller's interest in the cluster, and the reasons why a kind is not readable.

use std::{collections::BTreeSet, fmt, sync::Arc};

use innkeeper_model::{Access, Gvk, Object, PluginName, ReadKind, Selector};
use tokio::time::Instant;

use super::store::CacheSize;

/// One plugin's needs for one parent kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The plugin.
    pub plugin: PluginName,
    /// The parent kind.
    pub parent: Gvk,
    /// Selects parents by label; the default selects all.
    pub selector: Selector,
    /// The child kinds, declared or ever created. If a kind occurs twice, the first entry counts.
    pub children: Vec<ChildInterest>,
    /// The granted reads.
    pub reads: Vec<ReadKind>,
    /// Field managers without the prefix `innkeeper:` whose managedFields entries in children are cached.
    pub field_managers: BTreeSet<Arc<str>>,
    /// True if the parents of all shards are seen, whichever this process holds.
    pub all_shards: bool,
    /// The most children in one namespace whose texts are cached, and the size of these texts.
    pub namespace_max: CacheSize,
}

/// One child kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildInterest {
    /// The kind in the version to watch.
    pub kind: Gvk,
    /// True if no pass may run without the kind.
    pub required: bool,
    /// True if the plugin may have such children: then passes wait a while for the kind even if it is optional.
    pub recorded: bool,
    /// The form in which guests see the objects.
    pub access: Access,
}

/// A parent with its children, as a pass observes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The parent.
    pub parent: Object,
    /// The controlled and retained objects, sorted by [`child_order`](innkeeper_model::child_order).
    pub children: Vec<Object>,
    /// Optional child kinds that are served but not readable. The parent may have such children.
    pub unreadable: Vec<Waiting>,
}

/// The result of `observe`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Everything is there.
    Ready(Observation),
    /// There is no such parent.
    Gone,
    /// Another process serves the parent: its shard is not [held](crate::Cluster::hold).
    NotHeld,
    /// A kind that every pass needs is not readable; a trigger follows when it is.
    NotReady {
        /// The parent, if it is known.
        parent: Option<Object>,
        /// The missing kinds.
        waiting: Vec<Waiting>,
    },
    /// The namespace has no room for the texts of all children; no trigger follows when it has.
    NamespaceFull {
        /// The parent.
        parent: Object,
        /// The bound.
        full: NamespaceFull,
    },
    /// Own writes are not cached yet, or children must still be read; a trigger follows when the writes are cached.
    Behind {
        /// The latest time to observe again; the writes are read live then.
        until: Instant,
    },
}

/// A namespace in which a plugin's children exceed the bound, so that some are cached without texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceFull {
    /// The namespace; empty for cluster-scoped children.
    pub namespace: Arc<str>,
    /// True if there are too many objects, false if they are too large.
    pub by_objects: bool,
    /// The bound.
    pub max: CacheSize,
    /// The child kind that uses most of it.
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

/// The reason why a kind is not readable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// Discovery has not answered yet.
    Discovering,
    /// The cluster does not serve it.
    NotServed,
    /// The first list is in progress.
    Listing,
    /// The host may not list or watch it.
    Forbidden {
        /// The API server's message.
        message: String,
    },
    /// It was never listed completely, and the last attempt failed.
    Failing {
        /// The last failure.
        message: String,
    },
    /// Guests see it as keyed hashes, and there is no key.
    HashKeyMissing,
    /// No shard of these parents is [held](crate::Cluster::hold).
    NotHeld,
    /// It is cached, but may lack the previous writer's last writes: the freshness check has not passed yet.
    Unchecked,
}

impl Why {
    /// Returns true if waiting does not help, so that passes run without an optional kind.
    pub const fn is_lasting(&self) -> bool {
        matches!(self, Self::NotServed | Self::Forbidden { .. })
    }
}

/// Completes a sentence that starts with the kind: `is not served by the cluster`.
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
            Self::NotHeld => f.write_str("is left to the hosts that hold these shards"),
            Self::Unchecked => f.write_str("is being compared with the cluster"),
        }
    }
}
