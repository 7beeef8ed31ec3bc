//! The parents that this revision of a plugin has given up: it said `fatal` for them, so that only another revision or
//! configuration can help.
//!
//! Forgotten by a restart, which costs one call per parent and changes nothing.

use std::collections::BTreeMap;

use innkeeper_model::{Condition, Object, ObjectId, Uid};
use parking_lot::Mutex;

/// What was said of each, by parent; at most one per living parent.
#[derive(Default)]
pub(super) struct GivenUp(Mutex<BTreeMap<ObjectId, (Uid, Condition)>>);

impl GivenUp {
    pub(super) fn add(&self, parent: &Object, synced: Condition) {
        let said = (parent.uid.clone(), synced);
        self.0.lock().insert(parent.id(), said);
    }

    /// What was said of this parent; a successor of the same name is another parent.
    pub(super) fn said_of(&self, parent: &Object) -> Option<Condition> {
        let all = self.0.lock();
        let (uid, synced) = all.get(&parent.id())?;
        (*uid == parent.uid).then(|| synced.clone())
    }

    pub(super) fn forget(&self, parent: &ObjectId) {
        self.0.lock().remove(parent);
    }
}
