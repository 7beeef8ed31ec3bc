//! Serves Plugins on a host that is not the leader: follows the revisions that the leader has published.
//!
//! Only the leader decides which revision is active, installs definitions and writes Plugin statuses. A follower loads
//! exactly the published revision and runs its passes, under the terms in the spec, for the parents of its shards.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use innkeeper_cluster::Registration;
use innkeeper_model::{
    GroupKind, Gvk, HashKey, Object, ObjectId, PluginName, PluginReason, Retry, Selector, Uid,
};
use innkeeper_reconcile::{
    Attempt, Next, Revision, Role, Shared,
    controller::{self, Triggered, Work},
};
use innkeeper_sandbox::Plugin;
use parking_lot::Mutex;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::{
    PluginControllers, Start, Warm, accounts,
    act::start,
    active::ActivePlugin,
    conditions::{kinds_not_served, not_served},
    context::{WAITING_RECHECK, declared, id_of, interest, observe},
    finalizers::ReleaseScope,
    gone::report_deletions_as_follower,
    load::{LoadId, Loader, Loading, granted},
    parent_watches::ParentWatches,
    resource::{Declared, Terms, revision_name},
    rollout::{History, PastRevision, not_finalized},
    stage::{Stage, StageFailure},
    state::stored_needs,
    status::{status_of, stored_status},
    unserved::{Unserved, report_unserved},
};

/// The pause until a pass looks again whether another plugin's parents are free, or whether finalizers are gone.
const RECHECK: Duration = Duration::from_secs(1);

/// A follower's dependencies.
pub struct FollowerContext {
    /// The state shared by all plugins.
    pub shared: Arc<Shared>,
    /// Loads published components.
    pub loader: Arc<Loader>,
    /// Plugins that the same host serves from files, with their parent kinds.
    pub files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
    /// Selects this host's Plugins by label; none selects all.
    pub selector: Option<Selector>,
    /// Takes plugins whose passes are to run.
    pub starts: mpsc::Sender<Start>,
    /// Ends all plugins' passes.
    pub stop: CancellationToken,
}

/// Follows the leader's Plugins. Passes for different Plugins run concurrently.
pub struct Follower {
    cx: FollowerContext,
    registration: Registration,
    /// A pass takes its state out and finally puts it back; a Plugin has one pass at a time.
    states: Mutex<BTreeMap<ObjectId, Followed>>,
    /// The parent kinds with passes.
    taken: Mutex<BTreeMap<GroupKind, PluginName>>,
}

/// One Plugin's state.
#[derive(Default)]
struct Followed {
    uid: Option<Uid>,
    loading: Option<Loading>,
    active: Option<ActivePlugin>,
    /// Parent kinds that may have got the plugin's finalizer from this host.
    finalizing: BTreeSet<Gvk>,
    /// Parents that lose the plugin's finalizer.
    releasing: ParentWatches,
    /// The parents while the plugin does not serve.
    unserved: Unserved,
    /// The last failure, so that one that repeats is logged once.
    failure: Option<String>,
}

impl Follower {
    /// Starts the Plugin watch for a host; `name` is the watch's subscriber.
    pub fn new(cx: FollowerContext, name: PluginName) -> Self {
        let interest = interest(name, cx.selector.clone());
        Self {
            registration: cx.shared.cluster.register(interest),
            cx,
            states: Mutex::default(),
            taken: Mutex::default(),
        }
    }

    /// Returns the running watches, for the manager that serves the plugins from now on. All passes have ended.
    pub fn take(&self) -> Warm {
        let states = std::mem::take(&mut *self.states.lock());
        let active = states.into_values().filter_map(|state| state.active);
        active
            .map(|ActivePlugin { served, .. }| {
                let watches = served
                    .reconcilers
                    .iter()
                    .map(|reconciler| reconciler.registration().clone());
                (served.name.clone(), watches.collect())
            })
            .collect()
    }

    /// Returns true if a plugin without passes may belong to this host, as for the
    /// [`Manager`](crate::Manager::may_be_own).
    pub fn may_be_own(&self, name: &PluginName) -> bool {
        let is_own = |id: &ObjectId| *id.name == *name.as_str();
        self.cx.selector.is_none() || self.registration.parents().iter().any(is_own)
    }

    /// Writes the condition to deleted Plugins' parents in this host's shards, as the
    /// [`Manager`](crate::Manager::tell_parents_of_gone) does for the leader's.
    pub async fn tell_parents_of_gone(&self) -> Infallible {
        let is_there = |name: &PluginName| {
            // Before the first list is complete, every Plugin would seem deleted.
            !self.registration.waiting().is_empty()
                || self.cx.files.contains_key(name)
                || self.registration.parent(&id_of(name)).is_some()
                || !self.may_be_own(name)
        };
        let has_passes =
            |kind: &GroupKind| self.is_file_kind(kind) || self.taken.lock().contains_key(kind);
        report_deletions_as_follower(&self.cx.shared, is_there, has_passes).await
    }

    /// Serves the published revision, or nothing if there is none.
    async fn follow(&self, plugin: &Object, state: &mut Followed) -> Result<Next, StageFailure> {
        let Ok(name) = PluginName::new(&plugin.name) else {
            return Ok(Next::UntilChanged);
        };
        if self.cx.files.contains_key(&name) {
            return Ok(Next::UntilChanged);
        }
        if plugin.is_deleting() {
            self.stop(&name, state).await;
            // Other hosts may have recorded kinds.
            self.refresh_inventory().await?;
            let recorded = self.cx.shared.inventory.kinds(&name, Role::Finalizing);
            let kinds = &recorded | &state.finalizing;
            return Ok(after_release(self.release(&name, &kinds, state).await));
        }
        let Some(key) = self.cx.shared.hash_key.get() else {
            return Ok(Next::RequeueAfter(RECHECK));
        };
        let Some(past) = published(plugin, key) else {
            self.stop(&name, state).await;
            return Ok(Next::UntilChanged);
        };
        // The leader keeps the last terms if the spec becomes invalid, and so does this host.
        let Ok(declared) = declared(plugin) else {
            return Ok(Next::UntilChanged);
        };
        let Some(revision) = self.plugin(plugin, &declared, &past, state).await? else {
            return Ok(Next::RequeueAfter(WAITING_RECHECK));
        };
        let manifest = revision.manifest();
        let recorded = self.cx.shared.inventory.kinds(&name, Role::Finalizing);
        let dropped = not_finalized(&recorded, manifest);
        if !self.serve(&declared, Arc::clone(&revision), state).await? {
            return Ok(Next::RequeueAfter(RECHECK));
        }
        Ok(after_release(self.release(&name, &dropped, state).await))
    }

    /// Returns the published revision; none while it is being loaded.
    async fn plugin(
        &self,
        plugin: &Object,
        declared: &Declared,
        past: &PastRevision,
        state: &mut Followed,
    ) -> Result<Option<Arc<Plugin>>, StageFailure> {
        let loader = &self.cx.loader;
        let active = state.active.as_ref().map(|active| &active.plugin);
        if let Some(active) = active.filter(|active| *active.revision() == past.revision) {
            return Ok(Some(Arc::clone(active)));
        }
        // Exactly these bytes, from the cache directory or else from the source.
        let pinned = Declared {
            digest: Some(past.digest.clone()),
            ..declared.clone()
        };
        let load = LoadId {
            uid: plugin.uid.clone(),
            generation: plugin.generation,
            kept: None,
        };
        let loading = &mut state.loading;
        let Some(component) = Loading::poll(loading, loader, &self.registration, &pinned, load)
        else {
            return Ok(None);
        };
        loader.configure(&component?, &past.config).await.map(Some)
    }

    /// Runs a revision's passes under the declared terms. Returns false if another plugin's passes have to end first.
    async fn serve(
        &self,
        declared: &Declared,
        plugin: Arc<Plugin>,
        state: &mut Followed,
    ) -> Result<bool, StageFailure> {
        let Declared { name, terms, .. } = declared;
        if let Some(active) = &state.active
            && active.plugin.revision() == plugin.revision()
            && active.terms == *terms
        {
            return Ok(true);
        }
        if let Err(failure) = granted(terms, plugin.manifest()) {
            self.stop(name, state).await;
            return Err(failure);
        }
        let account = self.check_account(name, terms).await;
        let terms = match (&account, &state.active) {
            // As on the leader, all other terms bind at once.
            (Err(_), Some(active)) => Terms {
                service_account: active.terms.service_account.clone(),
                ..terms.clone()
            },
            _ => terms.clone(),
        };
        if state.active.is_none() {
            account.clone()?;
        }
        let serving = terms.serving(Arc::clone(&plugin));
        for parent in serving.parents() {
            self.check_served(&parent.kind)?;
        }
        // Other hosts may have created children of kinds that this revision does not declare.
        self.refresh_inventory().await?;
        if plugin.manifest().finalize {
            let kinds = serving.parents().map(|parent| parent.kind.clone());
            state.finalizing.extend(kinds);
        }
        let is_served = self.activate(name, plugin, terms, serving, state).await;
        account.map(|()| is_served)
    }

    async fn check_account(&self, name: &PluginName, terms: &Terms) -> Result<(), StageFailure> {
        match &terms.service_account {
            Some(account) => accounts::check(&self.cx.shared.cluster, name, account).await,
            None => Ok(()),
        }
    }

    /// Starts a revision's passes, or swaps the active one. Returns false if another plugin has a parent kind.
    async fn activate(
        &self,
        name: &PluginName,
        plugin: Arc<Plugin>,
        terms: Terms,
        serving: Revision,
        state: &mut Followed,
    ) -> bool {
        let FollowerContext {
            shared,
            starts,
            stop,
            ..
        } = &self.cx;
        let kinds = serving.parent_kinds();
        let same_kinds = state
            .active
            .take_if(|active| active.served.kinds() == kinds);
        let mut active = if let Some(mut active) = same_kinds {
            active.swap(&serving, &terms, None).await;
            active
        } else {
            // A parent has at most one pass at a time: the old ones end first, also another plugin's.
            self.stop(name, state).await;
            if !self.take_kinds(name, kinds) {
                return false;
            }
            ActivePlugin {
                plugin: Arc::clone(&plugin),
                terms: terms.clone(),
                accepted: terms.clone(),
                served: Arc::new(PluginControllers::new(shared, name, &serving)),
                passes: None,
                since: Instant::now(),
            }
        };
        let version = &plugin.manifest().version;
        let revision = revision_name(plugin.revision());
        if terms.suspend {
            info!(plugin = %name, version, revision, "suspended the plugin as its leader did");
        } else {
            info!(plugin = %name, version, revision, "serving the plugin as its leader does");
        }
        if active.passes.is_none() && !terms.suspend {
            let passes = start(starts, stop, &active.served, serving.limits);
            active.passes = Some(passes.await);
        }
        active.plugin = plugin;
        active.terms = terms;
        state
            .unserved
            .record_kinds(active.served.kinds(), active.plugin.manifest());
        state.active = Some(active);
        true
    }

    /// Tells the parents in this host's shards that the plugin does not serve them, as the manager does for the leader's.
    /// Returns when to do so again.
    async fn report_unserved(&self, plugin: &Object, state: &mut Followed) -> Option<Instant> {
        let declared = declared(plugin).ok()?;
        let active = state
            .active
            .as_ref()
            .filter(|active| active.passes.is_some());
        let ungranted = active.map_or_else(BTreeSet::new, |active| {
            &state.unserved.kinds - &active.served.kinds()
        });
        let synced = match active {
            Some(_) => {
                (!ungranted.is_empty()).then(|| kinds_not_served(&declared.name, &ungranted))
            }
            None => why_not_served(plugin).map(|why| not_served(&declared.name, &why)),
        };
        let is_own = |kind: &GroupKind| {
            let holder = self.taken.lock().get(kind).cloned();
            !self.is_file_kind(kind) && holder.is_none_or(|by| by == declared.name)
        };
        let unserved = &mut state.unserved;
        report_unserved(
            &self.cx.shared,
            &declared,
            unserved,
            synced,
            ungranted,
            is_own,
        )
        .await;
        unserved.due
    }

    async fn refresh_inventory(&self) -> Result<(), StageFailure> {
        let refreshed = self.cx.shared.inventory.refresh().await;
        refreshed
            .map_err(|error| Stage::Serving.error(PluginReason::ReadFailed, &error, Retry::Backoff))
    }

    fn check_served(&self, kind: &Gvk) -> Result<(), StageFailure> {
        if self.cx.shared.cluster.served(kind).is_some() {
            return Ok(());
        }
        // The leader has installed the definition, or waits for it as well.
        self.cx.shared.cluster.refresh_discovery();
        let message = format!("the cluster does not serve {kind} yet");
        Err(Stage::Serving.failure(PluginReason::ParentNotServed, message, Retry::Backoff))
    }

    /// Reserves parent kinds for a plugin's passes, unless another plugin has one of them.
    fn take_kinds(&self, name: &PluginName, kinds: BTreeSet<GroupKind>) -> bool {
        let mut taken = self.taken.lock();
        let is_free = |kind| !self.is_file_kind(kind) && !taken.contains_key(kind);
        if !kinds.iter().all(is_free) {
            return false;
        }
        taken.extend(kinds.into_iter().map(|kind| (kind, name.clone())));
        true
    }

    fn is_file_kind(&self, kind: &GroupKind) -> bool {
        self.cx.files.values().any(|kinds| kinds.contains(kind))
    }

    /// Ends a plugin's passes.
    async fn stop(&self, name: &PluginName, state: &mut Followed) {
        if let Some(mut active) = state.active.take() {
            active.drain().await;
            info!(plugin = %name, "stopped the plugin as its leader did");
        }
        // Only after the passes.
        self.taken.lock().retain(|_, holder| holder != name);
    }

    /// Removes the plugin's finalizer from parents of these kinds in this host's shards. Returns true if none has it.
    async fn release(
        &self,
        name: &PluginName,
        kinds: &BTreeSet<Gvk>,
        state: &mut Followed,
    ) -> bool {
        let shared = &self.cx.shared;
        let (_, remaining) = state
            .releasing
            .release(shared, name, kinds, ReleaseScope::All)
            .await;
        remaining.is_empty()
    }

    /// Stops a Plugin that is gone, or not selected any more. Returns the state while parents that got the plugin's
    /// finalizer from this host after the leader's last look still have it.
    async fn forget(&self, id: &ObjectId, state: Option<Followed>) -> Option<Followed> {
        let (Some(mut state), Ok(name)) = (state, PluginName::new(&id.name)) else {
            return None;
        };
        // A running load states needs, so it ends before they are removed.
        if let Some(loading) = state.loading.take() {
            loading.cancel().await;
        }
        self.cx.loader.forget(id, None);
        self.stop(&name, &mut state).await;
        if self.cx.selector.is_some() {
            // Perhaps another host serves it now.
            return None;
        }
        let kinds = state.finalizing.clone();
        let is_released = self.release(&name, &kinds, &mut state).await;
        (!is_released).then_some(state)
    }
}

/// Returns the next pass after parents were released, or not all of them.
const fn after_release(is_released: bool) -> Next {
    Next::RequeueAfter(if is_released {
        WAITING_RECHECK
    } else {
        RECHECK
    })
}

/// Returns the revision that the leader serves, if a host with this key has published one.
fn published(plugin: &Object, key: &HashKey) -> Option<PastRevision> {
    History::unsealed(&stored_status(plugin), &plugin.uid, key).active()
}

/// Returns the reason in the leader's condition Serving, if that is False for the current spec.
fn why_not_served(plugin: &Object) -> Option<String> {
    let status = status_of(plugin);
    let serving = status
        .conditions
        .iter()
        .find(|condition| condition.type_ == Stage::Serving.to_string())?;
    let is_current = status.observed_generation == plugin.generation;
    // Another plugin's passes report on these parents.
    let taken: &str = PluginReason::ParentTaken.as_ref();
    let is_other = serving.reason == taken;
    (is_current && serving.status == "False" && !is_other).then(|| serving.reason.clone())
}

impl Work for Follower {
    async fn triggers(&self) -> Vec<Triggered> {
        controller::triggers(&self.registration).await
    }

    async fn pass(&self, id: ObjectId, _: Attempt) -> Next {
        let state = self.states.lock().remove(&id);
        let plugin = match observe(&self.registration, &id).await {
            Ok(plugin) => plugin,
            Err(next) => {
                let state = match next {
                    Next::Forget => self.forget(&id, state).await,
                    _ => state,
                };
                let Some(state) = state else {
                    return next;
                };
                self.states.lock().insert(id, state);
                return match next {
                    Next::Forget => Next::RequeueAfter(RECHECK),
                    next => next,
                };
            }
        };
        let mut state = match state {
            Some(state) if state.uid.as_ref() == Some(&plugin.uid) => state,
            // The Plugin was deleted and recreated between two passes.
            other => {
                self.forget(&id, other).await;
                Followed {
                    uid: Some(plugin.uid.clone()),
                    ..Followed::default()
                }
            }
        };
        self.cx.loader.need(&id, stored_needs(&plugin));
        let next = match self.follow(&plugin, &mut state).await {
            Ok(next) => {
                state.failure = None;
                next
            }
            Err(failure) => {
                let StageFailure { stage, message, .. } = failure;
                if state.failure.as_ref() != Some(&message) {
                    warn!(plugin = %id.name, ?stage, error = message, "failed to serve the plugin as its leader does, retrying until it is");
                }
                state.failure = Some(message);
                Next::Backoff
            }
        };
        let is_file = self.cx.files.keys().any(|name| *id.name == *name.as_str());
        let due = if plugin.is_deleting() || is_file {
            None
        } else {
            self.report_unserved(&plugin, &mut state).await
        };
        self.states.lock().insert(id, state);
        let until = |due: Instant| due.saturating_duration_since(Instant::now());
        match (next, due) {
            (Next::UntilChanged, Some(due)) => Next::RequeueAfter(until(due)),
            (Next::RequeueAfter(wait), Some(due)) => Next::RequeueAfter(wait.min(until(due))),
            (next, _) => next,
        }
    }
}
