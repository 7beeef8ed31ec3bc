//! The identity of a registration and of a parent that reads through it.

use innkeeper_model::ObjectId;

/// A registration, identified by a number that is never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SubscriberId(pub(crate) u64);

/// A parent of one registration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reader {
    pub(crate) subscriber_id: SubscriberId,
    pub(crate) parent: ObjectId,
}
