//! Revisions that become active again: after a restart the last one, and in a rollback the last good one.
//!
//! Both come from bytes that are kept, so no source is contacted.

use std::sync::Arc;

use innkeeper_model::{Digest, HashKey, Object, Retry};
use innkeeper_sandbox::{Plugin, artifact::Needs};
use jiff::Timestamp;
use tracing::{info, warn};

use super::{
    Manager, PluginState,
    load::granted,
    report::{status_of, stored_status},
};
use crate::{
    lifecycle::{Activation, History, Moment, PastRevision, Stage, StageFailure},
    resource::{Declared, revision_name},
};

impl PluginState {
    /// Returns the state of a Plugin in a process that has just started. Without the hash key it has no history yet.
    pub(super) fn of(object: &Object, key: Option<&HashKey>) -> Self {
        let status = status_of(object);
        let mut state = Self {
            uid: Some(object.uid.clone()),
            reported: status.observed_generation,
            faults_before: status
                .revision
                .zip(status.faults.map(|faults| faults.count)),
            is_unverified: true,
            ..Self::default()
        };
        if let Some(key) = key {
            state.verify_history(object, key);
        }
        state
    }

    /// Takes over the history in the status if it has the seal for this key.
    fn verify_history(&mut self, object: &Object, key: &HashKey) {
        self.is_unverified = false;
        let stored = stored_status(object);
        self.history = History::unsealed(&stored, &object.uid, key);
        if self.history.0.is_empty() && stored.contains_key("history") {
            warn!(plugin = %object.name, "ignored status.history of a Plugin: this host did not write it, or has another hash key now");
        }
    }

    /// Takes over the history in the status once a lost hash key is known again. The active revision, which came from its
    /// source, is its latest entry then.
    pub(super) fn recover_history(
        &mut self,
        object: &Object,
        key: Option<&HashKey>,
        now: Timestamp,
    ) {
        let Some(key) = key.filter(|_| self.is_unverified) else {
            return;
        };
        self.verify_history(object, key);
        if let Some(active) = &self.active {
            let generation = object.generation;
            let past = PastRevision::of(&active.plugin);
            self.history
                .begin(&past, &Activation::Declared, Moment { now, generation });
        }
    }
}

impl Manager {
    /// Activates an earlier revision; on failure the active one stays. Returns false while its component is being
    /// loaded.
    pub(super) async fn come_back(
        &self,
        declared: &Declared,
        state: &mut PluginState,
        revision: &Digest,
        activation: Activation,
    ) -> bool {
        let Some(plugin) = self.revive(declared, state, revision).await else {
            return false;
        };
        let came_back = async {
            let plugin = plugin?;
            granted(&declared.terms, plugin.manifest())?;
            self.serve(declared, state, plugin, activation.clone())
                .await
        }
        .await;
        let (plugin, name) = (&declared.name, revision_name(revision));
        match (came_back, activation) {
            (Ok(()), Activation::RolledBack { why }) => {
                warn!(%plugin, revision = name, why, "rolled back to the last good revision");
            }
            (Ok(()), _) => info!(%plugin, revision = name, "resumed the last active revision"),
            (Err(failure), _) => {
                let error = &failure.message;
                warn!(%plugin, revision = name, error, "failed to activate an earlier revision");
                let lost = state.refused(failure);
                state.lost.insert(revision.clone(), lost);
            }
        }
        true
    }

    /// Returns an earlier revision from memory or the cache directory; none while it is being loaded.
    async fn revive(
        &self,
        declared: &Declared,
        state: &mut PluginState,
        revision: &Digest,
    ) -> Option<Result<Arc<Plugin>, StageFailure>> {
        let found = state.history.past().find(|past| past.revision == *revision);
        let Some(past) = found else {
            let message = "the revision is not in status.history any more";
            let failure = StageFailure::new(Stage::Fetched, "NotKept", message, Retry::OnChange);
            return Some(Err(failure));
        };
        let component = match state.component(declared, &past.digest).cloned() {
            Some(component) => Ok(component),
            None => self.loaded(declared, state, Some(&past.digest))?,
        };
        Some(match component {
            Ok(component) => {
                let loader = &self.context.loader;
                loader.configure(&component, &past.config).await
            }
            Err(failure) => Err(failure),
        })
    }
}

/// Returns the components that a Plugin needs while its history is not read in this process. Without a check of the seal: the
/// components are only kept.
pub(super) fn needs_of(plugin: &Object) -> Needs {
    History(status_of(plugin).history).needs()
}
