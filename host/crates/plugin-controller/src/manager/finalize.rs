//! A Plugin that is being deleted: its finalizers are removed from its parents, so that no deletion of a parent waits
//! for a guest that is gone.
//!
//! For that the Plugin itself has a finalizer of the host, from before the first parent gets one of the plugin.
//! Children and definitions stay.

use std::{collections::BTreeSet, time::Duration};

use innkeeper_apply as apply;
use innkeeper_model::{Gvk, Object, PluginName, Retry, error_chain};
use innkeeper_reconcile::{Next, Serving};
use tracing::{info, warn};

use super::{Manager, PluginState, id_of};
use crate::{
    finalizers::{ReleaseScope, note},
    lifecycle::{Stage, StageFailure, not_finalized},
};

/// The interval between attempts to release the remaining parents of a Plugin that is being deleted: shorter than for
/// an active Plugin, because the deletion waits for it.
const RELEASE_PERIOD: Duration = Duration::from_millis(250);

impl Manager {
    /// Records the kinds of parents of a Plugin. One whose plugin finalizes gets the host's finalizer, so that it stays until
    /// its finalizers are removed from all parents.
    ///
    /// All writes come before the first pass: a finalizer on a parent that the host does not know of would block the
    /// deletion of the parent for ever.
    pub(super) async fn record_parents(
        &self,
        state: &mut PluginState,
        name: &PluginName,
        serving: &Serving,
    ) -> Result<(), StageFailure> {
        let failed = |error: apply::Error| {
            let retry = error.retry();
            StageFailure::of(Stage::Serving, "NotHeld", &error, retry)
        };
        let inventory = &self.context.shared.inventory;
        let parents = || serving.parents().map(|parent| parent.kind.clone());
        let recorded = inventory.record_served(name, parents()).await;
        recorded.map_err(failed)?;
        if !serving.plugin.manifest().finalize {
            return Ok(());
        }
        if let Some(target) = &mut state.target
            && !target.has_finalizer(&self.name.finalizer())
        {
            let writer = &self.context.shared.writer;
            let written = writer.add_finalizer(target, &self.name).await;
            note(&self.registration, &id_of(name), &written.map_err(failed)?);
        }
        let recorded = inventory.record_parents(name, parents()).await;
        recorded.map_err(failed)
    }

    /// Removes the finalizer from kinds of parents that the active revision does not finalize.
    pub(super) async fn release_dropped_kinds(&self, state: &mut PluginState, name: &PluginName) {
        let Some(active) = &state.active else {
            return;
        };
        let inventory = &self.context.shared.inventory;
        let recorded = inventory.parents(name);
        let kinds = not_finalized(&recorded, active.plugin.manifest());
        if self.release_parents(state, name, &kinds).await.is_empty()
            && inventory.parents(name).is_empty()
        {
            self.remove_finalizer(state, name).await;
        }
    }

    /// Stops a Plugin that is being deleted, and removes the host's finalizer once no parent has that of the plugin.
    pub(super) async fn finalize(&self, object: &Object, state: &mut PluginState) -> Next {
        state.loading = None;
        let Ok(name) = PluginName::new(&object.name) else {
            // A Plugin with such a name was never active.
            return Next::UntilChanged;
        };
        if state.active.is_some() {
            info!(plugin = %name, "the Plugin is being deleted, its children stay");
            self.stop(&name, state).await;
        }
        self.note_gone(&name);
        if !object.has_finalizer(&self.name.finalizer()) {
            return Next::UntilChanged;
        }
        let kinds = self.context.shared.inventory.parents(&name);
        let remaining = self.release_parents(state, &name, &kinds).await;
        if remaining.is_empty() {
            return self.remove_finalizer(state, &name).await;
        }
        let message = format!(
            "the Plugin is deleted once its finalizer {} is removed from all parents: {}",
            name.finalizer(),
            remaining.join("; ")
        );
        let failure = StageFailure::new(Stage::Serving, "Leaving", message, Retry::OnChange);
        match self.report(object, state, Err(&failure)).await {
            Next::Backoff => Next::Backoff,
            _ => Next::RequeueAfter(RELEASE_PERIOD),
        }
    }

    /// Removes the plugin's finalizer from all parents of these kinds; returns the remaining work, for people.
    async fn release_parents(
        &self,
        state: &mut PluginState,
        name: &PluginName,
        kinds: &BTreeSet<Gvk>,
    ) -> Vec<String> {
        let shared = &self.context.shared;
        let finalizers = &mut state.finalizers;
        let (free, mut remaining) = finalizers
            .release(shared, name, kinds, ReleaseScope::All)
            .await;
        if let Err(error) = shared.inventory.remove_parents(name, &free).await {
            warn!(plugin = %name, error = %error_chain(&error), "failed to remove kinds of parents from the inventory");
            remaining.push("the inventory cannot be written".to_owned());
        }
        state.is_releasing = !remaining.is_empty();
        remaining
    }

    /// Removes the host's finalizer from a Plugin.
    pub(super) async fn remove_finalizer(
        &self,
        state: &mut PluginState,
        name: &PluginName,
    ) -> Next {
        let Some(target) = &mut state.target else {
            return Next::UntilChanged;
        };
        let id = id_of(name);
        match self.context.shared.writer.release(target, &self.name).await {
            Ok(None) => {}
            Ok(Some(written)) => note(&self.registration, &id, &written),
            Err(error) => {
                warn!(plugin = %name, error = %error_chain(&error), "failed to remove the host's finalizer from a Plugin");
                return Next::Backoff;
            }
        }
        Next::UntilChanged
    }
}
