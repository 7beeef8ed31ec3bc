//! Plugin finalizers: recorded before the first pass, and removed from parents whose kind is not finalized any more, so
//! no deletion waits for a missing guest.
//!
//! The Plugin itself gets the host's finalizer before any parent gets the plugin's finalizer.

use std::collections::BTreeSet;

use innkeeper_apply::{self as apply, Target};
use innkeeper_model::{Gvk, PluginName, PluginReason, error_chain};
use innkeeper_reconcile::{Next, RecordError, Revision, Role};
use tracing::warn;

use crate::{
    context::{Context, id_of},
    finalizers::{ReleaseScope, expect_write},
    rollout::not_finalized,
    stage::{Stage, StageFailure},
    state::PluginState,
};

/// Records a Plugin's parent kinds. If the plugin finalizes, the Plugin gets the host's finalizer, so it stays until
/// all parents have lost the plugin's finalizer.
///
/// All writes precede the first pass: an unrecorded finalizer on a parent would block that parent's deletion forever.
pub(super) async fn record_parents(
    cx: &Context,
    target: &mut Target,
    name: &PluginName,
    serving: &Revision,
) -> Result<(), StageFailure> {
    let failed = |error: apply::Error| {
        let retry = error.retry();
        Stage::Serving.error(PluginReason::NotHeld, &error, retry)
    };
    let not_recorded = |error: RecordError| {
        let retry = error.retry();
        Stage::Serving.error(PluginReason::NotHeld, &error, retry)
    };
    let inventory = &cx.shared.inventory;
    let parents = serving
        .parents()
        .map(|parent| parent.kind.clone())
        .collect();
    // Without a finalizer, too: a host that starts after the Plugin's deletion finds the parents by this record.
    inventory
        .record(cx.writer(), name, Role::Served, &parents)
        .await
        .map_err(not_recorded)?;
    if !serving.plugin.manifest().finalize {
        return Ok(());
    }
    if !target.has_finalizer(&cx.name.finalizer()) {
        let written = cx.writer().add_finalizer(target, &cx.name).await;
        expect_write(&cx.registration, &id_of(name), &written.map_err(failed)?);
    }
    inventory
        .record(cx.writer(), name, Role::Finalizing, &parents)
        .await
        .map_err(not_recorded)
}

/// Removes the finalizer from parent kinds that the active revision does not finalize.
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
    // The release has removed free kinds from the inventory, so it is read again.
    if release_parents(cx, state, name, &kinds).await.is_empty() && recorded().is_empty() {
        remove_finalizer(cx, target, name).await;
    }
}

/// Removes the plugin's finalizer from all parents of these kinds; returns a readable summary if some still have it.
pub(crate) async fn release_parents(
    cx: &Context,
    state: &mut PluginState,
    name: &PluginName,
    kinds: &BTreeSet<Gvk>,
) -> Vec<String> {
    let (free, mut remaining) = state
        .releasing
        .release(&cx.shared, name, kinds, ReleaseScope::All)
        .await;
    let inventory = &cx.shared.inventory;
    if let Err(error) = inventory
        .remove(cx.writer(), name, Role::Finalizing, &free)
        .await
    {
        warn!(plugin = %name, error = %error_chain(&error), "failed to remove kinds of parents from the inventory");
        // Otherwise a deleted Plugin would go while its kinds are still recorded.
        remaining.push("the inventory cannot be written".to_owned());
    }
    state.is_releasing = !remaining.is_empty();
    remaining
}

/// Removes the host's finalizer from a Plugin.
pub(crate) async fn remove_finalizer(cx: &Context, target: &mut Target, name: &PluginName) -> Next {
    match cx.writer().release(target, &cx.name).await {
        Ok(None) => Next::UntilChanged,
        Ok(Some(written)) => {
            expect_write(&cx.registration, &id_of(name), &written);
            Next::UntilChanged
        }
        Err(error) => {
            warn!(plugin = %name, error = %error_chain(&error), "failed to remove the host's finalizer from a Plugin");
            Next::Backoff
        }
    }
}
