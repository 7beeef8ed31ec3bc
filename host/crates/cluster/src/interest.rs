//! What a controller wants to know of the cluster, and what it is told when that cannot be had.

use std::{collections::BTreeSet, fmt, sync::Arc};

use innkeeper_model::{Access, Gvk, Object, PluginName, ReadKind};
use tokio::time::Instant;

/// What one plugin needs for one kind of parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interest {
    /// The plugin.
    pub plugin: PluginName,
    /// The kind of parent.
    pub parent: Gvk,
    /// Which parents, as a label selector; none: all.
    pub selector: Option<String>,
    /// The kinds of children: those declared, and those ever made.
    /// Of two entries for one kind the first one counts.
    pub children: Vec<ChildInterest>,
    /// What the plugin may read.
    pub reads: Vec<ReadKind>,
    /// Field managers, beyond those that begin with `innkeeper:`, whose managedFields entries are kept of children.
    pub field_managers: BTreeSet<Arc<str>>,
}

/// One kind of child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildInterest {
    /// The kind in the version to watch.
    pub kind: Gvk,
    /// Whether there is no pass without it.
    pub required: bool,
    /// How much of it is shown.
    pub access: Access,
}

/// Everything observed of a parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// The parent.
    pub parent: Object,
    /// Everything that belongs to it, in the order of [`child_order`](innkeeper_model::child_order).
    pub children: Vec<Object>,
    /// Optional kinds that cannot be watched, so that their children are neither seen nor may be written.
    pub unavailable: Vec<Unavailable>,
}

/// What `observe` found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Everything is there.
    Ready(Observation),
    /// There is no such parent.
    Gone,
    /// Something that every pass needs cannot be read; a trigger comes when it can.
    NotReady {
        /// The parent, if it is known.
        parent: Option<Object>,
        /// What is missing.
        waiting: Vec<Waiting>,
    },
    /// Own writes are not seen yet; a trigger comes when they are.
    Behind {
        /// When to ask again at the latest; the writes are read live then.
        until: Instant,
    },
}

/// A kind that a pass waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The kind.
    pub kind: Gvk,
    /// What it lacks.
    pub why: Why,
    /// Since when.
    pub since: Instant,
}

/// An optional kind that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The kind.
    pub kind: Gvk,
    /// What it lacks.
    pub why: Why,
}

/// Why a kind cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The API server has not yet said which kinds it serves.
    Discovering,
    /// The cluster does not serve it.
    NotServed,
    /// The first list is on its way.
    Listing,
    /// The host may not list or watch it.
    Forbidden {
        /// What the API server said.
        message: String,
    },
    /// It was never read completely, and the last attempt failed.
    Failing {
        /// What went wrong.
        message: String,
    },
    /// It is shown as keyed hashes, and there is no key.
    HashKeyMissing,
    /// It is known, but may be behind what the process that wrote until now has written.
    InDoubt,
}

impl Why {
    /// Whether waiting alone will not help, so that an optional kind is left out instead of waited for.
    pub const fn is_lasting(&self) -> bool {
        matches!(self, Self::NotServed | Self::Forbidden { .. })
    }
}

/// Half a sentence that follows the kind: `is not served by the cluster`.
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
            Self::InDoubt => f.write_str("is being compared with the cluster"),
        }
    }
}
