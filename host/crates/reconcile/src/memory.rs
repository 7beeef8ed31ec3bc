//! Remembered passes: the host skips a pass with the same inputs as the last one, if that wrote nothing.
//!
//! Equal inputs give the same answer, plan and status.
//! The key covers everything that a pass reads, not only the guest's inputs: field ownership decides on applies, too.
//! `Ready` needs no own check, because every child's text is among the inputs.
//! The host does not remember a pass whose guest asked for time or random bytes.
//! A memory belongs to one epoch, so plugin, grants and limits are the same for all passes.

pub(crate) mod files;
pub(crate) mod ledger;

use std::{collections::BTreeMap, mem, sync::Arc};

use innkeeper_model::{
    Answer, Gvk, HashKey, ManagedEntry, Object, ObjectId, Phase, ReadKey, Resource,
};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::next::Next;

use files::StoredPass;

/// The most reads of a remembered pass.
///
/// A key takes 32 bytes, but each read takes a kind, a namespace and a name. Without a limit, one parent could take more
/// memory than many others together.
const READS_MAX: usize = 64;

/// Hashes a pass's inputs part by part.
///
/// Each part is hashed with a length, so different inputs never give the same bytes.
#[derive(Clone)]
pub(crate) struct Inputs(Sha256);

impl Inputs {
    /// Starts with a revision and its contract version.
    pub(crate) fn for_revision(contract: &str, revision: &[u8], hash_key: &HashKey) -> Self {
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

    /// Adds a kind and the API resource, if the cluster serves it.
    pub(crate) fn served(&mut self, kind: &Gvk, resource: Option<&Resource>) {
        self.text(&kind.to_string());
        self.flag(resource.is_some());
        if let Some(resource) = resource {
            self.text(&resource.plural);
            self.flag(resource.scope == innkeeper_model::Scope::Cluster);
        }
    }

    /// Adds a read and the answer.
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
        // The managed fields are not in this text; all other fields of `Object` come from it.
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

/// A remembered pass: the inputs' key with its reads, and the next pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remembered {
    key: [u8; 32],
    next: Next,
    reads: Arc<[ReadKey]>,
}

/// Each parent's last pass, if it wrote nothing.
#[derive(Default)]
pub(crate) struct Memory(Mutex<Passes>);

#[derive(Default)]
struct Passes {
    by_parent: BTreeMap<ObjectId, Remembered>,
    /// True if the stored passes are out of date.
    changed: bool,
}

impl Memory {
    /// Returns the time of the next pass if a pass with these inputs would write nothing.
    ///
    /// `ask` answers the remembered reads.
    pub(crate) fn recall(
        &self,
        parent: &ObjectId,
        inputs: &Inputs,
        mut ask: impl FnMut(&ReadKey) -> Answer,
    ) -> Option<Next> {
        // A copy: `ask` reads the cache, and other passes need this lock meanwhile.
        let Remembered { key, next, reads } = self.0.lock().by_parent.get(parent)?.clone();
        let mut inputs = inputs.clone();
        // With the same answers so far, a guest makes the same next read: either all answers are the same, or the first
        // different one changes the key.
        for read in &*reads {
            inputs.read(read, &ask(read));
        }
        (inputs.key() == key).then_some(next)
    }

    /// Remembers a pass that wrote nothing and, repeated, would write nothing.
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
        // An equal pass must not cause another write of the file.
        if passes.by_parent.get(parent) != Some(&remembered) {
            passes.by_parent.insert(parent.clone(), remembered);
            passes.changed = true;
        }
    }

    /// Forgets a parent's last pass.
    pub(crate) fn forget(&self, parent: &ObjectId) {
        let mut passes = self.0.lock();
        let forgotten = passes.by_parent.remove(parent);
        passes.changed |= forgotten.is_some();
    }

    /// Begins with an earlier process's passes.
    pub(crate) fn restore(&self, by_parent: BTreeMap<ObjectId, Remembered>) {
        self.0.lock().by_parent = by_parent;
    }

    /// Stores all passes with `write` if they have changed since the last success.
    pub(crate) fn store<E>(
        &self,
        write: impl FnOnce(Vec<StoredPass>) -> Result<(), E>,
    ) -> Result<(), E> {
        // The lock ends before the write, which blocks.
        let stored: Vec<StoredPass> = {
            let mut passes = self.0.lock();
            // Reset before the write: a pass that ends during it sets the flag again.
            if !mem::take(&mut passes.changed) {
                return Ok(());
            }
            passes
                .by_parent
                .iter()
                .filter_map(|(parent, pass)| StoredPass::new(parent, pass))
                .collect()
        };
        write(stored).inspect_err(|_| self.0.lock().changed = true)
    }
}

#[cfg(test)]
mod tests;
