//! Removes the finalizer of a plugin from its parents without its guest: for a plugin that goes, and where a user asks
//! for it by annotation.

use std::collections::{BTreeMap, BTreeSet};

use futures::stream::{self, StreamExt};
use innkeeper_apply::Target;
use innkeeper_cluster::{Interest, Registration, Why};
use innkeeper_model::{ANNOTATION_SKIP_FINALIZE, Gvk, Object, PluginName, error_chain};
use innkeeper_reconcile::Shared;
use tracing::{info, warn};

/// The number of finalizers that are removed concurrently.
const AT_A_TIME: usize = 8;

/// The parents that lose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parents {
    /// All of them.
    All,
    /// Those that are being deleted and say that the guest is not to be asked.
    Skipping,
}

/// The parents of some kinds, watched for as long as this lives.
#[derive(Default)]
pub(super) struct Finalizers {
    watched: BTreeMap<Gvk, Registration>,
}

/// The rest after an attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Left {
    /// The kinds of which no parent has the finalizer.
    pub(super) free: BTreeSet<Gvk>,
    /// The others, each with the reason for the wait.
    pub(super) others: Vec<String>,
}

impl Finalizers {
    /// Takes a plugin's finalizer off parents of these kinds, and says of which kinds all are without it.
    ///
    /// To be repeated until none is left: a later attempt sees the writes of this one.
    pub(super) async fn release(
        &mut self,
        shared: &Shared,
        plugin: &PluginName,
        kinds: &BTreeSet<Gvk>,
        which: Parents,
    ) -> Left {
        self.watched.retain(|kind, _| kinds.contains(kind));
        let mut left = Left::default();
        for kind in kinds {
            // Every version of the kind has the same objects, so the served version is enough.
            let Some(served) = shared.cluster.served_kind(&kind.group_kind()) else {
                // There are no objects of a kind that is not served.
                left.free.insert(kind.clone());
                continue;
            };
            let registration = self.watched.entry(kind.clone()).or_insert_with(|| {
                shared.cluster.register(Interest {
                    plugin: plugin.clone(),
                    parent: served.kind,
                    children: Vec::new(),
                    reads: Vec::new(),
                    selector: None,
                    field_managers: BTreeSet::new(),
                })
            });
            match release(shared, registration, plugin, which).await {
                Ok(0) => {
                    left.free.insert(kind.clone());
                }
                Ok(1) => left.others.push(format!("one {kind} has it")),
                Ok(count) => left.others.push(format!("{count} of {kind} have it")),
                Err(why) => left.others.push(format!("{kind} {why}")),
            }
        }
        left
    }
}

/// Releases parents of a kind, and returns the number of cached parents that had the finalizer before.
async fn release(
    shared: &Shared,
    registration: &Registration,
    plugin: &PluginName,
    which: Parents,
) -> Result<usize, Why> {
    let waiting = registration.waiting().into_iter().next();
    match waiting.map(|waiting| waiting.why) {
        Some(Why::NotServed) => return Ok(0),
        Some(why) => return Err(why),
        None => {}
    }
    let finalizer = plugin.finalizer();
    let parents = registration.parents();
    let parents = parents.iter().filter_map(|id| registration.parent(id));
    let held: Vec<Object> = parents
        .filter(|parent| parent.has_finalizer(&finalizer))
        .collect();
    let may_go = |parent: &&Object| {
        let asks = parent.annotation(ANNOTATION_SKIP_FINALIZE) == Some("true");
        which == Parents::All || parent.is_deleting() && asks
    };
    let going = held.iter().filter(may_go);
    stream::iter(going)
        .for_each_concurrent(AT_A_TIME, |parent| {
            release_one(shared, registration, plugin, parent)
        })
        .await;
    Ok(held.len())
}

async fn release_one(
    shared: &Shared,
    registration: &Registration,
    plugin: &PluginName,
    parent: &Object,
) {
    let id = parent.id();
    if registration.is_behind(&id) {
        return;
    }
    let mut target = Target::new(parent, &shared.resource_of(parent));
    match shared.writer.release(&mut target, plugin).await {
        Ok(Some(written)) if written.gone => {
            info!(%plugin, parent = %id, "released the parent without its guest, and it is gone");
            registration.note_stale(&id, &id, written.resource_version);
        }
        Ok(Some(written)) => {
            info!(%plugin, parent = %id, "released the parent without its guest");
            registration.note_write(&id, &id, written.resource_version);
        }
        Ok(None) => {}
        // The next attempt reads its current state.
        Err(error) if error.is_silent() => {}
        Err(error) => {
            warn!(%plugin, parent = %id, error = %error_chain(&error), "failed to release a parent");
        }
    }
}
