//! Dry runs of candidate revisions: passes up to their plans, which leave no trace in the cluster or the plugin's state.
//!
//! The plugin controller decides which revisions need a dry run, and judges the results.

mod outcome;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::stream::{self, Stream, StreamExt as _};
use innkeeper_cluster::{Observation, Recording, Registration, Waiting};
use innkeeper_model::{Object, ObjectId, Outcome, PluginName, error_chain};
use innkeeper_plan::{Plan, StatusWrite, fault_condition, report_status};
use innkeeper_policy::Checked;
use innkeeper_sandbox::{CallReport, LogLine};
use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use tracing::{Instrument, Span, debug, error_span};

pub use self::outcome::{ParentOutcome, PlannedChanges};
use super::{
    call::{answered, job},
    check::check,
    context::{Context, Pass},
    enter::{Entered, enter},
    observe::observe_for_candidate,
    plan::plan,
    skip::{Skip, describe},
    trace::Trace,
};
use crate::revision::{Revision, epoch::Epoch};

/// Parents that go to a guest thread at once. Without groups, a swap with 1,000 live parents took 204 ms instead of 79 ms
/// (`cargo bench --bench swap -- swaps`).
const GROUP_SIZE: usize = 16;

/// Two groups overlap: the host evaluates one's results while the other's calls run.
const GROUPS: usize = 2;

/// The interval between checks for complete lists.
const READ_POLL_PERIOD: Duration = Duration::from_millis(250);

/// A revision in dry runs while another one is active.
///
/// The host watches the kinds that it reads while this value lives; the active revision does not wait for them.
pub struct Candidate {
    epoch: Arc<Epoch>,
    registration: Registration,
}

impl Candidate {
    pub(crate) fn new(revision: Revision, registration: Registration) -> Self {
        Self {
            epoch: Epoch::for_candidate(revision),
            registration,
        }
    }

    /// Returns the revision.
    pub fn revision(&self) -> &Revision {
        &self.epoch.revision
    }
}

/// A dry run's result for one parent.
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
    /// The result is not known yet; the caller retries later.
    Pending {
        /// The missing objects or kinds.
        waiting: String,
    },
    /// The host would not call the guest: the parent is gone, paused, not selected, or deleted without the guest.
    Idle,
}

/// Describes a plan's differences, including its status write, in lines.
pub type Differences = fn(&Draft, Option<&StatusWrite>) -> Vec<String>;

impl DryRunOutcome {
    /// Returns true if there is a change or a fault, which another revision's dry run may have, too.
    pub fn is_comparable(&self, plugin: &PluginName, now: Timestamp) -> bool {
        match self {
            Self::Planned(draft) => {
                !draft.plan.operations.is_empty() || draft.status(plugin, now).is_some()
            }
            Self::Refused { .. } => true,
            Self::Pending { .. } | Self::Idle => false,
        }
    }

    /// Returns the parent's plan without what `known`, another revision's dry run, has too; or the missing objects.
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
                let other = match known {
                    Some(Self::Planned(known)) => Some(known),
                    // Compared with nothing, every change would count as the candidate's.
                    Some(Self::Pending { waiting }) => return Err(waiting),
                    _ => None,
                };
                let planned = draft.changes(plugin, now, other.as_deref(), differences);
                ParentOutcome::Planned(planned)
            }
            Self::Refused { reason, message } => ParentOutcome::Fault {
                reason,
                message,
                known: fails,
            },
            Self::Idle => ParentOutcome::Skipped,
            Self::Pending { waiting } => return Err(waiting),
        })
    }
}

/// A dry run's plan, and the objects that it follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// The parent.
    pub parent: Object,
    /// The children as observed.
    pub observed: Vec<Object>,
    /// The children's field manager.
    pub manager: Arc<str>,
    /// The plan.
    pub plan: Plan,
    outcome: Checked<Outcome>,
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
        PlannedChanges {
            changes: self.plan.changes(),
            status: status.is_some(),
            operations: self
                .plan
                .operations
                .iter()
                .map(ToString::to_string)
                .collect(),
            differences: differences
                .map(|differences| differences(&self, status.as_ref()))
                .unwrap_or_default(),
        }
    }

    /// Returns the status write for the guest's report.
    fn status(&self, plugin: &PluginName, now: Timestamp) -> Option<StatusWrite> {
        let report = match &*self.outcome {
            Outcome::Desired(desired) => &desired.report,
            Outcome::Keep(report) | Outcome::Finalized(report) => report,
        };
        report_status(plugin, &self.parent, report, now)
    }
}

/// Waits until a registration's parents and children are in the cache; returns the first missing kind at the time limit.
///
/// A lasting failure ends the wait: the candidate may be the revision without that kind.
pub async fn until_read(registration: &Registration, until: Instant) -> Result<(), Waiting> {
    loop {
        let waiting = registration.waiting();
        let Some(first) = waiting
            .into_iter()
            .find(|waiting| !waiting.why.is_lasting())
        else {
            return Ok(());
        };
        if Instant::now() >= until {
            return Err(first);
        }
        sleep(READ_POLL_PERIOD).await;
    }
}

/// Runs a candidate for many parents, and retries those that wait for a list until the time limit.
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
    let mut outcomes = Vec::with_capacity(parents.len());
    loop {
        let results = run(context, candidate, parents).await;
        parents = Vec::new();
        for (parent, result) in results {
            if matches!(result, DryRunOutcome::Pending { .. }) && Instant::now() < until {
                parents.push(parent);
            } else {
                outcomes.push((parent, result));
            }
        }
        if parents.is_empty() {
            return outcomes;
        }
        sleep(READ_POLL_PERIOD).await;
    }
}

/// A parent's dry run before the call.
struct DryRun<'a> {
    pass: Pass<'a>,
    observed: Observation,
    entered: Entered,
    span: Span,
}

/// Runs a candidate's pass up to its plan for each of these parents.
async fn run(
    context: &Context,
    candidate: &Candidate,
    parents: Vec<ObjectId>,
) -> Vec<(ObjectId, DryRunOutcome)> {
    let trace = Trace::default();
    let mut results = Vec::with_capacity(parents.len());
    let mut jobs = VecDeque::new();
    let mut waiting = VecDeque::new();
    for parent in &parents {
        let span = error_span!("dry_run", plugin = %context.plugin, %parent);
        let epoch = Arc::clone(&candidate.epoch);
        let registration = &candidate.registration;
        let observe = observe_for_candidate(context, registration, epoch, parent, &trace);
        let (pass, observed) = observe.instrument(span.clone()).await;
        let entered = observed.and_then(|observed| {
            // Entered only here: a guard that lives across an await would catch other tasks' lines.
            let _in_span = span.enter();
            Ok((enter(&pass, &observed)?, observed))
        });
        match entered {
            Ok((entered, observed)) => {
                jobs.push_back(job(&pass, &observed, &entered));
                waiting.push_back(DryRun {
                    pass,
                    observed,
                    entered,
                    span,
                });
            }
            Err(skip) => results.push((parent.clone(), skipped(&pass, *skip))),
        }
    }
    while !jobs.is_empty() {
        let plugin = candidate.revision().plugin.clone();
        let group = match context.shared.pool.dry_run(plugin, jobs).await {
            Ok(group) => group,
            Err(error) => {
                // The guest has not run, so the candidate is not to blame.
                let why = error_chain(&error).to_string();
                results.extend(
                    waiting
                        .drain(..)
                        .map(|failed| (failed.pass.id.clone(), pending(&why))),
                );
                break;
            }
        };
        // Let another group have the thread before this task evaluates its results.
        tokio::task::yield_now().await;
        let called = waiting.drain(..group.called.len());
        for (dry_run, (report, reads)) in called.zip(group.called) {
            let id = dry_run.pass.id.clone();
            let outcome = evaluate(dry_run, report, reads.into_recording());
            results.push((id, outcome));
        }
        // A slow group ends early, so that other dry runs get the thread in between.
        jobs = group.left;
    }
    results
}

fn evaluate(dry_run: DryRun<'_>, report: CallReport, recording: Recording) -> DryRunOutcome {
    let DryRun {
        pass,
        observed,
        entered,
        span,
    } = dry_run;
    let _in_span = span.enter();
    end_subscriptions(&pass);
    for LogLine { level, message } in &report.log {
        debug!(target: "guest", ?level, "{message}");
    }
    let answer = answered(report, recording);
    let outcome = match check(&pass, &observed.parent, &entered, answer.end) {
        Ok(outcome) => outcome,
        Err(skip) => return skipped(&pass, *skip),
    };
    let plan = plan(&pass, &observed, &entered, &outcome).plan;
    DryRunOutcome::Planned(Box::new(Draft {
        parent: observed.parent,
        observed: observed.children,
        manager: entered.manager,
        plan,
        outcome,
    }))
}

/// A candidate keeps no subscriptions: its caller repeats a dry run that has to wait.
fn end_subscriptions(pass: &Pass<'_>) {
    pass.registration.commit(pass.id, &Recording::default());
}

fn skipped(pass: &Pass<'_>, skip: Skip) -> DryRunOutcome {
    end_subscriptions(pass);
    match skip {
        Skip::Gone
        | Skip::NotSelected { .. }
        // A tenant who fills a namespace does not delay everybody's revisions.
        | Skip::CacheFull(_)
        | Skip::Ignored
        | Skip::Released
        | Skip::Paused
        // Not reached: a dry run has no earlier passes and ends before the report.
        | Skip::Unchanged(_)
        | Skip::GivenUp(_)
        | Skip::NotReported(_) => DryRunOutcome::Idle,
        Skip::AwaitOwnWrites { .. } => pending("the host's own last writes are not seen yet"),
        Skip::NotCached(waiting) => pending(&describe(&waiting)),
        Skip::NamespaceNotSeen => pending("the namespace of the parent is not seen yet"),
        Skip::NamespacesNotCached(kind) | Skip::ReadNotCached(kind) => pending(&kind.to_string()),
        Skip::HashKeyMissing => pending("the cluster's hash key is missing"),
        Skip::NotCalled => pending("the host failed to call the plugin"),
        Skip::Fault { fault, .. } => {
            let condition = fault_condition(&fault.into_inner());
            DryRunOutcome::Refused {
                reason: condition.reason,
                message: condition.message,
            }
        }
        Skip::Refused { reason, message } => DryRunOutcome::Refused {
            reason: reason.to_owned(),
            message,
        },
    }
}

fn pending(waiting: &str) -> DryRunOutcome {
    DryRunOutcome::Pending {
        waiting: waiting.to_owned(),
    }
}
