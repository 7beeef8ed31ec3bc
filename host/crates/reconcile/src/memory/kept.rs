//! Remembered passes in the form of a file.

use std::{sync::Arc, time::Duration};

use innkeeper_model::{Digest, GroupKind, ObjectId, ReadKey};
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
    reads: Vec<ReadKey>,
}

impl KeptPass {
    /// Returns the file's form of a remembered pass; none if no pass follows at a known time.
    pub(crate) fn of(parent: &ObjectId, pass: &Remembered) -> Option<Self> {
        let requeue_after_ms = match pass.next {
            Next::Settled => None,
            Next::RequeueAfter(after) => Some(u64::try_from(after.as_millis()).ok()?),
            _ => return None,
        };
        Some(Self {
            namespace: parent.namespace.as_deref().map(str::to_owned),
            name: parent.name.to_string(),
            key: innkeeper_model::hex(&pass.key),
            requeue_after_ms,
            reads: pass.reads.to_vec(),
        })
    }

    /// Returns the remembered pass; none if the key is damaged.
    pub(crate) fn remembered(self, kind: &GroupKind) -> Option<(ObjectId, Remembered)> {
        let after = |ms| Next::RequeueAfter(Duration::from_millis(ms));
        let pass = Remembered {
            key: *Digest::from_hex(&self.key)?.as_bytes(),
            next: self.requeue_after_ms.map_or(Next::Settled, after),
            reads: self.reads.into(),
        };
        let parent = ObjectId {
            kind: kind.clone(),
            namespace: self.namespace.map(Arc::from),
            name: self.name.into(),
        };
        Some((parent, pass))
    }
}
