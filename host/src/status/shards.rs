//! Shards, as the Leases of hosts show them. Pure.

use std::collections::BTreeMap;

use innkeeper_command::Output;
use innkeeper_lease::{Lease, lease_name};
use innkeeper_model::{Shard, Shards};
use serde::Serialize;

use crate::table::table;

/// The Leases of all hosts, by `namespace/name`.
pub(super) type Leases = BTreeMap<String, Lease>;

/// One shard of the hosts that share parents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ShardRow {
    /// The Lease, as `namespace/name`.
    pub(super) lease: String,
    pub(super) shard: usize,
    /// The host that serves the shard's parents; empty without one.
    pub(super) holder: String,
    /// The first and the last hash of the shard's namespaces.
    pub(super) first: String,
    pub(super) last: String,
}

/// A Lease's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Its holder does all the work.
    Host,
    /// Its holder serves one shard.
    Shard(Shard),
    /// Hosts ask for a shard by it, so it may have no holder.
    Asking,
    /// It remains from hosts with another number of shards.
    Outdated,
}

/// Returns the role of the Lease with this name.
pub(super) fn role(leases: &Leases, name: &str) -> Role {
    let Some(Lease { shards, .. }) = leases.get(name) else {
        return Role::Outdated;
    };
    if !shards.is_one()
        && let Some((first, suffix)) = name.rsplit_once('.')
    {
        let count = leases.get(first).map(|first| first.shards);
        if suffix == "next" {
            return Role::Asking;
        }
        if let Some(shard) = shards.all().find(|shard| name == lease_name(first, *shard)) {
            // Without the first Lease, that one is missing.
            let is_current = count.is_none_or(|count| count == *shards);
            return if is_current {
                Role::Shard(shard)
            } else {
                Role::Outdated
            };
        }
    }
    if shards.is_one() {
        Role::Host
    } else {
        Role::Shard(Shard::LEADER)
    }
}

/// Returns each group's shards, also those without a Lease.
pub(super) fn rows(leases: &Leases) -> Vec<ShardRow> {
    let mut groups: BTreeMap<&str, Shards> = BTreeMap::new();
    for (name, lease) in leases {
        match role(leases, name) {
            Role::Shard(Shard::LEADER) => {
                groups.insert(name, lease.shards);
            }
            Role::Shard(_) => {
                let first = name.rsplit_once('.').map_or(&**name, |(first, _)| first);
                groups.entry(first).or_insert(lease.shards);
            }
            Role::Host | Role::Asking | Role::Outdated => {}
        }
    }
    let row = |first: &str, shards: Shards, shard: Shard| {
        let lease = lease_name(first, shard);
        let (start, end) = shards.range(shard);
        ShardRow {
            holder: leases
                .get(&lease)
                .map(|lease| lease.record.holder.clone())
                .unwrap_or_default(),
            lease,
            shard: shard.index(),
            first: format!("{start:016x}"),
            last: format!("{:016x}", end.map_or(u64::MAX, |end| end - 1)),
        }
    };
    groups
        .into_iter()
        .flat_map(|(first, shards)| shards.all().map(move |shard| row(first, shards, shard)))
        .collect()
}

/// Returns the number of shards in any group.
pub(super) fn count(rows: &[ShardRow]) -> Option<Shards> {
    let last = rows.iter().map(|row| row.shard).max()?;
    Shards::new(u32::try_from(last).ok()? + 1)
}

/// Returns a sentence for each shard without a Lease.
pub(super) fn missing<'a>(
    leases: &'a Leases,
    rows: &'a [ShardRow],
) -> impl Iterator<Item = String> + 'a {
    rows.iter()
        .filter(|row| !leases.contains_key(&row.lease))
        .map(|ShardRow { lease, shard, .. }| {
            format!(
                "no host serves shard {shard}: there is no Lease {lease}; check the Pods of the host"
            )
        })
}

/// Shows the shards.
pub(super) fn shard_table(rows: &[ShardRow]) -> Output {
    let rows = rows.iter().map(|row| {
        [
            row.shard.to_string(),
            row.lease.clone(),
            row.holder.clone(),
            format!("{} to {}", row.first, row.last),
        ]
    });
    table(["SHARD", "LEASE", "HOST", "NAMESPACE HASHES"], rows)
}
