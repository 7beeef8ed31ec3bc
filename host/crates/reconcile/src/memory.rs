//! Which passes need not be run: those that depend on exactly what the last one depended on, which wrote nothing.
//!
//! A pass is a function of what it is handed: the same inputs give the same answer, the same plan and the same status.
//! So the key covers everything that a pass looks at, and not only what its guest is handed: who owns which field of an
//! object decides what is to be applied.
//! `Ready` needs no second look, because the text of every child is among the inputs.
//! Time and random bytes cannot be inputs: a pass whose guest asked for them is not remembered.
//! One memory belongs to one stint, so that plugin, grants and limits are the same for all that is in it.

use std::{collections::BTreeMap, sync::Arc};

use innkeeper_cluster::ReadAnswer;
use innkeeper_model::{
    Access, Gvk, HashKey, ManagedEntry, Object, ObjectId, Phase, ReadFailure, ReadKey, Resource,
};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::next::Next;

/// A pass that reads more is not remembered: its reads would take more room than the memory of all others.
const READS_MAX: usize = 64;

/// What a pass depends on, as it is taken up part by part.
///
/// Every part goes in with its length, so that no two inputs can be taken for each other.
#[derive(Clone)]
pub(super) struct Inputs(Sha256);

impl Inputs {
    /// The inputs of passes of one revision; `contract` is the version that its adapter speaks.
    pub(super) fn of_revision(contract: &str, revision: &[u8], hash_key: &HashKey) -> Self {
        let mut inputs = Self(Sha256::new());
        inputs.text(contract);
        inputs.part(revision);
        // What is applied carries hashes with this key.
        inputs.part(hash_key.as_bytes());
        inputs
    }

    /// Takes up what was observed.
    pub(super) fn observed(&mut self, phase: Phase, parent: &Object, children: &[Object]) {
        self.flag(phase == Phase::Finalize);
        self.object(parent);
        self.count(children.len());
        for child in children {
            self.object(child);
        }
    }

    /// Takes up whether and how a kind is served.
    pub(super) fn served(&mut self, kind: &Gvk, resource: Option<&Resource>) {
        self.text(&kind.to_string());
        self.flag(resource.is_some());
        if let Some(resource) = resource {
            self.text(&resource.plural);
            self.flag(resource.scope == innkeeper_model::Scope::Cluster);
        }
    }

    /// Takes up a read and its answer.
    pub(super) fn read(&mut self, key: &ReadKey, answer: &ReadAnswer) {
        match key {
            ReadKey::Get(reference) => {
                self.text("get");
                self.text(&reference.kind.to_string());
                self.optional(reference.namespace.as_deref());
                self.text(&reference.name);
            }
            ReadKey::List(selector) => {
                self.text("list");
                self.text(&selector.kind.to_string());
                self.optional(selector.namespace.as_deref());
                self.optional(selector.label_selector.as_deref());
            }
        }
        match answer {
            ReadAnswer::Object(object) => self.optional(object.as_deref()),
            ReadAnswer::List(objects) => {
                self.count(objects.len());
                for object in objects {
                    self.text(object);
                }
            }
            ReadAnswer::Failed(failure) => self.text(match failure {
                ReadFailure::NotGranted(_) => "not granted",
                ReadFailure::OutOfSight { .. } => "out of sight",
                ReadFailure::NotServed(_) => "not served",
                ReadFailure::InvalidSelector { .. } => "invalid",
                ReadFailure::NotSynced(_) => "not synced",
            }),
        }
    }

    fn key(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    fn object(&mut self, object: &Object) {
        self.text(&object.kind.to_string());
        self.text(match object.form {
            Access::Full => "full",
            Access::Hash => "hash",
            Access::Metadata => "metadata",
        });
        // Everything else that is taken out of an object is in its text as well.
        self.text(&object.json);
        self.count(object.managed.len());
        for ManagedEntry {
            manager,
            subresource,
            applied,
            fields,
        } in &object.managed
        {
            self.text(manager);
            self.optional(subresource.as_deref());
            self.flag(*applied);
            self.text(fields);
        }
    }

    fn optional(&mut self, text: Option<&str>) {
        self.flag(text.is_some());
        self.text(text.unwrap_or_default());
    }

    fn flag(&mut self, flag: bool) {
        self.0.update([u8::from(flag)]);
    }

    fn text(&mut self, text: &str) {
        self.part(text.as_bytes());
    }

    fn part(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.update(bytes);
    }

    fn count(&mut self, count: usize) {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        self.0.update(count.to_be_bytes());
    }
}

/// What is kept of a pass: a key of 32 bytes, when it wanted to come again, and which reads belong to the key.
#[derive(Clone)]
struct Remembered {
    key: [u8; 32],
    next: Next,
    reads: Arc<[ReadKey]>,
}

/// The last pass of each parent, where it wrote nothing.
#[derive(Default)]
pub(super) struct Memory(Mutex<BTreeMap<ObjectId, Remembered>>);

impl Memory {
    /// When the next pass comes, if a pass with these inputs would do nothing.
    ///
    /// `ask` answers the reads of the pass that is remembered: a guest that got the same answers so far asks the same
    /// next, so that either all of them are the same or the first one that differs changes the key.
    pub(super) fn recall(
        &self,
        parent: &ObjectId,
        inputs: &Inputs,
        mut ask: impl FnMut(&ReadKey) -> ReadAnswer,
    ) -> Option<Next> {
        let Remembered { key, next, reads } = self.0.lock().get(parent)?.clone();
        let mut inputs = inputs.clone();
        for read in &*reads {
            inputs.read(read, &ask(read));
        }
        (inputs.key() == key).then_some(next)
    }

    /// Keeps a pass that wrote nothing and was not refused anything.
    pub(super) fn remember(
        &self,
        parent: &ObjectId,
        mut inputs: Inputs,
        reads: &[(ReadKey, ReadAnswer)],
        next: Next,
    ) {
        if reads.len() > READS_MAX {
            return self.forget(parent);
        }
        for (key, answer) in reads {
            inputs.read(key, answer);
        }
        let remembered = Remembered {
            key: inputs.key(),
            next,
            reads: reads.iter().map(|(key, _)| key.clone()).collect(),
        };
        self.0.lock().insert(parent.clone(), remembered);
    }

    /// Forgets the last pass of a parent.
    pub(super) fn forget(&self, parent: &ObjectId) {
        self.0.lock().remove(parent);
    }
}

#[cfg(test)]
mod tests;
