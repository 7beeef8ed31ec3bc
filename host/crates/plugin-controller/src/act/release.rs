//! The finalizers of a plugin: recorded before its first pass, and removed from parents of kinds that it does not finalize
//! any more, so that no deletion of a parent waits for a guest that is gone.
//!
//! For that the Plugin itself has a finalizer of the host, from before the first parent gets one of the plugin.

use std::collections::BTreeSet;

use innkeeper_apply::{self as apply, Target};
use innkeeper_model::{Gvk, PluginName, error_chain};
use innkeeper_reconcile::{Next, Revision, Role};
use tracing::warn;

use crate::{
    context::{Context, id_of},
    finalizers::{ReleaseScope, note},
    rollout::not_finalized,
    stage::{Stage, StageFailure},
    state::PluginState,
};

/// Records the kinds of parents of a Plugin. One whose plugin finalizes gets the host's finalizer, so that it stays until
/// its finalizers are removed from all parents.
///
/// All writes come before the first pass: a finalizer on a parent that the host does not know of would block the deletion
/// of the parent for ever.
pub(super) async fn record_parents(
    cx: &Context,
    target: &mut Target,
    name: &PluginName,
    serving: &Revision,
) -> Result<(), StageFailure> {
    let failed = |error: apply::Error| {
        let retry = error.retry();
        StageFailure::of(Stage::Serving, "NotHeld", &error, retry)
    };
    let inventory = &cx.shared.inventory;
    let parents = serving
        .parents()
        .map(|parent| parent.kind.clone())
        .collect();
    let recorded = inventory.record(name, Role::Served, &parents).await;
    recorded.map_err(failed)?;
    if !serving.plugin.manifest().finalize {
        return Ok(());
    }
    if !target.has_finalizer(&cx.name.finalizer()) {
        let written = cx.shared.writer.add_finalizer(target, &cx.name).await;
        note(&cx.registration, &id_of(name), &written.map_err(failed)?);
    }
    let recorded = inventory.record(name, Role::Finalizing, &parents).await;
    recorded.map_err(failed)
}

/// Removes the finalizer from kinds of parents that the active revision does not finalize.
pub(crate) async fn release_dropped_kinds(
    cx: &Context,
    target: &mut Target,
    state: &mut PluginState,
    name: &PluginName,
) {
    let Some(active) = &state.active else {
        return;
    };
    let inventory = &cx.shared.inventory;
    let recorded = || inventory.kinds(name, Role::Finalizing);
    let kinds = not_finalized(&recorded(), active.plugin.manifest());
    if release_parents(cx, state, name, &kinds).await.is_empty() && recorded().is_empty() {
        remove_finalizer(cx, target, name).await;
    }
}

/// Removes the plugin's finalizer from all parents of these kinds; returns the remaining work, for people.
pub(crate) async fn release_parents(
    cx: &Context,
    state: &mut PluginState,
    name: &PluginName,
    kinds: &BTreeSet<Gvk>,
) -> Vec<String> {
    let (free, mut remaining) = state
        .finalizers
        .release(&cx.shared, name, kinds, ReleaseScope::All)
        .await;
    let inventory = &cx.shared.inventory;
    if let Err(error) = inventory.remove(name, Role::Finalizing, &free).await {
        warn!(plugin = %name, error = %error_chain(&error), "failed to remove kinds of parents from the inventory");
        remaining.push("the inventory cannot be written".to_owned());
    }
    state.is_releasing = !remaining.is_empty();
    remaining
}

/// Removes the host's finalizer from a Plugin.
pub(crate) async fn remove_finalizer(cx: &Context, target: &mut Target, name: &PluginName) -> Next {
    match cx.shared.writer.release(target, &cx.name).await {
        Ok(None) => Next::UntilChanged,
        Ok(Some(written)) => {
            note(&cx.registration, &id_of(name), &written);
            Next::UntilChanged
        }
        Err(error) => {
            warn!(plugin = %name, error = %error_chain(&error), "failed to remove the host's finalizer from a Plugin");
            Next::Backoff
        }
    }
}
