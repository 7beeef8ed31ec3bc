//! The dry run of a candidate revision: a pass up to its plan, without any trace in the cluster or in the plugin's state.
//!
//! The Plugin controller decides which revisions need a dry run, and judges the results.

mod outcome;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::stream::{self, Stream, StreamExt as _};
use innkeeper_cluster::{Recording, Registration, Waiting};
use innkeeper_model::{Object, ObjectId, Outcome, PluginName, error_chain};
use innkeeper_plan::{self as plan, Plan, StatusWrite};
use innkeeper_policy::Checked as Accepted;
use innkeeper_sandbox::{CallReport, LogLine};
use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span, debug, error_span};

pub use self::outcome::{ParentOutcome, PlannedChanges};
use crate::{
    pass::context::Context,
    pass::skip::{Stop, named},
    pass::{Entered, Pass, Planned, Step, Stopped},
    revision::Serving,
    revision::epoch::Epoch,
};

/// The number of parents per hand-over to a guest thread. One hand-over for each parent took longer than the calls: a
/// swap with 1,000 live parents took 204 ms, and takes 79 ms with groups (`cargo bench --bench swap -- swaps`).
const GROUP_SIZE: usize = 16;

/// The number of concurrent groups: while one is called, the results of the other are evaluated.
const GROUPS: usize = 2;

/// The interval between checks of lists that are not complete yet.
const READ_POLL_PERIOD: Duration = Duration::from_millis(250);

/// A revision that is tried while another one is active.
///
/// The kinds that it reads are watched while this value lives; the active revision does not wait for them.
pub struct Candidate {
    epoch: Arc<Epoch>,
    registration: Registration,
}

impl Candidate {
    pub(crate) fn new(serving: Serving, registration: Registration) -> Self {
        Self {
            epoch: Epoch::of_candidate(serving),
            registration,
        }
    }

    /// Returns the revision with its grants and limits.
    pub fn serving(&self) -> &Serving {
        &self.epoch.serving
    }
}

/// The result of a dry run for one parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRunOutcome {
    /// The host would accept the answer and make these changes.
    Planned(Box<Draft>),
    /// The guest would fail, break a limit or return an error, or the host would reject its answer.
    Refused {
        /// The reason, as in the condition `Synced`.
        reason: String,
        /// The failure.
        message: String,
    },
    /// The result is not known yet; the caller tries again later.
    Parked {
        /// The missing objects or kinds.
        waiting: String,
    },
    /// The host would not call the guest: the parent is gone, paused, not selected, or deleted without the guest.
    Idle,
}

/// Returns the differences of a plan, with its status write, as lines.
pub type Differences = fn(&Draft, Option<&StatusWrite>) -> Vec<String>;

impl DryRunOutcome {
    /// Returns true if the plan may be without a part that the dry run of another revision has, too: if there is a change
    /// or a fault.
    pub fn is_comparable(&self, plugin: &PluginName, now: Timestamp) -> bool {
        match self {
            Self::Planned(draft) => {
                !draft.plan.operations.is_empty() || draft.status(plugin, now).is_some()
            }
            Self::Refused { .. } => true,
            Self::Parked { .. } | Self::Idle => false,
        }
    }

    /// Returns the plan of a parent, without the part that the dry run of another revision has, too; or the missing objects
    /// that it waits for.
    pub fn plan(
        self,
        plugin: &PluginName,
        now: Timestamp,
        known: Option<Self>,
        differences: Option<Differences>,
    ) -> Result<ParentOutcome, String> {
        let fails = matches!(known, Some(Self::Refused { .. }));
        Ok(match self {
            Self::Planned(draft) => {
                let known = match known {
                    Some(Self::Planned(known)) => Some(known),
                    Some(Self::Parked { waiting }) => return Err(waiting),
                    _ => None,
                };
                let planned = draft.changes(plugin, now, known.as_deref(), differences);
                ParentOutcome::Planned(planned)
            }
            Self::Refused { reason, message } => ParentOutcome::Fault {
                reason,
                message,
                known: fails,
            },
            Self::Idle => ParentOutcome::Skipped,
            Self::Parked { waiting } => return Err(waiting),
        })
    }
}

/// The plan of a dry run, with the objects that it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The parent.
    pub parent: Object,
    /// The children as observed.
    pub observed: Vec<Object>,
    /// The field manager of the children.
    pub manager: Arc<str>,
    /// The plan.
    pub plan: Plan,
    outcome: Accepted<Outcome>,
}

impl Draft {
    fn changes(
        mut self,
        plugin: &PluginName,
        now: Timestamp,
        known: Option<&Self>,
        differences: Option<Differences>,
    ) -> PlannedChanges {
        let mut status = self.status(plugin, now);
        if let Some(known) = known {
            self.plan.subtract(&known.plan);
            status = status.filter(|status| known.status(plugin, now).as_ref() != Some(status));
        }
        let operations = self.plan.operations.iter();
        PlannedChanges {
            changes: self.plan.changes(),
            status: status.is_some(),
            operations: operations.map(ToString::to_string).collect(),
            differences: differences
                .map(|differences| differences(&self, status.as_ref()))
                .unwrap_or_default(),
        }
    }

    /// Returns the status write that the guest's report makes necessary.
    fn status(&self, plugin: &PluginName, now: Timestamp) -> Option<StatusWrite> {
        let report = match &*self.outcome {
            Outcome::Desired(desired) => &desired.report,
            Outcome::Keep(report) | Outcome::Finalized(report) => report,
        };
        plan::report_status(plugin, &self.parent, report, now)
    }
}

/// Waits until the parents and the children of a reader are in the cache; returns the first kind that is still missing
/// at the time limit.
///
/// A lasting failure ends the wait as well: the candidate may be the revision without that kind.
pub async fn until_read(registration: &Registration, until: Instant) -> Result<(), Waiting> {
    loop {
        let waiting = registration.waiting();
        let Some(first) = waiting.into_iter().find(|one| !one.why.is_lasting()) else {
            return Ok(());
        };
        if Instant::now() >= until {
            return Err(first);
        }
        sleep(READ_POLL_PERIOD).await;
    }
}

/// Runs a candidate on many parents; again on those that wait for a list, until the time limit.
pub(crate) fn run_all(
    context: &Context,
    candidate: &Candidate,
    parents: Vec<ObjectId>,
    until: Instant,
) -> impl Stream<Item = (ObjectId, DryRunOutcome)> {
    let groups: Vec<_> = parents.chunks(GROUP_SIZE).map(<[_]>::to_vec).collect();
    stream::iter(groups)
        .map(move |group| run_group(context, candidate, group, until))
        .buffer_unordered(GROUPS)
        .flat_map(stream::iter)
}

async fn run_group(
    context: &Context,
    candidate: &Candidate,
    mut parents: Vec<ObjectId>,
    until: Instant,
) -> Vec<(ObjectId, DryRunOutcome)> {
    let mut ended = Vec::with_capacity(parents.len());
    loop {
        let results = run(context, candidate, parents).await;
        parents = Vec::new();
        for (parent, result) in results {
            if matches!(result, DryRunOutcome::Parked { .. }) && Instant::now() < until {
                parents.push(parent);
            } else {
                ended.push((parent, result));
            }
        }
        if parents.is_empty() {
            return ended;
        }
        sleep(READ_POLL_PERIOD).await;
    }
}

/// Runs a pass of a candidate up to its plan for each of these parents.
pub(crate) async fn run(
    context: &Context,
    candidate: &Candidate,
    parents: Vec<ObjectId>,
) -> Vec<(ObjectId, DryRunOutcome)> {
    let mut results = Vec::with_capacity(parents.len());
    let (mut jobs, mut entered) = (VecDeque::new(), VecDeque::new());
    for parent in &parents {
        let span = error_span!("dry_run", plugin = %context.plugin, %parent);
        let pass = enter(context, candidate, parent);
        match pass.instrument(span.clone()).await {
            Ok(pass) => {
                jobs.push_back(pass.job());
                entered.push_back((pass, span));
            }
            Err(stopped) => results.push((parent.clone(), stopped.dry_run())),
        }
    }
    while !jobs.is_empty() {
        let plugin = candidate.serving().plugin.clone();
        let group = match context.shared.pool.dry_run(plugin, jobs).await {
            Ok(group) => group,
            Err(error) => {
                let why = error_chain(&error).to_string();
                results.extend(
                    entered
                        .drain(..)
                        .map(|(pass, _)| (pass.id.clone(), parked(&why))),
                );
                break;
            }
        };
        // Another group may wait for the thread: it gets the thread before this task evaluates its own results.
        tokio::task::yield_now().await;
        let ran = entered.drain(..group.called.len());
        for ((pass, span), (report, reads)) in ran.zip(group.called) {
            let id = pass.id.clone();
            let planned = planned(pass, &span, report, reads.into_recording());
            let result = planned.map_or_else(Pass::<Stopped>::dry_run, Pass::<Planned>::dry_run);
            results.push((id, result));
        }
        jobs = group.left;
    }
    results
}

async fn enter<'a>(
    context: &'a Context,
    candidate: &'a Candidate,
    parent: &'a ObjectId,
) -> Step<'a, Pass<'a, Entered>> {
    let epoch = Arc::clone(&candidate.epoch);
    Pass::observe_as(context, &candidate.registration, epoch, parent)
        .await?
        .enter()
}

fn planned<'a>(
    pass: Pass<'a, Entered>,
    span: &Span,
    report: CallReport,
    recording: Recording,
) -> Step<'a, Pass<'a, Planned>> {
    let _entered = span.enter();
    // The candidate keeps no subscription.
    pass.registration.commit(pass.id, &Recording::default());
    for LogLine { level, message } in &report.log {
        debug!(target: "guest", ?level, "{message}");
    }
    Ok(pass.answered(report, recording, None).check()?.plan())
}

impl Pass<'_, Planned> {
    fn dry_run(self) -> DryRunOutcome {
        let Planned {
            entered,
            outcome,
            observed,
            plan,
            ..
        } = self.state;
        DryRunOutcome::Planned(Box::new(Draft {
            parent: entered.observation.parent,
            manager: entered.manager,
            observed,
            plan,
            outcome,
        }))
    }
}

impl Pass<'_, Stopped> {
    fn dry_run(self: Box<Self>) -> DryRunOutcome {
        let Self {
            registration,
            id,
            state,
            ..
        } = *self;
        // The candidate keeps no subscription: its caller repeats a parked dry run.
        registration.commit(id, &Recording::default());
        match state.reason {
            Stop::Gone
            | Stop::NotSelected { .. }
            // A tenant who fills a namespace does not hold up the revisions of all others.
            | Stop::CacheFull(_)
            | Stop::Ignored
            | Stop::Released
            | Stop::Paused
            // These stop no dry run, which has no earlier passes and ends before the report.
            | Stop::Unchanged(_)
            | Stop::GivenUp(_)
            | Stop::NotReported(_) => DryRunOutcome::Idle,
            Stop::Behind { .. } => parked("the host's own last writes are not seen yet"),
            Stop::NotCached(waiting) => parked(&named(&waiting)),
            Stop::NamespaceNotSeen => parked("the namespace of the parent is not seen yet"),
            Stop::NamespacesNotCached(kind) | Stop::ReadNotCached(kind) => {
                parked(&kind.to_string())
            }
            Stop::HashKeyMissing => parked("the cluster's hash key is missing"),
            Stop::NotCalled => parked("the host failed to call the plugin"),
            Stop::Fault { fault, .. } => {
                let condition = plan::fault_condition(&fault.into_inner());
                DryRunOutcome::Refused {
                    reason: condition.reason,
                    message: condition.message,
                }
            }
            Stop::Refused { reason, message } => DryRunOutcome::Refused {
                reason: reason.to_owned(),
                message,
            },
        }
    }
}

fn parked(waiting: &str) -> DryRunOutcome {
    DryRunOutcome::Parked {
        waiting: waiting.to_owned(),
    }
}
