//! Serves the Plugin resources of a cluster: one pass for one resource.
//!
//! A Plugin is reconciled like a parent: watch, queue, back-off and expectations for own writes are the same.
//! [`PluginState`] decides on the next step.
//! This controller runs no passes of plugins: the owner of the tasks of the process receives them over a bounded
//! channel.
//!
//! A Plugin that is removed leaves all children and all definitions as they are.

mod accounts;
mod active;
mod attempt;
mod conditions;
mod contested;
mod definition;
mod dry_run;
mod finalize;
mod gone;
mod load;
mod loading;
mod marker;
mod missing;
mod places;
mod plans;
mod priority;
mod report;
mod resume;
mod serve;
mod state;
mod unserved;
mod warm;

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    future::pending,
    sync::{Arc, Once},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

pub use self::definition::DefinitionCheck;
pub use self::load::Loader;
use self::load::VerifiedComponent;
use self::loading::Loading;
use self::marker::LoadId;
use self::missing::MissingParents;
pub use self::plans::CandidatePlans;
use self::resume::needs_of;
pub use self::serve::Start;
use self::state::PluginState;
use self::unserved::ToldParents;
pub use self::warm::{OnceMade, Warm, Warmer};
use innkeeper_apply::Target;
use innkeeper_cluster::{Cluster, Interest, Observed, Registration};
use innkeeper_model::{
    Digest, GroupKind, Gvk, Object, ObjectId, PluginName, Resource, Retry, Scope, Selector,
    error_chain,
};
use innkeeper_reconcile::{
    Attempt, Next, Shared,
    controller::{self, Triggered, Work, queue::Class},
};
use innkeeper_sandbox::artifact::Needs;

use super::{
    finalizers::parents_of,
    lifecycle::{Activation, AnalysisVerdict, NextStep, Stage, StageFailure},
    priority::{Priorities, Priority},
    resource::{self, Declared},
};

/// The interval at which a pass that cannot read its Plugin tries again. A trigger follows when it can, so this is
/// only a safety net. Chosen, not measured.
const WAITING_RECHECK: Duration = Duration::from_secs(30);

/// The interval at which a host that has just started checks if the first list of Plugins is complete.
const LISTED_RECHECK: Duration = Duration::from_secs(1);

/// The refresh interval of the numbers of parents and faults in the status. No event triggers a pass when they change.
/// Chosen: users look no more often, and a status costs one write.
const REFRESH_PERIOD: Duration = Duration::from_secs(10);

/// The dependencies of the manager.
pub struct ManagerContext {
    /// The state shared by all plugins.
    pub shared: Arc<Shared>,
    /// The loader of declared components.
    pub loader: Arc<Loader>,
    /// The plugins that the same host serves from files, with their kinds of parents.
    pub files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
    /// The label selector for the Plugins of this host; none: all.
    pub selector: Option<Selector>,
    /// The check of the installed definition, which has to run.
    pub definition: Arc<DefinitionCheck>,
    /// The plans of candidates for the admin server; none if it shows none.
    pub plans: Option<Arc<CandidatePlans>>,
    /// Takes plugins whose passes are to run.
    pub starts: mpsc::Sender<Start>,
    /// Ends the passes of all plugins.
    pub stop: CancellationToken,
}

/// Serves Plugins.
///
/// Passes of different Plugins run concurrently. No lock is held across an await, and none is taken while another one
/// is held.
pub struct Manager {
    context: ManagerContext,
    /// The name of the host, under which the watch of Plugins is registered.
    name: PluginName,
    registration: Registration,
    /// The states of Plugins. A pass takes the state out and puts it back at its end; a Plugin has one pass at a time.
    states: Mutex<BTreeMap<ObjectId, PluginState>>,
    /// The claims of plugins to kinds of parents.
    priorities: Mutex<Priorities>,
    /// Set once the Plugins that exist at the start are known to [`Priorities`].
    expected: Once,
    /// The Plugins with a revision whose first passes are being analysed.
    on_trial: Mutex<BTreeSet<ObjectId>>,
    /// The deleted Plugins whose parents do not all state it yet.
    gone: Mutex<BTreeMap<PluginName, ToldParents>>,
}

/// The kind of the resource.
pub fn kind() -> Gvk {
    Gvk::new(resource::GROUP, "v1alpha1", "Plugin")
}

/// Returns the interest in the Plugins of a host of this name.
fn interest(name: PluginName, selector: Option<Selector>) -> Interest {
    Interest {
        selector: selector.unwrap_or_default(),
        ..parents_of(name, kind())
    }
}

impl Manager {
    /// Starts to watch Plugins. The definition of the resource may be installed later.
    pub fn new(context: ManagerContext, name: PluginName) -> Self {
        let interest = interest(name.clone(), context.selector.clone());
        let mut priorities = Priorities::default();
        for (name, kinds) in &context.files {
            // Succeeds: no two files claim the same kind, and no Plugin has claimed one yet.
            drop(priorities.take(name, Priority::File, kinds, true));
        }
        Self {
            registration: context.shared.cluster.register(interest),
            context,
            name,
            states: Mutex::default(),
            priorities: Mutex::new(priorities),
            expected: Once::new(),
            on_trial: Mutex::default(),
            gone: Mutex::default(),
        }
    }

    /// Logs that there is nothing to serve, once that is known: a host without plugin files may wait for its first Plugin.
    pub async fn notice_absence(&self) -> Infallible {
        let is_usable = self.context.definition.usable().await.is_ok();
        while !self.registration.waiting().is_empty() {
            sleep(LISTED_RECHECK).await;
        }
        if is_usable && self.context.files.is_empty() && self.registration.parents().is_empty() {
            let selector = self.context.selector.as_ref().map(ToString::to_string);
            info!(
                selector,
                "serving no plugin yet: apply a Plugin with its role, as `innkeeper manifests` prints them"
            );
        }
        pending().await
    }

    fn cluster(&self) -> &Cluster {
        &self.context.shared.cluster
    }

    /// Takes all steps for a Plugin that can be taken now, and reports its state.
    async fn reconcile(&self, object: &Object, state: &mut PluginState) -> Next {
        state.generation = object.generation;
        state.target = Some(Target::new(object, &resource_of(object)));
        if let Err(failure) = self.context.definition.usable().await {
            return self.report_unusable(object, state, &failure).await;
        }
        if let Some((name, failure)) = self.name_taken(object) {
            if object.is_deleting() {
                // The plugin's finalizers belong to the file of that name, so only the host's is removed.
                return self.remove_finalizer(state, name).await;
            }
            return self.report(object, state, Err(&failure)).await;
        }
        if object.is_deleting() {
            return self.finalize(object, state).await;
        }
        let declared = match state.declared(object) {
            Ok(declared) => declared,
            Err(failure) => {
                state.loading = None;
                return self.report(object, state, Err(&failure)).await;
            }
        };
        if let Some((component, at)) = state.follow(&declared) {
            self.configured(&declared, state, Ok(component), at).await;
        }
        // Before any step: grants bind at once, and an older plugin waits for the kinds.
        self.bind(&declared, state).await;
        self.yield_kinds(&declared.name, state).await;
        state.missing = MissingParents::of(state, self.cluster());
        let is_first = self.priorities.lock().is_first(&declared.name);
        state.forget_refused(is_first);
        self.take_steps(&declared, state).await;
        if state.refused.is_empty() {
            state.candidate = None;
        }
        let analysis = state.analysis();
        if analysis.is_some_and(|one| one.verdict == AnalysisVerdict::Good) {
            info!(plugin = %declared.name, "the new revision is good: its first passes succeeded");
            state.history.pass();
        }
        self.release_dropped_kinds(state, &declared.name).await;
        let synced = state.synced_of_parents(&declared);
        let ungranted = state.ungranted();
        self.tell_parents(&declared, &mut state.unserved, synced, ungranted)
            .await;
        self.report(object, state, Ok(&declared)).await
    }

    /// Takes steps until the Plugin has to wait. This ends, because no failed step is repeated before its retry time.
    async fn take_steps(&self, declared: &Declared, state: &mut PluginState) {
        loop {
            let analysis = state.analysis();
            let step = state.next_step(declared, analysis.as_ref());
            debug!(?step, "next step");
            match step {
                NextStep::Load => {
                    if let Some(component) = self.loaded(declared, state, None) {
                        let at = Instant::now();
                        self.configured(declared, state, component, at).await;
                    }
                }
                NextStep::Activate(revision) => {
                    let is_refused = state.refused.contains_key(&revision);
                    let Some(plugin) = state.plugin(&revision).filter(|_| !is_refused) else {
                        break;
                    };
                    let activation = Activation::Declared;
                    if let Err(failure) = self.serve(declared, state, plugin, activation).await {
                        let refused = state.refused(failure);
                        state.refused.insert(revision, refused);
                    }
                }
                NextStep::Resume(revision) => {
                    let activation = Activation::Resumed;
                    if !self.come_back(declared, state, &revision, activation).await {
                        break;
                    }
                }
                NextStep::RollBack(revision) => {
                    let why = analysis.and_then(|one| one.faults).unwrap_or_default();
                    let activation = Activation::RolledBack { why };
                    if !self.come_back(declared, state, &revision, activation).await {
                        break;
                    }
                }
                NextStep::Stop => {
                    info!(plugin = %declared.name, "stopping the plugin: its grants do not suffice any more");
                    self.stop(&declared.name, state).await;
                }
                NextStep::Keep => {
                    state.refused.clear();
                    break;
                }
                NextStep::Wait => break,
            }
        }
    }

    /// Notes the end of a load, once the component has its configuration.
    async fn configured(
        &self,
        declared: &Declared,
        state: &mut PluginState,
        component: Result<VerifiedComponent, StageFailure>,
        at: Instant,
    ) {
        let loaded = match component {
            Ok(component) => {
                let loader = &self.context.loader;
                let result = loader.configure(&component, &declared.config).await;
                Ok((component, result))
            }
            Err(failure) => Err(failure),
        };
        state.attempted(declared, loaded, at);
    }

    /// Returns the component of a declaration, or the one with these bytes in the cache directory, once it is loaded.
    ///
    /// Starts the work where it does not run, in place of other work for the Plugin.
    fn loaded(
        &self,
        declared: &Declared,
        state: &mut PluginState,
        kept: Option<&Digest>,
    ) -> Option<Result<VerifiedComponent, StageFailure>> {
        let load = LoadId {
            uid: state.uid.clone()?,
            generation: state.generation,
            kept: kept.cloned(),
        };
        let (slot, loader) = (&mut state.loading, &self.context.loader);
        Loading::poll(slot, loader, &self.registration, declared, load)
    }

    /// Removes the state of a Plugin that is gone or not selected any more; its children stay.
    async fn forget(&self, id: &ObjectId) {
        let mut state = self.states.lock().remove(id);
        // First, because a running load states needs.
        if let Some(loading) = state.as_mut().and_then(|state| state.loading.take()) {
            loading.cancel().await;
        }
        self.context.loader.need_nothing(id);
        if let Some(uid) = state.as_ref().and_then(|state| state.uid.as_ref()) {
            self.context.loader.marker.forget(uid);
        }
        let name = PluginName::new(&id.name);
        // The priority and the metrics of that name belong to the file.
        if let Ok(name) = &name
            && self.context.files.contains_key(name)
        {
            return;
        }
        self.context.shared.metrics.plugin_gone(&id.name);
        if let Ok(name) = name {
            if let Some(mut state) = state {
                info!(plugin = %name, "the Plugin is gone, or not chosen any more, its children stay");
                self.stop(&name, &mut state).await;
                self.note_gone(&name);
            }
            self.with_priorities(|all| all.withdraw(&name));
        }
        self.on_trial.lock().remove(id);
    }

    /// Returns the state of a Plugin at its first pass in this process.
    async fn first_state(&self, plugin: &Object) -> Option<PluginState> {
        // With a selector, Plugins move between hosts, so another host may have written the inventory meanwhile.
        if let (Some(_), Ok(name)) = (&self.context.selector, PluginName::new(&plugin.name)) {
            let inventory = &self.context.shared.inventory;
            if let Err(error) = inventory.refresh(self.cluster(), &name).await {
                warn!(plugin = %name, error = %error_chain(&error), "failed to read the inventory of the plugin");
                return None;
            }
        }
        let key = self.context.shared.hash_key.get();
        Some(PluginState::of(plugin, key))
    }

    /// Remembers if the Plugin gets a pass when a first pass ends.
    fn follow_analysis(&self, id: &ObjectId, state: &PluginState) {
        // Before the lock, because the analysis takes locks of the reconcilers.
        let is_on_trial = state.analysis().is_some();
        let mut on_trial = self.on_trial.lock();
        if is_on_trial {
            on_trial.insert(id.clone());
        } else {
            on_trial.remove(id);
        }
    }

    /// States the components that the Plugin needs.
    fn state_needs(&self, plugin: &Object, state: &PluginState) {
        let attempt = state.attempt.as_ref();
        let component = attempt.and_then(|attempt| attempt.component.as_ref());
        let loaded = component.map(|component| component.digest().clone());
        let mut needs = state.history.needs();
        if state.is_unverified {
            let Needs { kept, spare } = needs_of(plugin);
            needs.kept.extend(kept);
            needs.spare.extend(spare);
        }
        needs.kept.extend(loaded);
        self.context.loader.need(&plugin.id(), needs);
    }

    /// Returns true if a plugin without passes may be this host's.
    ///
    /// With a selector, a Plugin outside of it may be another host's. A Plugin with finalizers on parents still exists,
    /// because the host's finalizer keeps it.
    pub fn may_be_own(&self, name: &PluginName) -> bool {
        let is_own = |id: &ObjectId| *id.name == *name.as_str();
        self.context.selector.is_none() || self.registration.parents().iter().any(is_own)
    }
}

impl Work for Manager {
    async fn triggers(&self) -> Vec<Triggered> {
        tokio::select! {
            triggers = controller::triggers(&self.registration) => {
                let ranked = |trigger| self.behind_granted(trigger);
                triggers.into_iter().map(ranked).collect()
            }
            () = self.context.shared.analyses.notified() => {
                let on_trial = self.on_trial.lock();
                on_trial.iter().map(|id| Triggered::now(id.clone(), Class::Swapped)).collect()
            }
        }
    }

    async fn pass(&self, id: ObjectId, attempt: Attempt) -> Next {
        let observation = match self.registration.observe(&id).await {
            Observed::Ready(observation) => observation,
            Observed::Gone => {
                self.forget(&id).await;
                return Next::Forget;
            }
            Observed::Behind { until } => {
                return Next::Again(until.saturating_duration_since(Instant::now()));
            }
            // The active revision stays active.
            Observed::NotReady { .. } | Observed::NamespaceFull { .. } => {
                return Next::Parked(WAITING_RECHECK);
            }
        };
        // Only now: the first observation shows that all Plugins are in the cache.
        self.expected.call_once(|| self.expect_all());
        let plugin = &observation.parent;
        let is_another = |state: &PluginState| !state.is_of(plugin);
        if self.states.lock().get(&id).is_some_and(is_another) {
            self.forget(&id).await;
        }
        let state = self.states.lock().remove(&id);
        let state = match state {
            Some(state) => Some(state),
            None => self.first_state(plugin).await,
        };
        let Some(mut state) = state else {
            return Next::Backoff;
        };
        state.change = attempt.changed;
        let Shared { hash_key, now, .. } = &*self.context.shared;
        state.recover_history(plugin, hash_key.get(), now());
        let next = self.reconcile(plugin, &mut state).await;
        self.narrow_claims(&id, &state);
        self.follow_analysis(&id, &state);
        self.state_needs(plugin, &state);
        self.states.lock().insert(id, state);
        next
    }
}

fn id_of(name: &PluginName) -> ObjectId {
    ObjectId::new(kind().group_kind(), None, name.as_str())
}

/// Returns the resource of a Plugin.
fn resource_of(object: &Object) -> Resource {
    Resource {
        kind: object.kind.clone(),
        plural: "plugins".into(),
        scope: Scope::Cluster,
    }
}

/// Returns the declaration of a Plugin.
fn declared(object: &Object) -> Result<Declared, StageFailure> {
    let plugin = resource::Plugin::read(&object.json);
    let declared = plugin.and_then(|plugin| plugin.declared());
    declared
        .map_err(|error| StageFailure::of(Stage::Fetched, "InvalidSpec", &error, Retry::OnChange))
}

#[cfg(test)]
mod tests;
