//! Identifies a registration, and a parent that reads through it.

use innkeeper_model::ObjectId;

/// The number of a registration, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SubscriberId(pub(crate) u64);

/// One registration's parent.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reader {
    pub(crate) subscriber_id: SubscriberId,
    pub(crate) parent: ObjectId,
}

impl Reader {
    pub(crate) const fn new(subscriber_id: SubscriberId, parent: ObjectId) -> Self {
        Self {
            subscriber_id,
            parent,
        }
    }
}
