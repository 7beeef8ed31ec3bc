//! Plugins that claim the same kind of parents: one of them is active, and a change gives each affected one its pass.

use std::collections::BTreeSet;

use innkeeper_cluster::Cause;
use innkeeper_model::{Object, ObjectId, PluginName, Retry};
use tracing::info;

use super::{Manager, PluginState, declared, id_of, resume::needs_of};
use crate::{
    lifecycle::{Stage, StageFailure},
    priority::{Priorities, Priority, TakenKind},
    resource,
};
use innkeeper_reconcile::controller::Triggered;

impl Manager {
    /// Runs an operation on the priorities, and triggers the Plugins that it affects.
    pub(super) fn with_priorities<T>(&self, operation: impl FnOnce(&mut Priorities) -> T) -> T {
        let (result, affected) = {
            let mut priorities = self.priorities.lock();
            (operation(&mut priorities), priorities.take_affected())
        };
        self.registration
            .trigger(affected.iter().map(id_of), Cause::Swapped);
        result
    }

    /// Learns the granted kinds and the components of all Plugins before the first pass, so that the order of the first
    /// passes does not matter.
    ///
    /// A component serves only granted kinds, perhaps fewer: its description is not known yet. The Plugin's own pass
    /// narrows the claim or withdraws it.
    pub(super) fn expect_all(&self) {
        let ids = self.registration.parents();
        let plugins = || ids.iter().filter_map(|id| self.registration.parent(id));
        for plugin in plugins() {
            self.context.loader.need(&plugin.id(), needs_of(&plugin));
        }
        self.context.loader.context.cache.know_all_needs();
        let uids: Vec<_> = plugins().map(|plugin| plugin.uid).collect();
        self.context.loader.marker.forget_others(&uids);
        for plugin in plugins().filter(|plugin| !plugin.is_deleting()) {
            // The Plugin's own pass reports an invalid spec.
            let Ok(declared) = declared(&plugin) else {
                continue;
            };
            let kinds: BTreeSet<_> = declared.terms.grants.parents.into_keys().collect();
            let priority = Priority::Resource(declared.created);
            self.with_priorities(|all| all.expect(&declared.name, priority, &kinds));
        }
    }

    /// Stops a plugin if an older one is ready to be active for one of its kinds of parents.
    pub(super) async fn yield_kinds(&self, name: &PluginName, state: &mut PluginState) {
        let taken = self.priorities.lock().yields(name);
        if let Some(TakenKind { kind, by }) = taken {
            info!(plugin = %name, %kind, %by, "stopping the plugin: an older Plugin becomes active");
            self.stop(name, state).await;
        }
    }

    /// Releases the claims of a Plugin beyond its active revision, unless it waits for a kind. Its first revision keeps
    /// them while it is being loaded, so that the order of the loads after a start does not matter.
    pub(super) fn narrow_claims(&self, id: &ObjectId, state: &PluginState) {
        let is_first_load = state.active.is_none() && state.loading.is_some();
        if let Ok(name) = PluginName::new(&id.name)
            && !is_first_load
            && !state.waits_for_kind()
            && !self.context.files.contains_key(&name)
        {
            self.with_priorities(|all| all.keep_held(&name));
        }
    }

    /// Lets the pass of a Plugin without granted parents come after those of the others: an author without the right to
    /// grant can make any number of such Plugins. One that is gone needs no load.
    pub(super) fn behind_granted(&self, trigger: Triggered) -> Triggered {
        let plugin = self.registration.parent(&trigger.parent);
        let is_last = plugin.is_some_and(|plugin| !resource::has_granted_parents(&plugin));
        Triggered { is_last, ..trigger }
    }

    /// Returns the failure of a Plugin whose name belongs to a file of this host.
    pub(super) fn name_taken(&self, object: &Object) -> Option<(&PluginName, StageFailure)> {
        let name = PluginName::new(&object.name).ok()?;
        let (name, _) = self.context.files.get_key_value(&name)?;
        let message = format!(
            "the name {name} belongs to a plugin file of this host: rename the Plugin, or run the host without the file"
        );
        let (stage, retry) = (Stage::Serving, Retry::OnChange);
        let failure = StageFailure::new(stage, "NameTaken", message, retry);
        Some((name, failure))
    }
}
