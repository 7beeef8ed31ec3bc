//! Serves what the Plugin resources of a cluster declare: one pass for one resource.
//!
//! A Plugin is to this controller what a parent is to every other one: its watch, its queue, its back-off and the care
//! for own writes are the same. What comes next is decided by [`lifecycle`].
//! It runs no passes of plugins: whoever owns the tasks of the process gets what to run over a bounded channel.
//!
//! A Plugin that goes leaves all children and all definitions as they are.

mod accounts;
mod leave;
mod load;
mod rehearse;
mod report;
mod resume;
mod rivalry;
mod serve;
mod warm;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Once},
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBackoff};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::load::Component;
pub use self::load::Loader;
use self::serve::Running;
pub use self::serve::Start;
pub use self::warm::{OnceMade, Warm, Warmer};
use super::{
    finalizers::Finalizers,
    lifecycle::{
        self, Beginning, History, Judgement, Problem, Revision, Situation, Stage, Step,
        loads_the_same,
    },
    resource::{self, Candidate, Declared, Plugin as Resource},
    rivals::{Rivals, Seniority},
};
use crate::{
    apply::Target,
    cluster::{Cluster, Interest, Observed, Registration},
    controller::{self, Work, queue::Class},
    model::{
        Digest, GroupKind, Gvk, Object, ObjectId, PluginName, Resource as Served, Retry, Scope,
        error_chain,
    },
    plugin::Plugin,
    reconcile::{InventoryError, Next, Shared, Turn},
};

/// How often the numbers of parents and faults are looked at.
const REFRESHED_EVERY: Duration = Duration::from_secs(10);

/// How often is looked at finalizers that are being taken off.
const LEAVING_LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

/// How often a pass that cannot see its Plugin looks again without having been told.
const WAITING_RECHECK: Duration = Duration::from_secs(30);

/// How long to wait after a step that failed, first and at most.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_mins(5);

/// The reason where another plugin serves the same kind of parents.
const PARENT_TAKEN: &str = "ParentTaken";

/// What the manager works with.
pub struct Parts {
    /// What all plugins share.
    pub shared: Arc<Shared>,
    /// What loads what they declare.
    pub loader: Arc<Loader>,
    /// The plugins that the same host serves from files, with their kinds of parents.
    pub files: BTreeMap<PluginName, BTreeSet<GroupKind>>,
    /// Which Plugins are this host's, as a label selector; none: all.
    pub selector: Option<String>,
    /// Takes plugins whose passes are to run.
    pub starts: mpsc::Sender<Start>,
    /// Ends the passes of all plugins.
    pub stop: CancellationToken,
}

/// Serves what Plugins declare.
pub struct Manager {
    parts: Parts,
    /// The host's own, which stands on what it holds.
    name: PluginName,
    registration: Registration,
    /// What is known of each Plugin, but for those that have their pass.
    known: Mutex<BTreeMap<ObjectId, Known>>,
    /// Who serves which kind of parents.
    rivals: Mutex<Rivals>,
    /// Told when somebody is to look at that again.
    contest: Notify,
    /// Set once the Plugins that there are at the start are known to [`Rivals`].
    expected: Once,
    /// The Plugins with a revision whose first passes are being watched.
    on_trial: Mutex<BTreeSet<ObjectId>>,
    /// The bytes that each Plugin may come back to.
    kept: Mutex<BTreeMap<ObjectId, BTreeSet<Digest>>>,
}

/// What is known of one Plugin.
#[derive(Default)]
struct Known {
    /// When it was made.
    created: Timestamp,
    attempt: Option<Attempt>,
    running: Option<Running>,
    /// Revisions that were to serve and do not.
    refusals: BTreeMap<Digest, Refusal>,
    /// Revisions that were to serve again and cannot.
    lost: BTreeMap<Digest, Refusal>,
    /// The revisions that have served.
    history: History,
    /// The generation of the Plugin's spec.
    generation: Option<i64>,
    /// When the change of it was seen that its pass is for; none if only its time has come.
    change: Option<Instant>,
    /// The Plugin as it is written to.
    target: Option<Target>,
    /// Parents that lose the plugin's finalizer.
    finalizers: Finalizers,
    /// Whether some of them still have it.
    is_leaving: bool,
    /// What the one that was loaded would do.
    candidate: Option<Candidate>,
    delays: Option<ExponentialBackoff>,
}

/// An attempt to load what was declared.
struct Attempt {
    of: Declared,
    component: Option<Component>,
    ended: Result<Arc<Plugin>, Problem>,
    at: Instant,
    /// When to try again; none: when something else is declared, or the source is to be asked again.
    retry_at: Option<Instant>,
}

impl Attempt {
    /// When to try, or to ask the source, again.
    fn due(&self) -> Option<Instant> {
        let pull_at = self.of.pull_every.map(|every| self.at + every);
        self.retry_at.or(pull_at)
    }

    fn is_due(&self) -> bool {
        self.due().is_some_and(|due| due <= Instant::now())
    }
}

/// Why a revision does not serve, or not under the charter that is declared.
struct Refusal {
    of: Declared,
    problem: Problem,
    due: Option<Instant>,
}

impl Refusal {
    fn is_for_a_rival(&self) -> bool {
        self.problem.reason == PARENT_TAKEN
    }

    fn is_due(&self) -> bool {
        self.due.is_some_and(|due| due <= Instant::now())
    }
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
            // No two files want the same, and nobody else is there yet.
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
        let declared = match declared(object) {
            Ok((declared, created)) => {
                known.created = created;
                declared
            }
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

    /// Does what is to be done next until nothing is.
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

    /// Learns what the plugin made while it was another host's: where Plugins are shared out, one may come from there.
    async fn learn(&self, id: &ObjectId) -> Result<(), InventoryError> {
        let (Some(_), Ok(name)) = (&self.parts.selector, PluginName::new(&id.name)) else {
            return Ok(());
        };
        let inventory = &self.parts.shared.inventory;
        inventory.refresh(self.cluster(), &name).await
    }

    /// Ends what a Plugin that is gone had served; its children stay.
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
            // What serves goes on.
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

/// How a Plugin is addressed.
fn resource_of(object: &Object) -> Served {
    Served {
        kind: object.kind.clone(),
        plural: "plugins".into(),
        scope: Scope::Cluster,
    }
}

/// What a Plugin declares, and when it was made.
fn declared(object: &Object) -> Result<(Declared, Timestamp), Problem> {
    let resource = Resource::read(&object.json);
    let declared = resource.and_then(|resource| Ok((resource.declared()?, resource.created())));
    declared.map_err(|error| Problem {
        stage: Stage::Fetched,
        reason: "InvalidSpec".to_owned(),
        message: error_chain(&error).to_string(),
    })
}

impl Known {
    fn situation<'a>(&'a self, declared: &'a Declared) -> Situation<'a> {
        let revision = |plugin: &Plugin| Revision {
            digest: plugin.revision().clone(),
            is_granted: declared.charter.assess(plugin.manifest()).serves(),
        };
        let attempt = self.attempt.as_ref();
        Situation {
            declared,
            attempt: attempt.map(|attempt| lifecycle::Attempt {
                of: &attempt.of,
                loaded: attempt
                    .ended
                    .as_ref()
                    .ok()
                    .filter(|plugin| !self.is_refused(plugin.revision()))
                    .map(|plugin| revision(plugin)),
                is_due: attempt.is_due(),
                is_rolled_back: self.is_rolled_back(attempt),
            }),
            served: self.running.as_ref().map(|running| lifecycle::Served {
                revision: revision(&running.plugin),
                charter: &running.charter,
                trial: self.judgement(),
            }),
            last: self.last(),
            good: self.good(),
        }
    }

    /// A revision that was loaded or serves.
    fn plugin(&self, revision: &Digest) -> Option<Arc<Plugin>> {
        let loaded = self.attempt.as_ref();
        let loaded = loaded.and_then(|attempt| attempt.ended.as_ref().ok());
        let serves = self.running.as_ref().map(|running| &running.plugin);
        let mut plugins = loaded.into_iter().chain(serves);
        plugins
            .find(|plugin| plugin.revision() == revision)
            .cloned()
    }

    fn is_refused(&self, revision: &Digest) -> bool {
        self.refusals.contains_key(revision)
    }

    fn refuse(&mut self, revision: Digest, declared: &Declared, failed: Failed) {
        let Failed { problem, retry } = failed;
        let due = self.due(retry);
        let of = declared.clone();
        self.refusals.insert(revision, Refusal { of, problem, due });
    }

    /// Forgets refusals whose time is over, or that something else was declared for.
    fn try_again(&mut self, declared: &Declared, has_turn: bool) {
        for refusals in [&mut self.refusals, &mut self.lost] {
            refusals.retain(|_, refusal| {
                let is_over = refusal.is_due() || has_turn && refusal.is_for_a_rival();
                refusal.of == *declared && !is_over
            });
        }
    }

    /// Why what is declared does not serve.
    fn problem(&self, declared: &Declared) -> Option<Problem> {
        let attempt = self.attempt.as_ref()?;
        let plugin = match &attempt.ended {
            Ok(plugin) => plugin,
            Err(problem) => return Some(problem.clone()),
        };
        let assessment = declared.charter.assess(plugin.manifest());
        if !assessment.serves() {
            return Some(Problem {
                stage: Stage::Granted,
                reason: "NotGranted".to_owned(),
                message: resource::lines(&assessment).unwrap_or_default(),
            });
        }
        let why = self.history.rolled_back(plugin.revision(), self.generation);
        if let Some(message) = why {
            return Some(Problem {
                stage: Stage::Serving,
                reason: "RolledBack".to_owned(),
                message,
            });
        }
        let refusals = self.refusals.get(plugin.revision()).into_iter();
        let mut refusals = refusals.chain(self.refusals.values());
        refusals.next().map(|refusal| refusal.problem.clone())
    }

    /// When what failed is to be tried again.
    fn due(&mut self, retry: Retry) -> Option<Instant> {
        let mut delay = || {
            let delays = self.delays.get_or_insert_with(delays);
            delays.next().unwrap_or(BACKOFF_MAX)
        };
        let wait = match retry {
            Retry::Never | Retry::OnChange => return None,
            Retry::Backoff => delay(),
            Retry::At(least) => delay().max(least),
        };
        Some(Instant::now() + wait)
    }

    /// The next time at which there is something to do although nothing has changed.
    fn due_next(&self) -> Option<Instant> {
        let attempt = self.attempt.as_ref().and_then(Attempt::due);
        let refusals = self.refusals.values().chain(self.lost.values());
        let refusal = refusals.filter_map(|one| one.due).min();
        let refresh = self.running.as_ref();
        let refresh = refresh.map(|_| Instant::now() + REFRESHED_EVERY);
        let leaving = self
            .is_leaving
            .then(|| Instant::now() + LEAVING_LOOKED_AT_EVERY);
        let dues = [attempt, refusal, refresh, leaving];
        dues.into_iter().flatten().min()
    }
}

fn delays() -> ExponentialBackoff {
    backon::ExponentialBuilder::new()
        .with_min_delay(BACKOFF_MIN)
        .with_max_delay(BACKOFF_MAX)
        .without_max_times()
        .build()
}

#[cfg(test)]
mod tests;
