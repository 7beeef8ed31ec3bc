//! A Plugin that goes: its finalizers are removed from its parents, so that no deletion waits for an absent guest.
//!
//! For that the Plugin has a finalizer of the host's, from before the first parent gets one of the plugin's.
//! Children and definitions stay.

use std::{collections::BTreeSet, time::Duration};

use innkeeper_apply as apply;
use innkeeper_model::{Gvk, Object, ObjectId, PluginName, error_chain};
use innkeeper_reconcile::Next;
use innkeeper_sandbox::Plugin;
use tracing::{info, warn};

use super::{Failed, Known, Manager, id_of};
use crate::{
    finalizers::Parents,
    lifecycle::{Problem, Stage, unserved},
};

/// The interval between checks of the rest.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(250);

impl Manager {
    /// Makes sure that a Plugin does not go before its finalizers have, where it has any.
    pub(super) async fn hold(
        &self,
        known: &mut Known,
        name: &PluginName,
        plugin: &Plugin,
    ) -> Result<(), Failed> {
        if !plugin.manifest().finalize {
            return Ok(());
        }
        let failed = |error: apply::Error| {
            let retry = error.retry();
            Failed::of(Stage::Serving, "NotHeld", &error, retry)
        };
        if let Some(target) = &mut known.target
            && !target.has_finalizer(&self.name.finalizer())
        {
            let writer = &self.parts.shared.writer;
            let written = writer.add_finalizer(target, &self.name).await;
            let written = written.map_err(failed)?;
            let id = id_of(name);
            self.registration
                .note_write(&id, &id, written.resource_version);
        }
        let parents = plugin.manifest().parents.iter();
        let parents = parents.map(|parent| parent.kind.clone());
        let inventory = &self.parts.shared.inventory;
        inventory
            .record_parents(name, parents)
            .await
            .map_err(failed)
    }

    /// Takes the finalizer off parents that the revision which serves has nothing to do with.
    pub(super) async fn leave_behind(&self, known: &mut Known, name: &PluginName) {
        let Some(running) = &known.running else {
            return;
        };
        let inventory = &self.parts.shared.inventory;
        let recorded = inventory.parents(name);
        let kinds = unserved(&recorded, running.plugin.manifest());
        if self.release_from(known, name, &kinds).await.is_empty()
            && inventory.parents(name).is_empty()
        {
            self.let_go(known, name).await;
        }
    }

    /// Brings a Plugin that is being deleted to its end.
    pub(super) async fn leave(&self, object: &Object, known: &mut Known) -> Next {
        let Ok(name) = PluginName::new(&object.name) else {
            // It has never been served.
            return Next::UntilChanged;
        };
        if known.running.is_some() {
            info!(plugin = %name, "the Plugin is being deleted, its children stay");
            self.stop(&name, known).await;
        }
        if !object.has_finalizer(&self.name.finalizer()) {
            return Next::UntilChanged;
        }
        let kinds = self.parts.shared.inventory.parents(&name);
        let left = self.release_from(known, &name, &kinds).await;
        if left.is_empty() {
            return self.let_go(known, &name).await;
        }
        let problem = Problem {
            stage: Stage::Serving,
            reason: "Leaving".to_owned(),
            message: format!(
                "the Plugin goes when its finalizer {} is off all parents: {}",
                name.finalizer(),
                left.join("; ")
            ),
        };
        match self.report(object, known, None, Some(&problem)).await {
            Next::Backoff => Next::Backoff,
            _ => Next::RequeueAfter(LOOKED_AT_EVERY),
        }
    }

    /// Removes the plugin's finalizer from all parents of these kinds; returns the remaining work, for people.
    async fn release_from(
        &self,
        known: &mut Known,
        name: &PluginName,
        kinds: &BTreeSet<Gvk>,
    ) -> Vec<String> {
        let shared = &self.parts.shared;
        let finalizers = &mut known.finalizers;
        let left = finalizers.release(shared, name, kinds, Parents::All).await;
        known.is_leaving = !left.others.is_empty();
        match shared.inventory.remove_parents(name, &left.free).await {
            Ok(()) => left.others,
            Err(error) => {
                warn!(plugin = %name, error = %error_chain(&error), "failed to cross out kinds of parents");
                known.is_leaving = true;
                vec!["the inventory cannot be written".to_owned()]
            }
        }
    }

    /// Takes the host's finalizer off a Plugin.
    pub(super) async fn let_go(&self, known: &mut Known, name: &PluginName) -> Next {
        let Some(target) = &mut known.target else {
            return Next::UntilChanged;
        };
        let id = id_of(name);
        match self.parts.shared.writer.release(target, &self.name).await {
            Ok(None) => Next::UntilChanged,
            Ok(Some(written)) if written.gone => {
                let version = written.resource_version;
                self.registration.note_stale(&id, &id, version);
                Next::UntilChanged
            }
            Ok(Some(written)) => {
                let version = written.resource_version;
                self.registration.note_write(&id, &id, version);
                Next::UntilChanged
            }
            Err(error) => {
                warn!(plugin = %name, error = %error_chain(&error), "failed to let go of a Plugin");
                Next::Backoff
            }
        }
    }

    /// Returns whether a plugin without passes may be this host's: with a selector, a Plugin outside may be another
    /// one's, and a Plugin does not go before its finalizers have.
    pub fn may_be_own(&self, name: &PluginName) -> bool {
        let is_it = |id: &ObjectId| *id.name == *name.as_str();
        self.parts.selector.is_none() || self.registration.parents().iter().any(is_it)
    }
}
