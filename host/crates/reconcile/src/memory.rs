//! The memory of passes: a pass is skipped if its inputs are exactly those of the last one, which wrote nothing.
//!
//! A pass is a function of its inputs: the same inputs give the same answer, the same plan and the same status.
//! So the key covers everything that a pass reads, not only the inputs of the guest: the owners of an object's fields
//! decide on its apply, too.
//! `Ready` needs no check of its own, because the text of every child is among the inputs.
//! Time and random bytes cannot be inputs: a pass whose guest asked for them is not remembered.
//! A memory belongs to one epoch, so the plugin, the grants and the limits are the same for all of its passes.

pub(crate) mod files;
mod kept;
pub(crate) mod ledger;

use std::{collections::BTreeMap, mem, sync::Arc};

use innkeeper_model::{
    Answer, Gvk, HashKey, ManagedEntry, Object, ObjectId, Phase, ReadKey, Resource,
};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::next::Next;

pub(crate) use kept::KeptPass;

/// The largest number of reads of a remembered pass.
///
/// Chosen: the key of a pass takes 32 bytes, but each read takes a kind, a namespace and a name. Without a bound, one
/// parent could take more memory than many others together.
const READS_MAX: usize = 64;

/// The hash of a pass's inputs, which is fed part by part.
///
/// Each part is hashed with its length, so different inputs never give the same bytes.
#[derive(Clone)]
pub(crate) struct Inputs(Sha256);

impl Inputs {
    /// Starts with the inputs of all passes of a revision; `contract` is the version of its contract.
    pub(crate) fn of_revision(contract: &str, revision: &[u8], hash_key: &HashKey) -> Self {
        let mut inputs = Self(Sha256::new());
        inputs.text(contract);
        inputs.part(revision);
        // Applied objects contain hashes with this key.
        inputs.part(hash_key.as_bytes());
        inputs
    }

    /// Adds the children.
    pub(crate) fn children(&mut self, children: &[Object]) {
        self.count(children.len());
        for child in children {
            self.object(child);
        }
    }

    /// Adds the phase and the parent.
    pub(crate) fn parent(&mut self, phase: Phase, parent: &Object) {
        self.flag(phase == Phase::Finalize);
        self.object(parent);
    }

    /// Adds a kind and its address in the API; none if the cluster does not serve it.
    pub(crate) fn served(&mut self, kind: &Gvk, resource: Option<&Resource>) {
        self.text(&kind.to_string());
        self.flag(resource.is_some());
        if let Some(resource) = resource {
            self.text(&resource.plural);
            self.flag(resource.scope == innkeeper_model::Scope::Cluster);
        }
    }

    /// Adds a read and its answer.
    pub(crate) fn read(&mut self, key: &ReadKey, answer: &Answer) {
        self.text(&format!("{key:?}"));
        match answer {
            Answer::Object(object) => self.optional(object.as_deref()),
            Answer::List(objects) => {
                self.count(objects.len());
                for object in objects {
                    self.text(object);
                }
            }
            Answer::Offset(offset) => self.text(&format!("{offset:?}")),
            Answer::Failed(failure) => self.text(&format!("{failure:?}")),
        }
    }

    fn key(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    fn object(&mut self, object: &Object) {
        self.text(&object.kind.to_string());
        self.text(&object.form.to_string());
        // The other fields of `Object` are parsed from this text; the managed fields are not in it.
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

    /// Adds a fact.
    pub(crate) fn flag(&mut self, flag: bool) {
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

/// A remembered pass: the key of its inputs, the time of the next pass, and the reads that belong to the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    key: [u8; 32],
    next: Next,
    reads: Arc<[ReadKey]>,
}

/// The last pass of each parent, if it wrote nothing.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Passes>);

#[derive(Default)]
struct Passes {
    by_parent: BTreeMap<ObjectId, Remembered>,
    /// True if the passes are not those that were written last.
    changed: bool,
}

impl Memory {
    /// Returns the time of the next pass if a pass with these inputs would write nothing.
    ///
    /// `ask` answers the reads of the remembered pass. A guest that has got the same answers so far has the same next
    /// read. So either all answers are the same, or the first different one changes the key.
    pub(crate) fn recall(
        &self,
        parent: &ObjectId,
        inputs: &Inputs,
        mut ask: impl FnMut(&ReadKey) -> Answer,
    ) -> Option<Next> {
        let Remembered { key, next, reads } = self.0.lock().by_parent.get(parent)?.clone();
        let mut inputs = inputs.clone();
        for read in &*reads {
            inputs.read(read, &ask(read));
        }
        (inputs.key() == key).then_some(next)
    }

    /// Remembers a pass that wrote nothing and would write nothing if it was repeated.
    pub(crate) fn remember(
        &self,
        parent: &ObjectId,
        mut inputs: Inputs,
        reads: &[(ReadKey, Answer)],
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
        let mut passes = self.0.lock();
        let before = passes.by_parent.get(parent);
        if before != Some(&remembered) {
            passes.by_parent.insert(parent.clone(), remembered);
            passes.changed = true;
        }
    }

    /// Forgets the last pass of a parent.
    pub(crate) fn forget(&self, parent: &ObjectId) {
        let mut passes = self.0.lock();
        let removed = passes.by_parent.remove(parent);
        passes.changed |= removed.is_some();
    }

    /// Begins with the passes of an earlier process.
    pub(crate) fn restore(&self, by_parent: BTreeMap<ObjectId, Remembered>) {
        self.0.lock().by_parent = by_parent;
    }

    /// Gives all passes to `write` if they have changed since it succeeded last.
    pub(crate) fn keep<E>(
        &self,
        write: impl FnOnce(Vec<KeptPass>) -> Result<(), E>,
    ) -> Result<(), E> {
        let kept: Vec<KeptPass> = {
            let mut passes = self.0.lock();
            if !mem::take(&mut passes.changed) {
                return Ok(());
            }
            let all = passes.by_parent.iter();
            all.filter_map(|(parent, pass)| KeptPass::of(parent, pass))
                .collect()
        };
        write(kept).inspect_err(|_| self.0.lock().changed = true)
    }
}

#[cfg(test)]
mod tests;
