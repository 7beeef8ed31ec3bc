//! Watches that may be behind what another process has written: until that is disproven, they count as not listed.

use tokio::time::Instant;

use super::{
    SlotId, State,
    slots::{Health, restart},
};
use crate::{
    cluster::{proof::Contents, store::Key, wire::Target},
    model::{Access, ResourceVersion},
};

/// Whether a watch is in doubt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Doubt {
    /// It is not, or is no more.
    None,
    /// It is, and has nothing yet that could be compared.
    NotListed,
    /// It is; this is what to ask for, in metadata.
    Of(Target),
}

impl State {
    /// Doubts every watch that there is; one that has shown nothing yet begins anew instead.
    ///
    /// A first list is from a quorum, so that a watch that comes later needs no proof.
    pub(in crate::cluster) fn doubt_all(&mut self, now: Instant) {
        let generation = self.number();
        let ids: Vec<SlotId> = self.slots.keys().copied().collect();
        for slot in self.slots.values_mut() {
            if slot.version == ResourceVersion::default() {
                restart(slot, generation, now);
            } else {
                slot.in_doubt = true;
                slot.since = now;
            }
        }
        for id in ids {
            self.kind_changed(id);
        }
    }

    /// Every watch in doubt.
    pub(in crate::cluster) fn doubted(&self) -> Vec<SlotId> {
        let doubted = self.slots.iter().filter(|(_, slot)| slot.in_doubt);
        doubted.map(|(id, _)| *id).collect()
    }

    /// What to ask about a watch.
    pub(in crate::cluster) fn doubt(&self, id: SlotId) -> Doubt {
        let Some(slot) = self.slots.get(&id).filter(|slot| slot.in_doubt) else {
            return Doubt::None;
        };
        match &slot.served {
            Some(served) if slot.health == Health::Synced => Doubt::Of(Target {
                served: served.clone(),
                selector: slot.key.selector.as_deref().map(str::to_owned),
                form: Access::Metadata,
            }),
            _ => Doubt::NotListed,
        }
    }

    /// Trusts a watch again if it has reached a version; whether it has.
    pub(in crate::cluster) fn prove_by_version(
        &mut self,
        id: SlotId,
        version: ResourceVersion,
    ) -> bool {
        let slot = self.slots.get(&id);
        let reached =
            slot.is_none_or(|slot| slot.health == Health::Synced && slot.version >= version);
        if reached {
            self.trust(id);
        }
        reached
    }

    /// Trusts a watch again if it has exactly these objects in these versions; whether it has.
    pub(in crate::cluster) fn prove_by_contents(
        &mut self,
        id: SlotId,
        contents: &Contents,
    ) -> bool {
        let same = self.slots.get(&id).is_none_or(|slot| {
            let is_there = |(key, (uid, version)): (&Key, &(_, _))| {
                let stored = slot.store.get(key);
                stored.is_some_and(|stored| stored.uid == *uid && stored.version == *version)
            };
            slot.health == Health::Synced
                && slot.store.len() == contents.len()
                && contents.iter().all(is_there)
        });
        if same {
            self.trust(id);
        }
        same
    }

    fn trust(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get_mut(&id) else {
            return;
        };
        if std::mem::take(&mut slot.in_doubt) {
            self.kind_changed(id);
        }
    }
}
