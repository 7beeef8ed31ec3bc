//! Serves the Plugin resources of a cluster: one pass for one resource.
//!
//! This controller treats a Plugin as the other controllers treat a parent: watch, queue, back-off and expectations
//! for own writes are the same. [`lifecycle`](super::lifecycle) decides on the next step.
//! It runs no passes of plugins: the owner of the tasks of the process receives them over a bounded channel.
//!
//! A Plugin that goes leaves all children and all definitions as they are.

mod accounts;
mod known;
mod leave;
mod load;
mod rehearse;
mod report;
mod resume;
mod rivalry;
mod running;
mod serve;
mod warm;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Once},
    time::Duration,
};

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::known::{Attempt, Known, Refusal};
pub use self::load::Loader;
pub use self::serve::Start;
pub use self::warm::{OnceMade, Warm, Warmer};
use innkeeper_apply::Target;
use innkeeper_cluster::{Cluster, Interest, Observed, Registration};
use innkeeper_model::{
    Digest, GroupKind, Gvk, Object, ObjectId, PluginName, Resource as Served, Retry, Scope,
    error_chain,
};
use innkeeper_reconcile::{
    InventoryError, Next, Shared, Turn,
    controller::{self, Work, queue::Class},
};

use super::{
    lifecycle::{Beginning, Judgement, Problem, Stage, Step, loads_the_same},
    resource::{self, Declared, Plugin as Resource},
    rivals::{Rivals, Seniority},
};

/// The interval at which a pass that cannot read its Plugin tries again without a trigger.
const WAITING_RECHECK: Duration = Duration::from_secs(30);

/// The reason where another plugin serves the same kind of parents.
const PARENT_TAKEN: &str = "ParentTaken";

/// The dependencies of the manager.
pub struct Parts {
    /// The state shared by all plugins.
    pub shared: Arc<Shared>,
    /// The loader of declared components.
    pub loader: Arc<Loader>,
    /// The plugins that the same host serves from files, with their kinds of parents.
    pub files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
    /// The label selector for the Plugins of this host; none: all.
    pub selector: Option<String>,
    /// Takes plugins whose passes are to run.
    pub starts: mpsc::Sender<Start>,
    /// Ends the passes of all plugins.
    pub stop: CancellationToken,
}

/// Serves Plugins.
pub struct Manager {
    parts: Parts,
    /// The name of the host, as the watch of Plugins is registered.
    name: PluginName,
    registration: Registration,
    /// The state of each Plugin, except Plugins that have their pass now.
    known: Mutex<BTreeMap<ObjectId, Known>>,
    /// The active plugin for each kind of parents.
    rivals: Mutex<Rivals>,
    /// Notified when a Plugin has to check that again.
    contest: Notify,
    /// Set once the Plugins that there are at the start are known to [`Rivals`].
    expected: Once,
    /// The Plugins with a revision whose first passes are being watched.
    on_trial: Mutex<BTreeSet<ObjectId>>,
    /// The bytes that each Plugin may come back to.
    kept: Mutex<BTreeMap<ObjectId, BTreeSet<Digest>>>,
}

/// A step that failed, and when it may succeed.
#[derive(Clone)]
struct Failed {
    problem: Problem,
    retry: Retry,
}

impl Failed {
    fn new(stage: Stage, reason: &str, message: impl ToString, retry: Retry) -> Self {
        let problem = Problem {
            stage,
            reason: reason.to_owned(),
            message: message.to_string(),
        };
        Self { problem, retry }
    }

    fn of<E: std::error::Error + 'static>(
        stage: Stage,
        reason: &str,
        error: &E,
        retry: Retry,
    ) -> Self {
        Self::new(stage, reason, error_chain(error), retry)
    }
}

/// The kind of the resource.
pub fn kind() -> Gvk {
    Gvk::new(resource::GROUP, "v1alpha1", "Plugin")
}

/// The Plugins of a host, which goes by this name.
fn interest(name: PluginName, selector: Option<String>) -> Interest {
    Interest {
        plugin: name,
        parent: kind(),
        children: Vec::new(),
        reads: Vec::new(),
        selector,
        field_managers: BTreeSet::new(),
    }
}

impl Manager {
    /// Starts to watch Plugins; without their definition it waits for that.
    pub fn new(parts: Parts, name: PluginName) -> Self {
        let interest = interest(name.clone(), parts.selector.clone());
        let mut rivals = Rivals::default();
        for (name, kinds) in &parts.files {
            // No two files want the same kind, and no Plugin is known yet.
            drop(rivals.ask(&Seniority::File(name.clone()), kinds));
        }
        Self {
            registration: parts.shared.cluster.register(interest),
            parts,
            name,
            known: Mutex::default(),
            rivals: Mutex::new(rivals),
            contest: Notify::new(),
            expected: Once::new(),
            on_trial: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    fn cluster(&self) -> &Cluster {
        &self.parts.shared.cluster
    }

    /// Brings a Plugin as far as it gets, and says where it stands.
    async fn tend(&self, object: &Object, known: &mut Known) -> Next {
        known.generation = object.generation;
        known.target = Some(Target::new(object, &resource_of(object)));
        if let Some((name, problem)) = self.name_taken(object) {
            if object.is_deleting() {
                // Its finalizers are the file's.
                return self.let_go(known, name).await;
            }
            return self.report(object, known, None, Some(&problem)).await;
        }
        if object.is_deleting() {
            return self.leave(object, known).await;
        }
        let declared = match known.declared(object) {
            Ok(declared) => declared,
            Err(problem) => return self.report(object, known, None, Some(&problem)).await,
        };
        self.give_way(&declared.name, known).await;
        if let Some(attempt) = &mut known.attempt
            && loads_the_same(&attempt.of, &declared)
        {
            attempt.of.pull_every = declared.pull_every;
        }
        let has_turn = self.rivals.lock().has_turn(&declared.name);
        known.try_again(&declared, has_turn);
        self.take_steps(&declared, known).await;
        if known.refusals.is_empty() {
            known.candidate = None;
        }
        if known.judgement() == Some(Judgement::Good) {
            info!(plugin = %declared.name, "the first passes of a revision went well");
            known.history.pass();
        }
        self.leave_behind(known, &declared.name).await;
        let problem = known.problem(&declared);
        self.report(object, known, Some(&declared), problem.as_ref())
            .await
    }

    /// Takes steps until none is due.
    async fn take_steps(&self, declared: &Declared, known: &mut Known) {
        loop {
            let step = known.situation(declared).next();
            debug!(?step, "next step");
            match step {
                Step::Load => {
                    self.load(declared, known).await;
                    known.find_again();
                }
                Step::Serve(revision) | Step::Swap(revision) => {
                    let plugin = known.plugin(&revision);
                    let Some(plugin) = plugin.filter(|_| !known.is_refused(&revision)) else {
                        break;
                    };
                    let why = Beginning::Declared;
                    if let Err(failed) = self.serve(declared, known, plugin, why).await {
                        known.refuse(revision, declared, failed);
                    }
                }
                Step::Resume(revision) => {
                    self.come_back(declared, known, &revision, Beginning::Resumed)
                        .await;
                }
                Step::RollBack(revision) => {
                    let why = known.faults().unwrap_or_default();
                    let why = Beginning::RolledBack { why };
                    self.come_back(declared, known, &revision, why).await;
                }
                Step::Stop => {
                    info!(plugin = %declared.name, "the grants of a plugin do not suffice any more, it stops");
                    self.stop(&declared.name, known).await;
                }
                Step::Keep => {
                    known.refusals.clear();
                    break;
                }
                Step::Wait => break,
            }
        }
    }

    /// Learns the kinds that the plugin created under another host: with a selector, Plugins move between hosts.
    async fn learn(&self, id: &ObjectId) -> Result<(), InventoryError> {
        let (Some(_), Ok(name)) = (&self.parts.selector, PluginName::new(&id.name)) else {
            return Ok(());
        };
        let inventory = &self.parts.shared.inventory;
        inventory.refresh(self.cluster(), &name).await
    }

    /// Ends the passes of a Plugin that is gone; its children stay.
    async fn forget(&self, id: &ObjectId) {
        let known = self.known.lock().remove(id);
        let name = PluginName::new(&id.name);
        let is_file = |name: &PluginName| self.parts.files.contains_key(name);
        if name.as_ref().is_ok_and(is_file) {
            return;
        }
        self.parts.shared.metrics.plugin_gone(&id.name);
        if let Ok(name) = name {
            if let Some(mut known) = known {
                info!(plugin = %name, "the Plugin is gone, or not chosen any more, its children stay");
                self.stop(&name, &mut known).await;
            }
            self.among_rivals(|rivals| rivals.withdraw(&name));
        }
        self.on_trial.lock().remove(id);
        self.keep_only(id, BTreeSet::new());
    }
}

impl Work for Manager {
    async fn triggers(&self) -> Vec<(ObjectId, Class)> {
        tokio::select! {
            triggers = controller::triggers(&self.registration) => triggers,
            () = self.parts.shared.trials.notified() => {
                let on_trial = self.on_trial.lock();
                on_trial.iter().map(|id| (id.clone(), Class::Swapped)).collect()
            }
            () = self.contest.notified() => {
                let affected = self.rivals.lock().take_affected();
                affected.iter().map(|name| (id_of(name), Class::Swapped)).collect()
            }
        }
    }

    async fn pass(&self, id: ObjectId, turn: Turn) -> Next {
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
            Observed::NotReady { .. } => return Next::Parked(WAITING_RECHECK),
        };
        self.expected.call_once(|| self.expect_all());
        let known = self.known.lock().remove(&id);
        if known.is_none()
            && let Err(error) = self.learn(&id).await
        {
            warn!(plugin = %id.name, error = %error_chain(&error), "failed to learn what the plugin made");
            return Next::Backoff;
        }
        let mut known = known.unwrap_or_else(|| Known::of(&observation.parent));
        known.change = turn.changed;
        let next = self.tend(&observation.parent, &mut known).await;
        self.withdraw_unless_it_waits(&id, &known);
        self.look_after(&id, &known);
        self.known.lock().insert(id, known);
        next
    }
}

fn id_of(name: &PluginName) -> ObjectId {
    ObjectId::new(kind().group_kind(), None, name.as_str())
}

/// Returns the resource of a Plugin.
fn resource_of(object: &Object) -> Served {
    Served {
        kind: object.kind.clone(),
        plural: "plugins".into(),
        scope: Scope::Cluster,
    }
}

/// Returns the declaration of a Plugin, and its creation time.
fn declared(object: &Object) -> Result<(Declared, Timestamp), Problem> {
    let resource = Resource::read(&object.json);
    let declared = resource.and_then(|resource| Ok((resource.declared()?, resource.created())));
    declared.map_err(|error| Problem {
        stage: Stage::Fetched,
        reason: "InvalidSpec".to_owned(),
        message: error_chain(&error).to_string(),
    })
}

#[cfg(test)]
mod tests;
