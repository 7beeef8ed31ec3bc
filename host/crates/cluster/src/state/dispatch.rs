//! Maps a change to the parents that it concerns.
//!
//! Pure: reads the watches and returns parents, without queueing any.

use std::collections::BTreeSet;

use innkeeper_model::ObjectId;

use super::{Reader, Role, WatchSlot, WatchTable, id_of, key_of, table::SubscriberWatches};
use crate::{section::Section, store::Change, stored::Stored, triggers::Cause};

/// Returns the parents that a changed object concerns. Without a cause they do not see the change, but it may be an own
/// write that they wait for.
pub(super) fn concerned(
    table: &WatchTable,
    slot: &WatchSlot,
    object: &ObjectId,
    change: &Change,
    is_first: bool,
) -> Vec<(Reader, Option<Cause>)> {
    let mut concerned = Vec::new();
    for (subscriber_id, role) in slot.users() {
        let Some(watches) = table.by_subscriber.get(&subscriber_id) else {
            continue;
        };
        let (parents, cause) = match role {
            Role::Parent => (
                BTreeSet::from([object.clone()]),
                parent_cause(change, is_first),
            ),
            Role::Child => (
                // Both states: a child that changes hands concerns both parents.
                [&change.before, &change.after]
                    .into_iter()
                    .flatten()
                    .filter_map(|stored| parent_of(table, watches, stored))
                    .collect(),
                child_cause(change, is_first),
            ),
            Role::Read => continue,
        };
        let parents = parents.into_iter();
        for parent in parents.filter(|id| table.sees(watches, id.namespace.as_deref())) {
            concerned.push((Reader::new(subscriber_id, parent), cause));
        }
    }
    for reader in slot.subscriptions.touched(change) {
        concerned.push((reader, Some(Cause::RelatedChanged)));
    }
    concerned
}

/// Returns the parents whose reads depend on a kind that became usable or unusable in a section.
pub(super) fn kind_readers(table: &WatchTable, slot: &WatchSlot, section: &Section) -> Vec<Reader> {
    if table.why(slot, section).is_none() {
        // All other readers are triggered by the objects that they see.
        slot.subscriptions.waiting().cloned().collect()
    } else {
        slot.subscriptions.readers().cloned().collect()
    }
}

/// A child's parent, if it is cached.
fn parent_of(table: &WatchTable, watches: &SubscriberWatches, child: &Stored) -> Option<ObjectId> {
    let parents = &table.get(watches.parent)?.store;
    let kind = watches.interest.parent.group_kind();
    let controller = child.controller.as_ref();
    if let Some(parent) = controller.and_then(|uid| parents.by_uid(uid)) {
        return Some(id_of(&kind, parent));
    }
    let parent = ObjectId::parse_identity(child.retained_for.as_deref()?)?;
    (parent.kind == kind && parents.get(&key_of(&parent)).is_some()).then_some(parent)
}

fn parent_cause(change: &Change, is_first: bool) -> Option<Cause> {
    match (&change.before, &change.after) {
        (_, None) => Some(Cause::ParentGone),
        (None, Some(_)) if is_first => Some(Cause::Listed),
        _ if !change.is_relevant() => None,
        _ if change.is_status_only() => Some(Cause::ParentStatus),
        _ => Some(Cause::ParentChanged),
    }
}

fn child_cause(change: &Change, is_first: bool) -> Option<Cause> {
    let cause = if is_first {
        Cause::Listed
    } else {
        Cause::ChildChanged
    };
    change.is_relevant().then_some(cause)
}
