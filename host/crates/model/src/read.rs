//! Tracked reads: what a guest may ask for during a pass.

use std::sync::Arc;

use super::Gvk;

/// Names one object to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The kind in the version asked for.
    pub kind: Gvk,
    /// The namespace; none: the parent's, or none for a cluster-scoped kind.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
}

/// Chooses objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListSelector {
    /// The kind in the version asked for.
    pub kind: Gvk,
    /// The namespace; none: every namespace that the grant covers.
    pub namespace: Option<Arc<str>>,
    /// A label selector in Kubernetes' text form; none: all.
    pub label_selector: Option<Arc<str>>,
}

/// One read that a pass made; what its parent is subscribed to from then on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadKey {
    /// One object.
    Get(ObjectRef),
    /// A list.
    List(ListSelector),
}

/// Why a read has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// The plugin may not read this; the guest is told so.
    #[error("reading {0} is not granted")]
    NotGranted(Gvk),
    /// The host does not look into this namespace; the guest is told that it may not read this.
    #[error(
        "{kind} of namespace {namespace} is not seen by this host: run it with --namespaces that include {namespace}"
    )]
    OutOfSight {
        /// What was asked for.
        kind: Gvk,
        /// Where.
        namespace: Arc<str>,
    },
    /// The cluster does not serve the kind; the guest is told so.
    #[error("{0} is not served")]
    NotServed(Gvk),
    /// The label selector does not parse: a fault of the guest.
    #[error("\"{selector}\" is not a label selector")]
    InvalidSelector {
        /// The text as given.
        selector: String,
    },
    /// The kind is not yet cached; the pass is parked and the guest never learns of it.
    #[error("{0} is not yet cached")]
    NotSynced(Gvk),
}

/// Answers the reads of one pass, and remembers them.
///
/// The same read is answered with the same text throughout a pass.
pub trait Reads: Send {
    /// One object as guests see it; none if it does not exist.
    fn get(&mut self, reference: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure>;

    /// The chosen objects as guests see them, sorted by namespace and name.
    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure>;
}
