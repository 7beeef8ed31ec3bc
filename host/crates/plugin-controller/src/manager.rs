//! Serves Plugin resources: watches them, and runs a pass for each change.
//!
//! A Plugin is reconciled like a parent, with the same watch, queue, backoff and expectations for own writes. The
//! manager runs no plugin passes: the process that owns the tasks receives them over a bounded channel.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::pending,
    sync::Once,
    time::Duration,
};

use innkeeper_model::{Object, ObjectId, PluginName, error_chain};
use innkeeper_reconcile::{
    Attempt, Next,
    controller::{self, Triggered, Work, queue::Class},
};
use parking_lot::Mutex;
use tokio::time::sleep;
use tracing::{info, warn};

use crate::{
    act,
    claims::Age,
    context::{Context, ManagerContext, declared, observe},
    gone::{record_deletion, report_deletions},
    pass, resource,
    state::{PluginState, stored_needs},
};

/// Interval at which a new host checks whether the first Plugin list is complete.
const LISTED_RECHECK: Duration = Duration::from_secs(1);

/// Serves Plugins. Passes for different Plugins run concurrently.
pub struct Manager {
    cx: Context,
    /// Plugin states. A pass takes the state out and finally puts it back; a Plugin has one pass at a time.
    states: Mutex<BTreeMap<ObjectId, PluginState>>,
    /// Set once the Plugins that exist at the start have their claims.
    expected: Once,
    /// The Plugins with a revision whose first passes are being analysed.
    on_trial: Mutex<BTreeSet<ObjectId>>,
}

impl Manager {
    /// Starts the Plugin watch for a host. The resource definition may be installed later.
    pub fn new(context: ManagerContext, name: PluginName) -> Self {
        Self {
            cx: Context::new(context, name),
            states: Mutex::default(),
            expected: Once::new(),
            on_trial: Mutex::default(),
        }
    }

    /// Logs once it is known that there is nothing to serve: a host without plugin files may wait for its first Plugin.
    pub async fn notice_absence(&self) -> Infallible {
        let Context {
            definition,
            registration,
            files,
            ..
        } = &self.cx;
        let is_usable = definition.usable().await.is_ok();
        while !registration.waiting().is_empty() {
            sleep(LISTED_RECHECK).await;
        }
        if is_usable && files.is_empty() && registration.parents().is_empty() {
            let selector = self.cx.selector.as_ref().map(ToString::to_string);
            info!(
                selector,
                "serving no plugin yet: apply a Plugin with its role, as `innkeeper manifests` prints them"
            );
        }
        pending().await
    }

    /// Writes the condition to deleted Plugins' parents.
    pub async fn tell_parents_of_gone(&self) -> Infallible {
        report_deletions(&self.cx).await
    }

    /// Returns true if a plugin without passes may belong to this host.
    ///
    /// With a selector, a Plugin outside of it may belong to another host. A Plugin with finalizers on parents still
    /// exists, because the host's finalizer keeps it.
    pub fn may_be_own(&self, name: &PluginName) -> bool {
        let is_own = |id: &ObjectId| *id.name == *name.as_str();
        self.cx.selector.is_none() || self.cx.registration.parents().iter().any(is_own)
    }

    /// Registers all Plugins' granted kinds and components before the first pass, so the order of first passes does not
    /// matter.
    ///
    /// A component serves only granted kinds, perhaps fewer: the description is not known yet. The Plugin's own pass
    /// narrows the claim or withdraws it.
    fn expect_all(&self) {
        let Context {
            loader,
            registration,
            ..
        } = &self.cx;
        let ids = registration.parents();
        let plugins = || ids.iter().filter_map(|id| registration.parent(id));
        for plugin in plugins() {
            loader.need(&plugin.id(), stored_needs(&plugin));
        }
        // Not earlier: the cache now removes components that no known Plugin needs.
        loader.context.cache.know_all_needs();
        let uids: Vec<_> = plugins().map(|plugin| plugin.uid).collect();
        // Plugins that were deleted while no host ran would leave their marks for ever.
        loader.forget_marks_of_others(&uids);
        // A Plugin that is being deleted never serves again, so it must not keep kinds from others.
        for plugin in plugins().filter(|plugin| !plugin.is_deleting()) {
            // The Plugin's own pass reports an invalid spec.
            let Ok(declared) = declared(&plugin) else {
                continue;
            };
            let kinds: BTreeSet<_> = declared.terms.grants.parents.into_keys().collect();
            let age = Age::Created(declared.created);
            self.cx
                .with_claims(|claims| claims.expect(&declared.name, age, &kinds));
        }
    }

    /// Returns a Plugin's state for the first pass in this process.
    async fn first_state(&self, plugin: &Object) -> Option<PluginState> {
        let shared = &self.cx.shared;
        // With a selector, Plugins move between hosts, so another host may have written the inventory meanwhile.
        if let (Some(_), Ok(name)) = (&self.cx.selector, PluginName::new(&plugin.name))
            && let Err(error) = shared.inventory.refresh().await
        {
            warn!(plugin = %name, error = %error_chain(&error), "failed to read the inventory of the plugin");
            return None;
        }
        Some(PluginState::new(plugin, shared.hash_key.get()))
    }

    /// Removes the state for a Plugin that was deleted or is not selected any more; the children stay.
    async fn forget(&self, id: &ObjectId) {
        let cx = &self.cx;
        let mut state = self.states.lock().remove(id);
        // A running load states needs, so it ends before the needs are removed.
        if let Some(loading) = state.as_mut().and_then(|state| state.loading.take()) {
            loading.cancel().await;
        }
        let uid = state.as_ref().and_then(|state| state.uid.as_ref());
        cx.loader.forget(id, uid);
        let Ok(name) = PluginName::new(&id.name) else {
            cx.shared.metrics.plugin_gone(&id.name);
            return;
        };
        // Claims and metrics under this name belong to the plugin file.
        if cx.files.contains_key(&name) {
            return;
        }
        cx.shared.metrics.plugin_gone(&id.name);
        if let Some(mut state) = state {
            info!(plugin = %name, "the Plugin is gone, or not chosen any more, its children stay");
            act::stop(cx, &name, &mut state, cx.moment(None)).await;
            record_deletion(cx, &name);
        }
        cx.with_claims(|claims| claims.remove(&name));
        self.on_trial.lock().remove(id);
    }

    /// Releases a Plugin's claims beyond the active revision, unless it waits for a kind.
    fn narrow_claims(&self, id: &ObjectId, state: &PluginState) {
        // A first load keeps its claims, so a younger Plugin that loads faster does not take the kinds.
        let is_first_load = state.active.is_none() && state.loading.is_some();
        if let Ok(name) = PluginName::new(&id.name)
            && !is_first_load
            && !state.waits_for_kind()
            && !self.cx.files.contains_key(&name)
        {
            self.cx.with_claims(|claims| claims.release_unheld(&name));
        }
    }

    /// Remembers if the Plugin gets a pass when a first pass ends.
    fn follow_analysis(&self, id: &ObjectId, state: &PluginState) {
        // Before the lock, because the analysis locks the reconcilers.
        let is_on_trial = state.analysis().is_some();
        let mut on_trial = self.on_trial.lock();
        if is_on_trial {
            on_trial.insert(id.clone());
        } else {
            on_trial.remove(id);
        }
    }

    /// Delays passes for Plugins without granted parents behind all others, because an author without the right to
    /// grant can create any number of such Plugins. A deleted Plugin needs no load.
    fn behind_granted(&self, trigger: Triggered) -> Triggered {
        let is_last = self
            .cx
            .registration
            .parent(&trigger.parent)
            .is_some_and(|plugin| !resource::has_granted_parents(&plugin));
        Triggered { is_last, ..trigger }
    }
}

impl Work for Manager {
    async fn triggers(&self) -> Vec<Triggered> {
        // Dropping either future loses nothing: both keep what has not been taken.
        tokio::select! {
            triggers = controller::triggers(&self.cx.registration) => {
                let ranked = |trigger| self.behind_granted(trigger);
                triggers.into_iter().map(ranked).collect()
            }
            () = self.cx.shared.analyses.notified() => {
                let on_trial = self.on_trial.lock();
                on_trial.iter().map(|id| Triggered::now(id.clone(), Class::Swapped)).collect()
            }
        }
    }

    async fn pass(&self, id: ObjectId, attempt: Attempt) -> Next {
        let plugin = match observe(&self.cx.registration, &id).await {
            Ok(plugin) => plugin,
            // The active revision stays active while the next pass waits.
            Err(next) => {
                if next == Next::Forget {
                    self.forget(&id).await;
                }
                return next;
            }
        };
        // Not earlier: the first observation shows that all Plugins are in the cache.
        self.expected.call_once(|| self.expect_all());
        // The Plugin was deleted and recreated between two passes, and none saw it gone.
        let is_another = |state: &PluginState| !state.is_of(&plugin);
        if self.states.lock().get(&id).is_some_and(is_another) {
            self.forget(&id).await;
        }
        let state = self.states.lock().remove(&id);
        let state = match state {
            Some(state) => Some(state),
            None => self.first_state(&plugin).await,
        };
        let Some(mut state) = state else {
            return Next::Backoff;
        };
        // The hash key may have come back since the last pass, and no event reports that.
        let key = self.cx.shared.hash_key.get();
        state.recover_history(&plugin, key, self.cx.moment(plugin.generation));
        let next = pass::run(&self.cx, &plugin, &mut state, attempt.changed).await;
        self.narrow_claims(&id, &state);
        self.follow_analysis(&id, &state);
        self.cx.loader.need(&id, state.needs(&plugin));
        self.states.lock().insert(id, state);
        next
    }
}
