//! Tracked reads: the requests of a guest for objects during a pass.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Gvk;

/// A reference to one object to read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// The kind in the requested version.
    pub kind: Gvk,
    /// The namespace; `None` means the parent's, or no namespace for a cluster-scoped kind.
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
}

/// A selection of objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListSelector {
    /// The kind in the requested version.
    pub kind: Gvk,
    /// The namespace; `None` means every namespace that the grant covers.
    pub namespace: Option<Arc<str>>,
    /// A label selector in Kubernetes' text form; `None` selects all.
    pub label_selector: Option<Arc<str>>,
}

/// One read that a pass made. A later change to its result queues the parent.
///
/// Its JSON form has a `verb`, the fields of the kind, and `null` for what is not given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "ReadText", from = "ReadText")]
pub enum ReadKey {
    /// One object.
    Get(ObjectRef),
    /// A list.
    List(ListSelector),
}

#[derive(Serialize, Deserialize)]
#[serde(
    tag = "verb",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
enum ReadText {
    Get {
        #[serde(flatten)]
        kind: Gvk,
        namespace: Option<String>,
        name: String,
    },
    List {
        #[serde(flatten)]
        kind: Gvk,
        namespace: Option<String>,
        label_selector: Option<String>,
    },
}

impl From<ReadKey> for ReadText {
    fn from(key: ReadKey) -> Self {
        let owned = |text: Option<Arc<str>>| text.as_deref().map(str::to_owned);
        match key {
            ReadKey::Get(read) => Self::Get {
                kind: read.kind,
                namespace: owned(read.namespace),
                name: (*read.name).to_owned(),
            },
            ReadKey::List(read) => Self::List {
                kind: read.kind,
                namespace: owned(read.namespace),
                label_selector: owned(read.label_selector),
            },
        }
    }
}

impl From<ReadText> for ReadKey {
    fn from(text: ReadText) -> Self {
        match text {
            ReadText::Get {
                kind,
                namespace,
                name,
            } => Self::Get(ObjectRef {
                kind,
                namespace: namespace.map(Arc::from),
                name: name.into(),
            }),
            ReadText::List {
                kind,
                namespace,
                label_selector,
            } => Self::List(ListSelector {
                kind,
                namespace: namespace.map(Arc::from),
                label_selector: label_selector.map(Arc::from),
            }),
        }
    }
}

/// The reason why a read has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadFailure {
    /// The grants do not cover the read; the guest receives this as an error.
    #[error("reading {0} is not granted")]
    NotGranted(Gvk),
    /// The host does not watch this namespace; the guest receives the same error as for a missing grant.
    #[error(
        "{kind} of namespace {namespace} is not seen by this host: run it with --namespaces that include {namespace}"
    )]
    OutOfSight {
        /// The requested kind.
        kind: Gvk,
        /// The requested namespace.
        namespace: Arc<str>,
    },
    /// The cluster does not serve the kind; the guest receives this as an error.
    #[error("{0} is not served")]
    NotServed(Gvk),
    /// The label selector does not parse: a fault of the guest.
    #[error("\"{selector}\" is not a label selector")]
    InvalidSelector {
        /// The text as given.
        selector: String,
    },
    /// The cache does not hold the kind yet; the host parks the pass, and the guest receives no answer.
    #[error("{0} is not yet cached")]
    NotSynced(Gvk),
}

/// The answers to the reads of one pass, and the record of these reads.
///
/// Within a pass, the same read always has the same answer.
pub trait Reads: Send {
    /// Returns one object as guests see it; `None` if it does not exist.
    fn get(&mut self, reference: &ObjectRef) -> Result<Option<Arc<str>>, ReadFailure>;

    /// Returns the selected objects as guests see them, sorted by namespace and name.
    fn list(&mut self, selector: &ListSelector) -> Result<Vec<Arc<str>>, ReadFailure>;
}
