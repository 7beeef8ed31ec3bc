//! Remembered passes in the form of a file.

use std::{sync::Arc, time::Duration};

use innkeeper_model::{Digest, GroupKind, Gvk, ListSelector, ObjectId, ObjectRef, ReadKey};
use serde::{Deserialize, Serialize};

use super::{Next, Remembered};

/// A remembered pass; the kind of its parent is that of the file.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeptPass {
    namespace: Option<String>,
    name: String,
    /// The key of the inputs, as hexadecimal digits.
    key: String,
    /// The time to the next pass; none: only with a change.
    requeue_after_ms: Option<u64>,
    reads: Vec<KeptRead>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptRead {
    kind: Gvk,
    namespace: Option<String>,
    #[serde(flatten)]
    choice: KeptChoice,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum KeptChoice {
    Get(String),
    List(Option<String>),
}

impl KeptPass {
    /// Returns the file's form of a remembered pass; none if no pass follows at a known time.
    pub(super) fn of(parent: &ObjectId, pass: &Remembered) -> Option<Self> {
        let requeue_after_ms = match pass.next {
            Next::Settled => None,
            Next::RequeueAfter(after) => Some(u64::try_from(after.as_millis()).ok()?),
            _ => return None,
        };
        Some(Self {
            namespace: owned(parent.namespace.as_ref()),
            name: parent.name.to_string(),
            key: innkeeper_model::hex(&pass.key),
            requeue_after_ms,
            reads: pass.reads.iter().map(KeptRead::of).collect(),
        })
    }

    /// Returns the remembered pass; none if the key is damaged.
    pub(crate) fn remembered(self, kind: &GroupKind) -> Option<(ObjectId, Remembered)> {
        let after = |ms| Next::RequeueAfter(Duration::from_millis(ms));
        let pass = Remembered {
            key: *Digest::from_hex(&self.key)?.as_bytes(),
            next: self.requeue_after_ms.map_or(Next::Settled, after),
            reads: self.reads.into_iter().map(KeptRead::key).collect(),
        };
        let parent = ObjectId {
            kind: kind.clone(),
            namespace: self.namespace.map(Arc::from),
            name: self.name.into(),
        };
        Some((parent, pass))
    }
}

impl KeptRead {
    fn of(key: &ReadKey) -> Self {
        let (kind, namespace, choice) = match key {
            ReadKey::Get(ObjectRef {
                kind,
                namespace,
                name,
            }) => (kind, namespace, KeptChoice::Get(name.to_string())),
            ReadKey::List(ListSelector {
                kind,
                namespace,
                label_selector,
            }) => {
                let selector = owned(label_selector.as_ref());
                (kind, namespace, KeptChoice::List(selector))
            }
        };
        Self {
            kind: kind.clone(),
            namespace: owned(namespace.as_ref()),
            choice,
        }
    }

    fn key(self) -> ReadKey {
        let Self {
            kind,
            namespace,
            choice,
        } = self;
        let namespace = namespace.map(Arc::from);
        match choice {
            KeptChoice::Get(name) => ReadKey::Get(ObjectRef {
                kind,
                namespace,
                name: name.into(),
            }),
            KeptChoice::List(selector) => ReadKey::List(ListSelector {
                kind,
                namespace,
                label_selector: selector.map(Arc::from),
            }),
        }
    }
}

fn owned(text: Option<&Arc<str>>) -> Option<String> {
    text.map(|text| (**text).to_owned())
}
