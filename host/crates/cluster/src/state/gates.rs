//! Own writes that the cache has not shown yet: until it does, a parent has no pass, because the pass would do again
//! what was done already. It is the same with what refused a write: a pass would rest on the same old knowledge again.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{Gvk, LabelSelector, ObjectId, Resource, ResourceVersion, Uid};
use tokio::time::Instant;

use super::{Member, Slot, SlotId, State, key_of};
use crate::{
    stored::{Shape, Stored},
    triggers::{Cause, Trigger},
};

/// What the cache must show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// This version or a later one.
    Version(ResourceVersion),
    /// A later version than this, which the API server said is not the last, or that the object is gone.
    After(ResourceVersion),
    /// That the object is gone or being deleted.
    Deleted(Uid),
    /// Nobody knows: only a live read can tell.
    Unknown,
}

/// One write that was not seen yet.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    expected: Expected,
    /// When it is read live.
    due: Instant,
}

/// The writes of one parent, by object.
pub(super) type Gates = BTreeMap<ObjectId, Gate>;

/// What is to be done before a parent is observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unseen {
    /// Nothing.
    None,
    /// To wait.
    Until(Instant),
    /// To read these live.
    Read(Vec<ObjectId>),
}

/// How one object is read live.
#[derive(Clone, Debug)]
pub(crate) struct LiveRead {
    slot: SlotId,
    pub(crate) served: Resource,
    pub(crate) shape: Shape,
    /// What the cache had of it before.
    version: Option<ResourceVersion>,
}

impl State {
    /// Remembers a write.
    pub(crate) fn expect(
        &mut self,
        member: Member,
        parent: &ObjectId,
        id: &ObjectId,
        expected: Expected,
        due: Instant,
    ) {
        let Some(enrolled) = self.members.get_mut(&member) else {
            return;
        };
        let gates = enrolled.gates.entry(parent.clone()).or_default();
        // A write of which nothing is known stays so until it was read.
        let unknown = gates
            .get(id)
            .is_some_and(|gate| gate.expected == Expected::Unknown);
        if !unknown {
            gates.insert(id.clone(), Gate { expected, due });
        }
    }

    /// Whether a parent still waits for its own writes.
    pub(crate) fn unseen(&mut self, member: Member, parent: &ObjectId, now: Instant) -> Unseen {
        self.drop_seen(member, parent);
        let Some(enrolled) = self.members.get_mut(&member) else {
            return Unseen::None;
        };
        let Some(gates) = enrolled.gates.get(parent) else {
            enrolled.behind.remove(parent);
            return Unseen::None;
        };
        let due: Vec<ObjectId> = gates
            .iter()
            .filter(|(_, gate)| gate.due <= now)
            .map(|(id, _)| id.clone())
            .collect();
        if !due.is_empty() {
            return Unseen::Read(due);
        }
        let first = gates.values().map(|gate| gate.due).min();
        enrolled.behind.insert(parent.clone());
        first.map_or(Unseen::None, Unseen::Until)
    }

    /// Whether a parent's own writes have not all been seen; nobody is told when they are.
    pub(crate) fn is_behind(&self, member: Member, parent: &ObjectId) -> bool {
        let enrolled = self.members.get(&member);
        let gates = enrolled.and_then(|enrolled| enrolled.gates.get(parent));
        let mut gates = gates.into_iter().flatten();
        gates.any(|(id, gate)| !self.is_seen(member, parent, id, &gate.expected))
    }

    /// How to read an object live; none if its kind cannot be read, so that there is nothing to wait for.
    pub(crate) fn live_read(
        &mut self,
        member: Member,
        parent: &ObjectId,
        id: &ObjectId,
    ) -> Option<LiveRead> {
        let found = self
            .gate_slot(member, parent, id)
            .and_then(|(slot_id, kind)| {
                let slot = self.slots.get(&slot_id)?;
                let namespace = id.namespace.as_deref();
                let mut shape = self.shape(slot, slot.form());
                shape.kind = kind;
                Some(LiveRead {
                    slot: slot_id,
                    served: slot
                        .served
                        .clone()
                        .filter(|_| self.why(slot, namespace).is_none())?,
                    shape,
                    version: slot.store.get(&key_of(id)).map(|stored| stored.version),
                })
            });
        if found.is_none() {
            self.open(member, parent, id);
        }
        found
    }

    /// Takes what a live read found.
    pub(crate) fn live(
        &mut self,
        member: Member,
        parent: &ObjectId,
        id: &ObjectId,
        read: &LiveRead,
        found: Option<Stored>,
    ) {
        self.open(member, parent, id);
        let Some(slot) = self.slots.get_mut(&read.slot) else {
            return;
        };
        // An object that the watch does not choose would stay for ever: no event would ever take it out.
        let found = found.filter(|stored| chosen(slot, stored));
        let changes = match found {
            Some(stored) => slot.store.put(stored),
            // What came meanwhile is newer than the answer.
            None => read
                .version
                .and_then(|version| slot.store.remove(&key_of(id), version))
                .into_iter()
                .collect(),
        };
        self.dispatch(read.slot, &changes, false);
    }

    /// Puts a live read that failed off.
    pub(crate) fn live_failed(
        &mut self,
        member: Member,
        parent: &ObjectId,
        id: &ObjectId,
        now: Instant,
    ) {
        const PAUSE: Duration = Duration::from_secs(1);
        let enrolled = self.members.get_mut(&member);
        let gates = enrolled.and_then(|enrolled| enrolled.gates.get_mut(parent));
        if let Some(gate) = gates.and_then(|gates| gates.get_mut(id)) {
            gate.due = now + PAUSE;
        }
    }

    /// Whether a parent that was told to wait need not wait any more.
    pub(super) fn caught_up(&mut self, member: Member, parent: &ObjectId) -> bool {
        let waits = |state: &Self| {
            let enrolled = state.members.get(&member)?;
            enrolled.behind.contains(parent).then_some(())
        };
        if waits(self).is_none() {
            return false;
        }
        self.drop_seen(member, parent);
        let Some(enrolled) = self.members.get_mut(&member) else {
            return false;
        };
        let done = !enrolled.gates.contains_key(parent);
        if done {
            enrolled.behind.remove(parent);
        }
        done
    }

    /// Looks through all who wait after a watch has moved on without a change.
    pub(super) fn moved_on(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get(&id) else {
            return;
        };
        let members: Vec<Member> = slot.users().map(|(member, _)| member).collect();
        for member in members {
            let enrolled = self.members.get(&member);
            let behind: Vec<ObjectId> = enrolled
                .into_iter()
                .flat_map(|enrolled| enrolled.behind.iter().cloned())
                .collect();
            for parent in behind {
                if self.caught_up(member, &parent) {
                    let trigger = Trigger {
                        cause: Cause::CaughtUp,
                        object: None,
                    };
                    self.trigger(member, parent, trigger);
                }
            }
        }
    }

    fn drop_seen(&mut self, member: Member, parent: &ObjectId) {
        let seen: Vec<ObjectId> = self
            .members
            .get(&member)
            .and_then(|enrolled| enrolled.gates.get(parent))
            .into_iter()
            .flatten()
            .filter(|(id, gate)| self.is_seen(member, parent, id, &gate.expected))
            .map(|(id, _)| id.clone())
            .collect();
        for id in seen {
            self.open(member, parent, &id);
        }
    }

    fn is_seen(
        &self,
        member: Member,
        parent: &ObjectId,
        id: &ObjectId,
        expected: &Expected,
    ) -> bool {
        let Some((slot, _)) = self.gate_slot(member, parent, id) else {
            // A kind that is not watched any more will never show anything.
            return *expected != Expected::Unknown;
        };
        let Some(slot) = self.slots.get(&slot) else {
            return true;
        };
        let stored = slot.store.get(&key_of(id));
        match expected {
            Expected::Version(version) => {
                let lane = slot.lane_at(id.namespace.as_deref());
                lane.is_some_and(|lane| lane.version >= *version)
                    || stored.is_some_and(|stored| stored.version >= *version)
            }
            Expected::After(version) => stored.is_none_or(|stored| stored.version > *version),
            Expected::Deleted(uid) => {
                stored.is_none_or(|stored| stored.uid != *uid || stored.deleting)
            }
            Expected::Unknown => false,
        }
    }

    fn open(&mut self, member: Member, parent: &ObjectId, id: &ObjectId) {
        let Some(enrolled) = self.members.get_mut(&member) else {
            return;
        };
        if let Some(gates) = enrolled.gates.get_mut(parent) {
            gates.remove(id);
            if gates.is_empty() {
                enrolled.gates.remove(parent);
            }
        }
    }

    /// The watch in which a written object must show up.
    fn gate_slot(&self, member: Member, parent: &ObjectId, id: &ObjectId) -> Option<(SlotId, Gvk)> {
        let enrolled = self.members.get(&member)?;
        if id == parent {
            return Some((enrolled.held.parent, enrolled.interest.parent.clone()));
        }
        let mut children = enrolled.held.children.iter();
        children
            .find(|(child, _)| child.kind.group_kind() == id.kind)
            .map(|(child, slot)| (*slot, child.kind.clone()))
    }
}

fn chosen(slot: &Slot, stored: &Stored) -> bool {
    let Some(selector) = &slot.key.selector else {
        return true;
    };
    let mut labels = BTreeMap::new();
    stored.each_label(|key, value| {
        labels.insert(key.to_owned(), value.to_owned());
    });
    LabelSelector::parse(selector).is_ok_and(|selector| selector.matches(&labels))
}
