//! What a revision would do to a parent if it served: a pass up to its plan, of which nothing is left behind.
//!
//! Who is rehearsed before a swap, and what follows from it, is not decided here.

use tracing::{Instrument, debug_span};

use super::{
    Answer, Reconciler, Serving, entry::named, guest::Purpose, interest, selection::Choice,
};
use crate::{
    cluster::{Observed, Recording, Registration},
    model::{FaultKind, ObjectId, Operation, Outcome, error_chain},
    plan::{self, Entry, Plan},
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

    /// Runs a pass of a candidate up to its plan.
    ///
    /// Nothing is written, no condition changes, nothing stays subscribed to, and no counter of the plugin moves; what
    /// the guest logs is logged as debug.
    pub async fn rehearse(&self, candidate: &Candidate, parent: &ObjectId) -> Rehearsal {
        let span = debug_span!("rehearsal", plugin = %self.name, %parent);
        self.play(candidate, parent).instrument(span).await
    }

    async fn play(&self, candidate: &Candidate, parent: &ObjectId) -> Rehearsal {
        let parked = |waiting: &str| Rehearsal::Parked {
            waiting: waiting.to_owned(),
        };
        let Candidate {
            serving,
            registration,
        } = candidate;
        // What the cache does not show yet would seem to be missing.
        if self.registration.is_behind(parent) {
            return parked("the host's own last writes are not seen yet");
        }
        let observation = match registration.observe(parent).await {
            Observed::Ready(observation) => observation,
            Observed::Gone => return Rehearsal::Idle,
            Observed::NotReady { waiting, .. } => return parked(&named(&waiting)),
            // Nobody writes for a candidate.
            Observed::Behind { .. } => return parked("writes are not seen yet"),
        };
        let (choice, _) = Self::choose(serving, registration, &observation.parent);
        match choice {
            Choice::Selected => {}
            Choice::NotSelected(_) => {
                registration.commit(parent, &Recording::default());
                return Rehearsal::Idle;
            }
            Choice::NotSeen => return parked("the namespace of the parent is not seen yet"),
            Choice::Parked(kind) => return parked(&kind.to_string()),
        }
        let manifest = serving.plugin.manifest();
        let Entry::Pass(phase) = plan::enter(&observation.parent, &self.name, manifest) else {
            return Rehearsal::Idle;
        };
        let Some(hash_key) = self.shared.hash_key.get() else {
            return parked("the cluster's hash key is missing");
        };
        let purpose = Purpose::Rehearsal(registration);
        let end = match self.call(serving, &observation, phase, purpose).await {
            Ok(called) => called.end,
            Err(error) => return parked(&error_chain(&error).to_string()),
        };
        let outcome = match self.check(serving, parent, phase, end) {
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
        let context = self.context(serving, &manager, &observation.parent, phase, &hash_key);
        let plan = plan::plan(&context, &observation.children, &outcome);
        Rehearsal::Planned(Changes::of(&plan))
    }
}
