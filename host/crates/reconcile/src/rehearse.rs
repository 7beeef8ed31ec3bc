//! What a revision would do to a parent if it served: a pass up to its plan, of which nothing is left behind.
//!
//! Who is rehearsed before a swap, and what follows from it, is not decided here.

use std::collections::VecDeque;

use innkeeper_cluster::{Observation, Observed, PassReads, Recording, Registration};
use innkeeper_model::{FaultKind, HashKey, ObjectId, Operation, Outcome, Phase, error_chain};
use innkeeper_plan::{self as plan, PassEntry, Plan};
use innkeeper_sandbox::{CallReport, Job, LogLine};
use tracing::{Instrument, debug, debug_span};

use super::{
    Answer, Reconciler, Serving, entry::named, guest::called, interest, selection::Choice,
};

/// A revision that is tried out while another one serves.
///
/// What it needs to see is watched for as long as this lives, beside what serves and without holding that up.
pub struct Candidate {
    serving: Serving,
    registration: Registration,
}

impl Candidate {
    /// The revision with what it may do and use.
    pub fn serving(&self) -> &Serving {
        &self.serving
    }
}

/// What a pass of a candidate would come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rehearsal {
    /// The answer would be acted on.
    Planned(Changes),
    /// The guest would break down or break a limit, or its answer would be refused.
    Refused {
        /// The reason, as in the condition `Synced`.
        reason: &'static str,
        /// What happened.
        message: String,
    },
    /// The guest would say that it cannot answer.
    Fault {
        /// What kind of failure.
        kind: FaultKind,
        /// What it said.
        message: String,
    },
    /// It cannot be told yet: try again later.
    Parked {
        /// What it waits for.
        waiting: String,
    },
    /// The guest would not be called: the parent is gone, paused, not selected, or leaving without it.
    Idle,
}

/// What would be written to children; status and finalizer are not counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// How many would be created.
    pub creates: usize,
    /// How many would be changed.
    pub updates: usize,
    /// Which would be deleted.
    pub deletes: Vec<ObjectId>,
}

impl Changes {
    fn of(plan: &Plan) -> Self {
        let mut changes = Self::default();
        for operation in &plan.operations {
            match operation {
                Operation::Create { .. } => changes.creates += 1,
                Operation::Update { .. } | Operation::Transfer { .. } => changes.updates += 1,
                Operation::Prune { id, .. } => changes.deletes.push(id.clone()),
                Operation::AddFinalizer | Operation::RemoveFinalizer => {}
            }
        }
        changes
    }
}

impl Reconciler {
    /// Starts to watch what a candidate needs.
    pub fn candidate(&self, serving: Serving) -> Candidate {
        let once_made = self.shared.inventory.of(&self.name);
        let interest = interest::interest(&self.name, &self.parent, &serving, [], &once_made);
        Candidate {
            registration: self.shared.cluster.register(interest),
            serving,
        }
    }

    /// Runs a pass of a candidate up to its plan for each of these parents, and says what it would come to.
    ///
    /// Nothing is written, no condition changes, nothing stays subscribed to, and no counter of the plugin moves; what
    /// the guest logs is logged as debug.
    /// Many parents at once cost less than one after another: a thread for guests is handed over once for all of them.
    pub async fn rehearse(
        &self,
        candidate: &Candidate,
        parents: Vec<ObjectId>,
    ) -> Vec<(ObjectId, Rehearsal)> {
        let mut rehearsals = Vec::with_capacity(parents.len());
        let (mut jobs, mut entered) = (VecDeque::new(), VecDeque::new());
        for parent in parents {
            let span = debug_span!("rehearsal", plugin = %self.name, %parent);
            let rehearsed = self.enter_rehearsal(candidate, &parent);
            match rehearsed.instrument(span.clone()).await {
                Ok(scene) => {
                    jobs.push_back(self.rehearsal_job(candidate, &scene));
                    entered.push_back((parent, scene, span));
                }
                Err(rehearsal) => rehearsals.push((parent, rehearsal)),
            }
        }
        while !jobs.is_empty() {
            let plugin = candidate.serving.plugin.clone();
            let turn = match self.shared.pool.rehearse(plugin, jobs).await {
                Ok(turn) => turn,
                Err(error) => {
                    let why = error_chain(&error).to_string();
                    let rest = entered.drain(..);
                    rehearsals.extend(rest.map(|(parent, ..)| (parent, parked(&why))));
                    break;
                }
            };
            // Another group may wait for the thread: it gets that before anything is made of what this one came to.
            tokio::task::yield_now().await;
            let ran = entered.drain(..turn.called.len());
            for ((parent, scene, span), (report, reads)) in ran.zip(turn.called) {
                let _entered = span.entered();
                let rehearsal = self.conclude(candidate, &scene, report, reads.into_recording());
                rehearsals.push((parent, rehearsal));
            }
            jobs = turn.left;
        }
        rehearsals
    }

    /// What the guest is to be called with; otherwise why not.
    async fn enter_rehearsal(
        &self,
        candidate: &Candidate,
        parent: &ObjectId,
    ) -> Result<Scene, Rehearsal> {
        let Candidate {
            serving,
            registration,
        } = candidate;
        // What the cache does not show yet would seem to be missing.
        if self.registration.is_behind(parent) {
            return Err(parked("the host's own last writes are not seen yet"));
        }
        let observation = match registration.observe(parent).await {
            Observed::Ready(observation) => observation,
            Observed::Gone => return Err(Rehearsal::Idle),
            Observed::NotReady { waiting, .. } => return Err(parked(&named(&waiting))),
            // Nobody writes for a candidate.
            Observed::Behind { .. } => return Err(parked("writes are not seen yet")),
        };
        let (choice, _) = Self::choose(serving, registration, &observation.parent);
        match choice {
            Choice::Selected => {}
            Choice::NotSelected(_) => {
                registration.commit(parent, &Recording::default());
                return Err(Rehearsal::Idle);
            }
            Choice::NotSeen => {
                return Err(parked("the namespace of the parent is not seen yet"));
            }
            Choice::Parked(kind) => return Err(parked(&kind.to_string())),
        }
        let manifest = serving.plugin.manifest();
        let PassEntry::Pass(phase) = plan::enter(&observation.parent, &self.name, manifest) else {
            return Err(Rehearsal::Idle);
        };
        let hash_key = self.shared.hash_key.get();
        Ok(Scene {
            observation,
            phase,
            hash_key: hash_key.ok_or_else(|| parked("the cluster's hash key is missing"))?,
        })
    }

    fn rehearsal_job(&self, candidate: &Candidate, scene: &Scene) -> Job<PassReads> {
        let Candidate {
            serving,
            registration,
        } = candidate;
        let Scene {
            observation, phase, ..
        } = scene;
        let reads = registration.reads(&observation.parent, &serving.reads);
        self.job(serving, observation, *phase, reads)
    }

    /// What a pass would come to after its call.
    fn conclude(
        &self,
        candidate: &Candidate,
        scene: &Scene,
        report: CallReport,
        recording: Recording,
    ) -> Rehearsal {
        let Candidate {
            serving,
            registration,
        } = candidate;
        let Scene {
            observation,
            phase,
            hash_key,
        } = scene;
        let (parent, phase) = (&observation.parent, *phase);
        registration.commit(&parent.id(), &Recording::default());
        for LogLine { level, message } in &report.log {
            debug!(target: "guest", ?level, "{message}");
        }
        let end = called(report, recording).end;
        let outcome = match self.check(serving, &parent.id(), phase, end) {
            Answer::Outcome(outcome) => outcome.into_inner(),
            Answer::Fault(fault) => {
                let fault = fault.into_inner();
                return Rehearsal::Fault {
                    kind: fault.kind,
                    message: fault.message,
                };
            }
            Answer::Refused { reason, message } => return Rehearsal::Refused { reason, message },
            Answer::Parked(kind) => return parked(&kind.to_string()),
        };
        if matches!(outcome, Outcome::Keep(_)) {
            return Rehearsal::Planned(Changes::default());
        }
        let manager = serving.manager(&self.name);
        let context = self.context(serving, &manager, parent, phase, hash_key);
        let plan = plan::plan(&context, &observation.children, &outcome);
        Rehearsal::Planned(Changes::of(&plan))
    }
}

/// What a guest is called with in a rehearsal, and what its answer is held against.
struct Scene {
    observation: Observation,
    phase: Phase,
    hash_key: HashKey,
}

fn parked(waiting: &str) -> Rehearsal {
    Rehearsal::Parked {
        waiting: waiting.to_owned(),
    }
}
