//! The parents that one revision of a plugin has given up: its guest reported a `fatal` fault for them, so only another
//! revision or configuration can help.
//!
//! Kept in memory only: a restart costs one call per parent and changes nothing else.

use std::collections::BTreeMap;

use innkeeper_model::{Condition, Object, ObjectId, Uid};
use parking_lot::Mutex;

/// The condition `Synced` of each parent that is given up, with the parent's UID; at most one per living parent.
#[derive(Default)]
pub(crate) struct GivenUp(Mutex<BTreeMap<ObjectId, (Uid, Condition)>>);

impl GivenUp {
    pub(crate) fn add(&self, parent: &Object, synced: Condition) {
        let said = (parent.uid.clone(), synced);
        self.0.lock().insert(parent.id(), said);
    }

    /// Returns the condition of a parent that is given up; a successor with the same name is another parent.
    pub(crate) fn condition_of(&self, parent: &Object) -> Option<Condition> {
        let all = self.0.lock();
        let (uid, synced) = all.get(&parent.id())?;
        (*uid == parent.uid).then(|| synced.clone())
    }

    pub(crate) fn forget(&self, parent: &ObjectId) {
        self.0.lock().remove(parent);
    }
}
