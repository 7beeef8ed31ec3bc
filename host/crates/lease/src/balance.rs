//! Shares the shards out among hosts: decides from the observed Leases which ones this host takes, gives up or asks for.
//!
//! Pure. Hosts agree without messages of their own:
//!
//! - Each shard has a Lease. Whoever holds it has the shard.
//! - One more Lease, `.next`: its holder asks for a shard, because another host has at least two more. The host with the
//!   most shards gives one up at a time, so shards move one at a time.
//! - The leader's shard never moves by choice, because its holder has the work that cannot be shared out.
//!
//! All hosts of a group must have the same number of shards, or two would write for one parent. The leader's Lease decides:
//! it states the number, and every host that takes a Lease reads the others *after* its write. So of two hosts with different
//! numbers that take Leases at the same time, at least one sees the other's, and lets go before it writes anything else.

use std::{collections::BTreeMap, time::Duration};

use innkeeper_model::{Shard, ShardSet, Shards};

use super::{Lease, Times, machine::Machine};

/// A Lease of the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    /// A shard's.
    Shard(Shard),
    /// The Lease whose holder asks for a shard.
    Next,
}

impl Slot {
    pub(super) const LEADER: Self = Self::Shard(Shard::LEADER);

    /// Returns the Lease's name in a group with this name.
    pub(super) fn lease_name(self, group: &str) -> String {
        match self {
            Self::Shard(shard) => lease_name(group, shard),
            Self::Next => format!("{group}.next"),
        }
    }
}

/// Returns the name of a shard's Lease: the leader's is the group's name.
///
/// The others have a dot, which the name of a release cannot have: `innkeeper-1` may be another group.
pub fn lease_name(group: &str, shard: Shard) -> String {
    if shard == Shard::LEADER {
        group.to_owned()
    } else {
        format!("{group}.{shard}")
    }
}

/// Who holds a Lease, as far as this host knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// A host that renews it, by identity.
    Host(String),
    /// Nobody: its last holder released it this long ago.
    Released(Duration),
    /// Nobody: it does not exist, or its holder has not renewed it in time.
    Nobody,
}

impl Holder {
    pub(super) fn host(&self) -> Option<&str> {
        match self {
            Self::Host(identity) => Some(identity),
            Self::Released(_) | Self::Nobody => None,
        }
    }
}

/// The group's Leases, as seen by one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// The holders.
    pub(super) holders: BTreeMap<Slot, Holder>,
    /// True if the leader's Lease states this host's number of shards.
    pub(super) is_agreed: bool,
    /// Another live host with another number of shards.
    pub(super) conflict: Option<(String, Shards)>,
    /// The time after which a Lease of another host may be free, if there is any.
    pub(super) expires_in: Option<Duration>,
}

impl View {
    /// Returns true if a Lease that was taken before this view may be used.
    pub(super) fn is_consistent(&self) -> bool {
        self.is_agreed && self.conflict.is_none()
    }
}

/// Observes the group's Leases over time.
pub(super) struct Observer {
    group: String,
    identity: String,
    shards: Shards,
    times: Times,
    /// By name of the Lease.
    machines: BTreeMap<String, Machine>,
}

impl Observer {
    pub(super) fn new(group: &str, identity: &str, shards: Shards, times: Times) -> Self {
        let mut observer = Self {
            group: group.to_owned(),
            identity: identity.to_owned(),
            shards,
            times,
            machines: BTreeMap::new(),
        };
        for slot in observer.slots() {
            observer.machines.insert(
                slot.lease_name(group),
                Machine::new(identity.to_owned(), times),
            );
        }
        observer
    }

    /// Returns the Leases of this host's group: with one shard, there is only the leader's.
    fn slots(&self) -> Vec<Slot> {
        let next = (!self.shards.is_one()).then_some(Slot::Next);
        self.shards.all().map(Slot::Shard).chain(next).collect()
    }

    /// Returns what is known about a Lease, for an election.
    pub(super) fn machine(&self, slot: Slot) -> Machine {
        let machine = self.machines.get(&slot.lease_name(&self.group));
        machine
            .cloned()
            .unwrap_or_else(|| Machine::new(self.identity.clone(), self.times))
    }

    /// Returns true if this name is a shard's Lease in a group of any size.
    fn is_of_group(&self, lease: &str) -> bool {
        lease == self.group
            || lease
                .strip_prefix(&self.group)
                .and_then(|rest| rest.strip_prefix('.'))
                .and_then(|index| index.parse().ok())
                .is_some_and(|index: u8| index < Shards::MAX)
    }

    /// Notes Leases, by name, that were read before `now` on this machine's monotonic clock.
    pub(super) fn observe(&mut self, leases: &BTreeMap<String, Lease>, now: Duration) -> View {
        // Of a host with more shards: they are watched for conflicts alone.
        let others = leases.keys().filter(|name| self.is_of_group(name));
        for name in others.cloned().collect::<Vec<_>>() {
            self.machines
                .entry(name)
                .or_insert_with(|| Machine::new(self.identity.clone(), self.times));
        }
        for (name, machine) in &mut self.machines {
            machine.observe(leases.get(name).map(|lease| &lease.record), now);
        }
        let holders: BTreeMap<Slot, (Holder, Option<Duration>)> = self
            .slots()
            .into_iter()
            .map(|slot| (slot, self.machine(slot).holder(now)))
            .collect();
        let leader = leases.get(&self.group);
        View {
            is_agreed: leader.is_some_and(|lease| lease.shards == self.shards),
            conflict: self.conflict(leases, now),
            expires_in: holders
                .values()
                .filter(|(holder, _)| holder.host() != Some(&*self.identity))
                .filter_map(|(_, left)| *left)
                .min(),
            holders: holders
                .into_iter()
                .map(|(slot, (holder, _))| (slot, holder))
                .collect(),
        }
    }

    fn conflict(
        &self,
        leases: &BTreeMap<String, Lease>,
        now: Duration,
    ) -> Option<(String, Shards)> {
        leases
            .iter()
            .filter(|(name, lease)| self.is_of_group(name) && lease.shards != self.shards)
            .find_map(|(name, lease)| {
                let (holder, _) = self.machines.get(name)?.holder(now);
                let identity = holder.host().filter(|host| *host != self.identity)?;
                Some((identity.to_owned(), lease.shards))
            })
    }
}

/// A step towards an even share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Takes a free shard.
    Take(Shard),
    /// Gives up a shard for the host that asks.
    GiveUp(Shard),
    /// Takes the Lease that asks for a shard.
    Ask,
    /// Releases it.
    StopAsking,
}

/// This host's part in the group.
pub(super) struct Share<'a> {
    pub(super) identity: &'a str,
    /// The shards that it holds or is about to acquire.
    pub(super) own: &'a ShardSet,
    /// The shard that it is giving up, if any; one of its own.
    pub(super) leaving: Option<Shard>,
    /// The time for which a released shard is kept for the host that asks.
    pub(super) reserved: Duration,
}

impl Share<'_> {
    /// Returns the next steps, each for a Lease of its own.
    pub(super) fn actions(&self, view: &View) -> Vec<Action> {
        let asker = view.holders.get(&Slot::Next).and_then(Holder::host);
        let asks = asker == Some(self.identity);
        if view.conflict.is_some() {
            return asks.then_some(Action::StopAsking).into_iter().collect();
        }
        let others = self.others(view);
        let most = others.values().copied().max().unwrap_or_default();
        let wants = most >= self.own.len() + 2;
        let free: Vec<(Shard, &Holder)> = view
            .holders
            .iter()
            .filter_map(|(slot, holder)| match slot {
                Slot::Shard(shard) if holder.host().is_none() && !self.own.contains(shard) => {
                    Some((*shard, holder))
                }
                _ => None,
            })
            .collect();
        let mut actions = Vec::new();
        if asks && !wants {
            actions.push(Action::StopAsking);
        }
        if !free.is_empty() {
            actions.extend(self.takes(view, &free, &others, asker));
        } else if let Some(asker) = asker {
            let gift = self.gift(asker, &others).filter(|_| !asks);
            actions.extend(gift.map(Action::GiveUp));
        } else if wants {
            actions.push(Action::Ask);
        }
        actions
    }

    /// Returns how many shards each other live host has.
    fn others<'a>(&self, view: &'a View) -> BTreeMap<&'a str, usize> {
        let mut counts = BTreeMap::new();
        for (slot, holder) in &view.holders {
            if let (Slot::Shard(shard), Some(host)) = (slot, holder.host())
                && host != self.identity
                && !self.own.contains(shard)
            {
                *counts.entry(host).or_default() += 1;
            }
        }
        counts
    }

    /// Takes this host's part of the free shards, so that the shards of a host that died go to all others.
    fn takes(
        &self,
        view: &View,
        free: &[(Shard, &Holder)],
        others: &BTreeMap<&str, usize>,
        asker: Option<&str>,
    ) -> Vec<Action> {
        let asks = asker == Some(self.identity);
        let is_reserved = |holder: &Holder| match holder {
            Holder::Released(age) => asker.is_some() && !asks && *age < self.reserved,
            Holder::Host(_) | Holder::Nobody => false,
        };
        let leader = free.iter().any(|(shard, _)| *shard == Shard::LEADER);
        let leader = leader.then_some(Shard::LEADER);
        let mut rest: Vec<Shard> = free
            .iter()
            // The number of shards is agreed on only with the leader's Lease.
            .filter(|(shard, _)| view.is_agreed && *shard != Shard::LEADER)
            .filter(|(_, holder)| !is_reserved(holder))
            .map(|(shard, _)| *shard)
            .collect();
        let quota = (rest.len() / (1 + others.len())).max(1);
        if !rest.is_empty() {
            // Each host begins elsewhere, so that they do not all want the same ones.
            let rank = others.keys().filter(|host| **host < self.identity).count();
            let start = rank * quota % rest.len();
            rest.rotate_left(start);
        }
        leader
            .into_iter()
            .chain(rest.into_iter().take(quota))
            .map(Action::Take)
            .collect()
    }

    /// Returns the shard to give up, if this is the host that must.
    fn gift(&self, asker: &str, others: &BTreeMap<&str, usize>) -> Option<Shard> {
        let own = self.own.len();
        let asker_has = others.get(asker).copied().unwrap_or_default();
        // Of several with as many, the first one by name.
        let is_largest = others
            .iter()
            .all(|(host, count)| *count < own || *count == own && self.identity < *host);
        if self.leaving.is_some() || !is_largest || own < asker_has + 2 {
            return None;
        }
        self.own
            .iter()
            .rfind(|shard| **shard != Shard::LEADER)
            .copied()
    }
}
