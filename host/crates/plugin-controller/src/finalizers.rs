//! Removes a plugin's finalizer from parents without calling the guest: after a Plugin's deletion, or where a user
//! requests it by annotation.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt};
use innkeeper_apply::{Target, Written};
use innkeeper_cluster::{CacheSize, Interest, Registration, Why};
use innkeeper_model::{ANNOTATION_SKIP_FINALIZE, Gvk, Object, ObjectId, PluginName, Selector};
use innkeeper_reconcile::Shared;
use tokio::time::Instant;
use tracing::info;

use crate::refusals::{AttemptRefusals, Refusals};

/// Concurrent writes to parents without passes. A deleted Plugin may have thousands of parents, and active plugins
/// write to the same API server.
pub(super) const CONCURRENT_WRITES: usize = 8;

/// The parents that lose the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseScope {
    /// All parents.
    All,
    /// Those that are being deleted and have the annotation to skip the guest.
    Skipping,
}

/// Watches for some parent kinds, kept open, and the waits after rejected writes.
#[derive(Default)]
pub(super) struct Finalizers {
    watched: BTreeMap<Gvk, Registration>,
    refusals: Refusals,
}

/// Returns the interest in parents alone.
pub(super) fn parents_of(plugin: PluginName, parent: Gvk) -> Interest {
    Interest {
        plugin,
        parent,
        children: Vec::new(),
        reads: Vec::new(),
        selector: Selector::default(),
        field_managers: BTreeSet::new(),
        namespace_max: CacheSize::UNBOUNDED,
    }
}

/// Makes the object's next pass wait until the cache shows a write to the finalizers.
pub(super) fn expect_write(registration: &Registration, id: &ObjectId, written: &Written) {
    let version = written.resource_version;
    // Without its last finalizer the object is gone, so the cache shows its end instead of this version.
    if written.gone {
        registration.expect_newer(id, id, version);
    } else {
        registration.expect_version(id, id, version);
    }
}

impl Finalizers {
    /// Removes a plugin's finalizer from parents of these kinds. Returns the kinds whose parents all lost it, and a
    /// readable summary for each other kind.
    ///
    /// The caller repeats the call until nothing remains: a kind counts as free only once the cache shows the writes.
    pub(super) async fn release(
        &mut self,
        shared: &Shared,
        plugin: &PluginName,
        kinds: &BTreeSet<Gvk>,
        scope: ReleaseScope,
    ) -> (BTreeSet<Gvk>, Vec<String>) {
        self.watched.retain(|kind, _| kinds.contains(kind));
        let mut free = BTreeSet::new();
        let mut remaining = Vec::new();
        // While refused writes back off, this only counts the remaining parents.
        let attempt = self
            .refusals
            .due(Instant::now())
            .is_none()
            .then(AttemptRefusals::default);
        for kind in kinds {
            // All versions share the same objects, and the cluster may have stopped serving the recorded version.
            let Some(served) = shared.cluster.served_kind(&kind.group_kind()) else {
                // An unserved kind has no objects.
                free.insert(kind.clone());
                continue;
            };
            let registration = self.watched.entry(kind.clone()).or_insert_with(|| {
                let interest = parents_of(plugin.clone(), served.kind);
                shared.cluster.register(interest)
            });
            match release(shared, registration, plugin, scope, attempt.as_ref()).await {
                Ok(0) => {
                    free.insert(kind.clone());
                }
                Ok(1) => remaining.push(format!("one {kind} still has it")),
                Ok(count) => remaining.push(format!("{count} of {kind} still have it")),
                Err(why) => remaining.push(format!("{kind} {why}")),
            }
        }
        if let Some(attempt) = attempt {
            let goal = "release parents without their guest";
            self.refusals.end(plugin, goal, attempt, Instant::now());
        }
        if !remaining.is_empty() {
            remaining.extend(self.refusals.last().map(str::to_owned));
        }
        (free, remaining)
    }
}

/// Releases a kind's parents if this is an attempt, and returns how many cached parents had the finalizer before.
async fn release(
    shared: &Shared,
    registration: &Registration,
    plugin: &PluginName,
    scope: ReleaseScope,
    attempt: Option<&AttemptRefusals>,
) -> Result<usize, Why> {
    let waiting = registration.waiting().into_iter().next();
    match waiting.map(|waiting| waiting.why) {
        Some(Why::NotServed) => return Ok(0),
        Some(why) => return Err(why),
        None => {}
    }
    let finalizer = plugin.finalizer();
    let remaining: Vec<Object> = registration
        .parents()
        .iter()
        .filter_map(|id| registration.parent(id))
        .filter(|parent| parent.has_finalizer(&finalizer))
        .collect();
    let may_go = |parent: &&Object| {
        let asks = parent.annotation(ANNOTATION_SKIP_FINALIZE) == Some("true");
        scope == ReleaseScope::All || parent.is_deleting() && asks
    };
    if let Some(attempt) = attempt {
        let going = remaining.iter().filter(may_go);
        stream::iter(going)
            .for_each_concurrent(CONCURRENT_WRITES, |parent| {
                release_one(shared, registration, plugin, parent, attempt)
            })
            .await;
    }
    Ok(remaining.len())
}

async fn release_one(
    shared: &Shared,
    registration: &Registration,
    plugin: &PluginName,
    parent: &Object,
    attempt: &AttemptRefusals,
) {
    let id = parent.id();
    // The last attempt's write is not in the cache yet, so another write would be redundant.
    if registration.is_behind(&id) || attempt.is_forbidden() {
        return;
    }
    let mut target = Target::new(parent, &shared.resource_of(parent));
    match shared.writer.release(&mut target, plugin).await {
        Ok(Some(written)) => {
            info!(%plugin, parent = %id, gone = written.gone, "released the parent without its guest");
            expect_write(registration, &id, &written);
        }
        Ok(None) => {}
        Err(error) => attempt.refuse(id, error),
    }
}
