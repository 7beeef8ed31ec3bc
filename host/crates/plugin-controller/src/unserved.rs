//! Reports in the parents' Synced condition that their plugin does not serve them.
//!
//! Without passes they would keep the last pass's `Synced=True` forever. The plugin's next pass updates the condition.

use std::{
    collections::BTreeSet,
    mem,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::stream::{self, StreamExt};
use innkeeper_apply::{self as apply, Target};
use innkeeper_cluster::Registration;
use innkeeper_model::{Condition, GroupKind, Manifest, Object, PluginName, reason};
use innkeeper_plan::{self as plan, ParentProgress, StatusWrite};
use innkeeper_reconcile::Shared;
use tokio::time::Instant;
use tracing::info;

use crate::{
    parent_watches::{CONCURRENT_WRITES, ParentWatches, parents},
    refusals::AttemptRefusals,
    resource::Declared,
    state::REFRESH_PERIOD,
};

/// Time without passes before the parents report it, the same as the wait for the cache before a
/// condition. A wrong grant that is fixed at once, or a short source failure, costs no writes.
const REPORT_AFTER: Duration = Duration::from_secs(10);

/// The most writes per Plugin pass.
const WRITES_MAX: usize = 256;

/// The interval between passes while some parents are not updated yet. With the writes above, 15,000 parents are
/// updated within a minute.
const UPDATE_PERIOD: Duration = Duration::from_secs(1);

/// The parents while their plugin does not serve.
#[derive(Default)]
pub(crate) struct Unserved {
    /// Parent kinds for the revision that was last active in this process, under any grants.
    pub(crate) kinds: BTreeSet<GroupKind>,
    /// When it stopped serving; none while it serves.
    since: Option<Instant>,
    /// When to check the parents next.
    pub(crate) due: Option<Instant>,
    watches: ParentWatches,
}

/// Conditions for a parent without passes; without `ready`, the last one stays.
pub(crate) struct UnservedConditions {
    pub(crate) synced: Condition,
    pub(crate) ready: Option<Condition>,
}

impl Unserved {
    /// Records the parent kinds for a revision that becomes active. Kinds that lost their grant are kept.
    pub(crate) fn record_kinds(&mut self, kinds: BTreeSet<GroupKind>, manifest: &Manifest) {
        self.kinds.retain(|kind| manifest.reconciles(kind));
        self.kinds.extend(kinds);
    }
}

/// Writes this condition to the parents if the plugin does not serve. If only some kinds lost their grant, `kinds`
/// names them, and the others have passes. `is_own` is false for kinds that another plugin serves.
pub(crate) async fn report_unserved(
    shared: &Shared,
    declared: &Declared,
    unserved: &mut Unserved,
    synced: Option<Condition>,
    mut kinds: BTreeSet<GroupKind>,
    is_own: impl Fn(&GroupKind) -> bool,
) {
    let Some(synced) = synced else {
        *unserved = Unserved {
            kinds: mem::take(&mut unserved.kinds),
            ..Unserved::default()
        };
        return;
    };
    let now = Instant::now();
    let since = *unserved.since.get_or_insert(now);
    if now < since + REPORT_AFTER {
        unserved.due = Some(since + REPORT_AFTER);
        return;
    }
    if kinds.is_empty() {
        kinds.clone_from(&unserved.kinds);
        // After a restart no revision may have been active yet, but these kinds may have parents.
        kinds.extend(declared.terms.grants.parents.keys().cloned());
    }
    // Another plugin's passes report on the parents of its kinds.
    kinds.retain(is_own);
    let verdict = |_: &Object| UnservedConditions {
        synced: synced.clone(),
        ready: None,
    };
    let watches = &mut unserved.watches;
    let outdated = update_all(shared, &declared.name, watches, &kinds, verdict).await;
    let wait = if outdated.own {
        UPDATE_PERIOD
    } else {
        REFRESH_PERIOD
    };
    let refused_until = unserved.watches.due();
    unserved.due = Some(refused_until.unwrap_or_else(|| Instant::now() + wait));
}

/// The parents that may still lack a condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outdated {
    /// Some are in this host's shards.
    pub(crate) own: bool,
    /// Some are in other hosts' shards.
    pub(crate) others: bool,
}

/// Writes a condition to this host's parents of these kinds.
pub(crate) async fn update_all(
    shared: &Shared,
    name: &PluginName,
    watches: &mut ParentWatches,
    kinds: &BTreeSet<GroupKind>,
    conditions_for: impl Fn(&Object) -> UnservedConditions,
) -> Outdated {
    watches.retain(kinds);
    let mut outdated = Outdated::default();
    if watches.due().is_some() {
        return Outdated {
            own: true,
            others: true,
        };
    }
    let attempt = AttemptRefusals::default();
    let written = AtomicUsize::new(0);
    let mut writes_left = WRITES_MAX;
    for kind in kinds {
        let Some(registration) = watches.watch(&shared.cluster, name, kind) else {
            continue;
        };
        let mut due: Vec<_> = parents(registration)
            .filter_map(|parent| {
                let write = write(name, &parent, conditions_for(&parent), (shared.now)())?;
                Some((parent, write))
            })
            .collect();
        let seen = due.len();
        due.retain(|(parent, _)| shared.cluster.holds(parent.namespace.as_deref()));
        let is_listed = registration.waiting().is_empty();
        outdated.own |= !is_listed || !due.is_empty();
        outdated.others |= !is_listed || due.len() < seen;
        // The cache does not show the last write yet, so another one would only repeat it.
        due.retain(|(parent, _)| !registration.is_behind(&parent.id()));
        // Changes of the Plugin wait for this pass, so the next pass writes the rest.
        due.truncate(writes_left);
        writes_left -= due.len();
        stream::iter(&due)
            .for_each_concurrent(CONCURRENT_WRITES, async |(parent, write)| {
                if attempt.is_forbidden() {
                    return;
                }
                match update_one(shared, registration, parent, write).await {
                    Ok(()) => {
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(error) => attempt.refuse(parent.id(), error),
                }
            })
            .await;
    }
    let goal = "write the status of parents whose plugin does not serve";
    watches.refusals.end(name, goal, attempt, Instant::now());
    let parents = written.into_inner();
    if parents > 0 {
        info!(plugin = %name, parents, "told parents that their plugin does not serve");
    }
    outdated
}

async fn update_one(
    shared: &Shared,
    registration: &Registration,
    parent: &Object,
    write: &StatusWrite,
) -> Result<(), apply::Error> {
    let id = parent.id();
    let mut target = Target::new(parent, &shared.resource_of(parent));
    let written = shared.writer_for(&id).status(&mut target, write).await?;
    registration.expect_version(&id, &id, written.resource_version);
    Ok(())
}

/// Returns the status write that reports the plugin as not serving. None if the parent reports it already, if its
/// condition belongs to another host, or if the parent has no passes for another reason.
fn write(
    plugin: &PluginName,
    parent: &Object,
    UnservedConditions { synced, ready }: UnservedConditions,
    now: jiff::Timestamp,
) -> Option<StatusWrite> {
    let has_own_reason = [reason::PAUSED, reason::NOT_SELECTED]
        .iter()
        .any(|reason| plan::has_reason(parent, reason));
    if has_own_reason || !plan::has_host_condition(plugin, parent) {
        return None;
    }
    plan::status(
        plugin,
        parent,
        None,
        &synced,
        ready,
        ParentProgress::Ok,
        now,
    )
}
