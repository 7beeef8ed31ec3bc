//! Freshness checks: a watch may be behind the writes of another process. Until its check passes, it counts as not
//! listed.

use std::sync::Arc;

use innkeeper_model::{Access, ResourceVersion};
use tokio::time::Instant;

use super::{SlotId, State, lanes::Lane, slots::Health};
use crate::{proof::Contents, store::Key, wire::Target};

/// The identity of a namespace watch, whichever task writes to it.
pub(crate) type Doubted = (SlotId, Option<Arc<str>>);

/// The state of a freshness check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Passed, or not needed.
    None,
    /// Needed, but the watch has no complete list yet to compare with.
    NotListed,
    /// Needed; this is the request to compare with, in metadata form.
    Of(Target),
}

impl State {
    /// Requires a freshness check of every watch. A watch without any version starts over instead:
    /// its first list comes from a quorum, so it needs no check. The same holds for watches that are added later.
    pub(crate) fn doubt_all(&mut self, now: Instant) {
        let ids: Vec<SlotId> = self.slots.keys().copied().collect();
        for slot in self.slots.values_mut() {
            let reshaped = slot.store.len() > 0;
            for lane in &mut slot.lanes {
                if lane.version == ResourceVersion::default() {
                    self.count += 1;
                    lane.restart(self.count, reshaped, now);
                } else {
                    lane.in_doubt = true;
                    lane.since = now;
                }
            }
        }
        for id in ids {
            self.kind_changed(id, None);
        }
    }

    /// The watches whose freshness check has not passed.
    pub(crate) fn doubted(&self) -> Vec<Doubted> {
        let slots = self.slots.iter();
        let lanes = slots.flat_map(|(id, slot)| slot.lanes.iter().map(|lane| (*id, lane)));
        lanes
            .filter(|(_, lane)| lane.in_doubt)
            .map(|(id, lane)| (id, lane.namespace.clone()))
            .collect()
    }

    /// The state of the freshness check of a watch.
    pub(crate) fn doubt(&self, doubted: &Doubted) -> Doubt {
        let slot = self.slots.get(&doubted.0);
        let lane = self.doubted_lane(doubted).filter(|lane| lane.in_doubt);
        let (Some(slot), Some(lane)) = (slot, lane) else {
            return Doubt::None;
        };
        match slot.target(lane, Access::Metadata) {
            Some(target) if lane.health == Health::Synced => Doubt::Of(target),
            _ => Doubt::NotListed,
        }
    }

    /// Passes the check if the watch has reached a version, and returns true if it has.
    pub(crate) fn prove_by_version(&mut self, doubted: &Doubted, version: ResourceVersion) -> bool {
        let lane = self.doubted_lane(doubted);
        let reached =
            lane.is_none_or(|lane| lane.health == Health::Synced && lane.version >= version);
        if reached {
            self.trust(doubted);
        }
        reached
    }

    /// Passes the check if the watch holds exactly these objects in these versions, and returns true if it does.
    pub(crate) fn prove_by_contents(&mut self, doubted: &Doubted, contents: &Contents) -> bool {
        let (id, namespace) = doubted;
        let lane = self.doubted_lane(doubted);
        let same = lane.zip(self.slots.get(id)).is_none_or(|(lane, slot)| {
            let is_there = |(key, (uid, version)): (&Key, &(_, _))| {
                let stored = slot.store.get(key);
                stored.is_some_and(|stored| stored.uid == *uid && stored.version == *version)
            };
            lane.health == Health::Synced
                && slot.store.size_of(namespace.as_deref()).0 == contents.len()
                && contents.iter().all(is_there)
        });
        if same {
            self.trust(doubted);
        }
        same
    }

    fn doubted_lane(&self, (id, namespace): &Doubted) -> Option<&Lane> {
        let mut lanes = self.slots.get(id)?.lanes.iter();
        lanes.find(|lane| lane.namespace == *namespace)
    }

    fn trust(&mut self, (id, namespace): &Doubted) {
        let lane = self.slots.get_mut(id).and_then(|slot| {
            slot.lanes
                .iter_mut()
                .find(|lane| lane.namespace == *namespace)
        });
        if lane.is_some_and(|lane| std::mem::take(&mut lane.in_doubt)) {
            self.kind_changed(*id, namespace.as_ref());
        }
    }
}
