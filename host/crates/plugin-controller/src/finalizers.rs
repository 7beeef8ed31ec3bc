//! Removes a plugin's finalizer from parents without calling the guest: after a Plugin's deletion, or where a user
//! requests it by annotation.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt};
use innkeeper_apply::{Target, Written};
use innkeeper_cluster::{Registration, Why};
use innkeeper_model::{ANNOTATION_SKIP_FINALIZE, Gvk, Object, ObjectId, PluginName};
use innkeeper_reconcile::Shared;
use tokio::time::Instant;
use tracing::info;

use crate::{
    parent_watches::{CONCURRENT_WRITES, ParentWatches, parents},
    refusals::AttemptRefusals,
};

/// The parents that lose the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseScope {
    /// All parents.
    All,
    /// Those that are being deleted and have the annotation to skip the guest.
    Skipping,
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

impl ParentWatches {
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
        self.retain(&kinds.iter().map(Gvk::group_kind).collect());
        let mut free = BTreeSet::new();
        let mut remaining = Vec::new();
        // While refused writes back off, this only counts the remaining parents.
        let attempt = self.due().is_none().then(AttemptRefusals::default);
        for kind in kinds {
            let Some(registration) = self.watch(&shared.cluster, plugin, &kind.group_kind()) else {
                free.insert(kind.clone());
                continue;
            };
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
    let remaining: Vec<Object> = parents(registration)
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
    // The holder of the parent's shard does it.
    if !shared.cluster.holds(id.namespace.as_deref()) {
        return;
    }
    let mut target = Target::new(parent, &shared.resource_of(parent));
    match shared.writer_for(&id).release(&mut target, plugin).await {
        Ok(Some(written)) => {
            info!(%plugin, parent = %id, gone = written.gone, "released the parent without its guest");
            expect_write(registration, &id, &written);
        }
        Ok(None) => {}
        Err(error) => attempt.refuse(id, error),
    }
}
