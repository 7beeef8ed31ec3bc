//! The result of a pass: concludes the parent's conditions and the next pass from what the steps did.
//!
//! Pure: only [`PassResult::conclude`] makes the condition `Synced` and the next pass.

use std::time::Duration;

use innkeeper_model::{
    ANNOTATION_PAUSED, Condition, ConditionStatus, Event, EventType, FaultKind, Object, Phase,
    PluginName, Report, Retry, reason,
};
use innkeeper_plan::{self as plan, Contention, ParentProgress, WriteFailure};
use innkeeper_policy::NotSelected;
use tokio::time::Instant;

use super::skip::{Skip, describe, is_unclaimed};
use crate::{
    limits::{exceeded::LimitExceeded, throttled::Throttled},
    next::Next,
};

/// The shortest requeue that a guest may ask for: nobody notices it, and a pass takes much less.
const REQUEUE_MIN: Duration = Duration::from_millis(100);

/// The wait for the cache after which a parent gets a condition: a host that starts lists most clusters in less.
const WAIT_REPORTED_AFTER: Duration = Duration::from_secs(10);

/// The time between two passes that wait for the cache, in case the trigger gets lost.
const WAIT_RECHECK: Duration = Duration::from_secs(30);

/// The longest time until a deferred report, usually triggered earlier by the watch, which lags by less.
const REPORT_DEFERRED_MAX: Duration = Duration::from_secs(1);

/// The result of one pass.
pub(crate) struct PassResult<'a> {
    plugin: &'a PluginName,
    /// The parent as observed; `None` if it is gone, or if it may get no condition.
    parent: Option<&'a Object>,
    end: PassEnd<'a>,
    /// The status writes that failed or had to wait, in their order.
    status_writes: Vec<StatusWriteResult>,
}

/// The end of the steps before the report.
pub(crate) enum PassEnd<'a> {
    /// A step skipped the rest of the pass.
    Skipped {
        reason: &'a Skip,
        /// The time that earlier passes have waited for the cache.
        waited: Duration,
        now: Instant,
    },
    /// The finalizer was removed, or the write failed; with the guest's report if it has finalized the parent.
    Released(Option<&'a Report>, Result<(), WriteFailure>),
    /// The guest leaves the children as they are.
    Kept { phase: Phase, report: &'a Report },
    /// The guest has finalized the parent. The status goes first, because the parent goes with the finalizer.
    Finalizing {
        report: &'a Report,
        /// The condition about a finalizer that an earlier pass could not remove.
        refused: Option<Condition>,
    },
    /// The host failed to prepare a write, so it did not try all operations.
    NotApplied { report: &'a Report, error: String },
    /// All failures mean that the cluster has changed since the observation.
    Superseded {
        /// True if some operation is worth another attempt.
        again: bool,
    },
    /// The plan was applied, as far as possible.
    Applied(Box<AppliedPlan<'a>>),
}

/// The results of an applied plan.
pub(crate) struct AppliedPlan<'a> {
    pub(super) report: &'a Report,
    pub(super) conclusion: plan::Conclusion,
    pub(super) throttled: Option<Throttled>,
    /// The writes that other clients undo again and again.
    pub(super) contention: Option<Contention>,
    /// True if the report waits for the next pass, which the written children trigger.
    pub(super) is_deferred: bool,
}

impl AppliedPlan<'_> {
    /// Returns true if no operation failed or has to wait.
    pub(super) const fn is_complete(&self) -> bool {
        self.conclusion.retry.is_none() && self.throttled.is_none() && self.contention.is_none()
    }
}

/// A status write that failed or had to wait.
pub(crate) enum StatusWriteResult {
    /// The parent's rate limit holds the status back.
    Throttled(Throttled),
    /// Other clients overwrite the status again and again, so it waits for this time.
    Contested(Duration),
    /// The API server rejected the guest's part.
    Rejected(WriteFailure),
    Failed(Retry),
    /// The API server refuses the host's conditions too.
    Refused,
}

/// The status and the next pass that follow from a result.
#[derive(Debug)]
pub(crate) struct Conclusion<'a> {
    /// The status to write; `None` leaves the parent's status as it is.
    pub(super) status: Option<Status<'a>>,
    pub(super) next: Next,
}

/// A status with the host's conditions.
#[derive(Debug)]
pub(crate) struct Status<'a> {
    /// The guest's part; `None` leaves it as it is.
    pub(super) report: Option<&'a Report>,
    pub(super) synced: Condition,
    /// The host's condition `Ready`; `None` leaves it as it is.
    pub(super) ready: Option<Condition>,
}

impl<'a> PassResult<'a> {
    pub(super) const fn new(
        plugin: &'a PluginName,
        parent: Option<&'a Object>,
        end: PassEnd<'a>,
    ) -> Self {
        Self {
            plugin,
            parent,
            end,
            status_writes: Vec::new(),
        }
    }

    /// Adds a status write that failed or had to wait.
    pub(super) fn add(&mut self, write: StatusWriteResult) {
        self.status_writes.push(write);
    }

    /// Returns the last status write that failed or had to wait.
    pub(super) fn last_status_write(&self) -> Option<&StatusWriteResult> {
        self.status_writes.last()
    }

    /// Returns true if operations wait, so that the next pass is not like this one.
    pub(super) const fn has_waiting_operations(&self) -> bool {
        match &self.end {
            PassEnd::Applied(applied) => {
                applied.throttled.is_some() || applied.contention.is_some()
            }
            _ => false,
        }
    }

    /// Returns the guest's events.
    pub(super) fn events(&self) -> &'a [Event] {
        match &self.end {
            PassEnd::Kept { report, .. }
            | PassEnd::Finalizing { report, .. }
            | PassEnd::NotApplied { report, .. } => &report.events,
            PassEnd::Applied(applied) => &applied.report.events,
            PassEnd::Skipped {
                reason: Skip::Fault { fault, .. },
                ..
            } => fault.report.as_ref().map_or(&[], |report| &report.events),
            // `Finalizing` has queued those of a released parent.
            PassEnd::Skipped { .. } | PassEnd::Released(..) | PassEnd::Superseded { .. } => &[],
        }
    }

    /// Draws the conclusion from the steps and the status writes so far.
    pub(super) fn conclude(&self) -> Conclusion<'a> {
        let first = match &self.end {
            PassEnd::Skipped {
                reason,
                waited,
                now,
            } => self.skipped(reason, *waited, *now),
            PassEnd::Released(_, Ok(())) => Conclusion::silent(Next::Settled),
            PassEnd::Released(report, Err(failure)) => {
                let next = after_failure(failure.retry, Next::Backoff);
                if failure.reason == reason::FINALIZER_REFUSED {
                    let synced = not_synced(failure.reason, failure.message.as_str());
                    // With a report, the same field manager writes as before the attempt.
                    Conclusion::new(*report, synced, next)
                } else {
                    Conclusion::silent(next)
                }
            }
            PassEnd::Kept { phase, report } => {
                let next = match (phase, requested(report)) {
                    // The guest keeps the finalizer without naming a time, so the host retries.
                    (Phase::Finalize, Next::Settled) => Next::Backoff,
                    (_, next) => next,
                };
                Conclusion::for_report(report, applied(), next)
            }
            PassEnd::Finalizing { report, refused } => {
                let (synced, next) = match refused {
                    Some(synced) => (synced.clone(), Next::Backoff),
                    None => (applied(), Next::Settled),
                };
                Conclusion::for_report(report, synced, next)
            }
            PassEnd::NotApplied { report, error } => {
                let synced = not_synced(reason::APPLY_FAILED, error.as_str());
                Conclusion::for_report(report, synced, Next::Backoff)
            }
            PassEnd::Superseded { again: true } => Conclusion::silent(Next::Backoff),
            PassEnd::Superseded { again: false } => Conclusion::silent(Next::UntilChanged),
            PassEnd::Applied(applied) => after_apply(applied),
        };
        self.status_writes.iter().fold(first, |conclusion, write| {
            self.after_status(conclusion, write)
        })
    }

    fn skipped(&self, skip: &'a Skip, waited: Duration, now: Instant) -> Conclusion<'a> {
        match skip {
            Skip::Gone => Conclusion::silent(Next::Forget),
            Skip::AwaitOwnWrites { until } => {
                Conclusion::silent(Next::AwaitOwnWrites(until.saturating_duration_since(now)))
            }
            Skip::NotCached(waiting) => {
                let since = waiting.iter().map(|waiting| waiting.since).min();
                let missing_for =
                    since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
                self.awaiting_cache(&describe(waiting), missing_for.max(waited), true)
            }
            Skip::CacheFull(full) => {
                let exceeded = LimitExceeded::cache(self.plugin, full);
                let message = format!(
                    "the children stay unchanged, because {}",
                    exceeded.sentence()
                );
                // A namespace that shrinks triggers nobody.
                let next = Next::AwaitCache(WAIT_RECHECK);
                Conclusion::for_host(not_synced(exceeded.reason, message), next)
            }
            Skip::NamespacesNotCached(kind) => {
                let what = format!(
                    "{kind}, whose labels spec.parents.namespaceSelector selects; the host needs get, list and watch on namespaces (the chart has the role)"
                );
                let is_unclaimed = self
                    .parent
                    .is_some_and(|parent| is_unclaimed(self.plugin, parent));
                self.awaiting_cache(&what, waited, is_unclaimed)
            }
            Skip::ReadNotCached(kind) => self.awaiting_cache(&kind.to_string(), waited, true),
            Skip::Ignored | Skip::Released | Skip::NamespaceNotSeen => {
                Conclusion::silent(Next::UntilChanged)
            }
            Skip::Paused => Conclusion::for_host(paused(), Next::UntilChanged),
            Skip::NotSelected { why, .. } => self.not_selected(*why),
            Skip::HashKeyMissing => Conclusion::for_host(hash_key_missing(), Next::Backoff),
            Skip::Unchanged(next) | Skip::NotReported(next) => Conclusion::silent(next.clone()),
            Skip::GivenUp(synced) => Conclusion::for_host(synced.clone(), Next::UntilChanged),
            Skip::NotCalled => Conclusion::silent(Next::Backoff),
            Skip::Fault { fault, phase } => {
                let next = match (fault.kind, phase) {
                    // A deletion must not wait for a change that may never come.
                    (FaultKind::Retry, _) | (_, Phase::Finalize) => Next::Backoff,
                    (FaultKind::Invalid | FaultKind::Fatal, Phase::Reconcile) => Next::UntilChanged,
                };
                let synced = plan::fault_condition(fault);
                Conclusion::new(fault.report.as_ref(), synced, next)
            }
            Skip::Refused { reason, message } => {
                Conclusion::for_host(not_synced(reason, message.as_str()), Next::Backoff)
            }
        }
    }

    /// A pass that waits for the cache: after some time the parent gets a condition, if it may.
    fn awaiting_cache(&self, what: &str, waited: Duration, may_state: bool) -> Conclusion<'a> {
        if waited < WAIT_REPORTED_AFTER {
            return Conclusion::silent(Next::AwaitCache(
                WAIT_REPORTED_AFTER.saturating_sub(waited),
            ));
        }
        let next = Next::AwaitCache(WAIT_RECHECK);
        if self.parent.is_none() || !may_state {
            return Conclusion::silent(next);
        }
        let message = format!("waiting for the cache: {what}");
        let synced = plan::synced(ConditionStatus::Unknown, reason::WAITING_FOR_CACHE, message);
        Conclusion::for_host(synced, next)
    }

    /// A parent that is no longer selected keeps its children. One that never was is not touched, because the conditions
    /// may belong to another host.
    fn not_selected(&self, why: NotSelected) -> Conclusion<'a> {
        let Some(parent) = self
            .parent
            .filter(|parent| plan::has_host_condition(self.plugin, parent))
        else {
            return Conclusion::silent(Next::UntilChanged);
        };
        let field = why.field();
        let plugin = self.plugin;
        let namespace = parent.namespace.as_deref().unwrap_or_default();
        let (cause, remedy) = match why {
            NotSelected::ByItsLabels => (
                "does not select the labels of this object".to_owned(),
                "label it or change the selector",
            ),
            NotSelected::ByItsNamespace => (
                format!("does not select the labels of its namespace {namespace}"),
                "label the namespace or change the selector",
            ),
            NotSelected::InSystemNamespace => (
                format!(
                    "does not name {namespace}, a namespace of Kubernetes itself or of the host"
                ),
                "add the namespace to the grants",
            ),
        };
        let message = format!(
            "{field} of Plugin {plugin} {cause}: the host no longer reconciles the object, and the children stay unchanged; {remedy} to resume"
        );
        let synced = plan::synced(ConditionStatus::Unknown, reason::NOT_SELECTED, message);
        let ready = Condition {
            kind: reason::READY.to_owned(),
            status: ConditionStatus::Unknown,
            reason: reason::NOT_SELECTED.to_owned(),
            message: "the host no longer observes the children".to_owned(),
        };
        let mut conclusion = Conclusion::for_host(synced, Next::UntilChanged);
        // A paused parent keeps the last `Ready`, because it resumes. Here users would take the last one for the current
        // state.
        if let Some(status) = &mut conclusion.status {
            status.ready = Some(ready);
        }
        conclusion
    }

    /// Changes a conclusion by a status write that failed or had to wait.
    fn after_status(&self, before: Conclusion<'a>, write: &StatusWriteResult) -> Conclusion<'a> {
        let Conclusion { status, next } = before;
        let host_only = |synced: Condition| {
            status.as_ref().map(|status| Status {
                report: None,
                synced,
                // The guest's `Ready` is part of the report, which is left out.
                ready: match (status.report, &status.ready) {
                    (_, Some(ready)) if plan::outranks_guest(ready) => status.ready.clone(),
                    (Some(report), _) if report.states_ready() => None,
                    _ => status.ready.clone(),
                },
            })
        };
        match write {
            StatusWriteResult::Throttled(throttled) => {
                let states_it = |parent| plan::has_reason(parent, reason::THROTTLED);
                let is_throttled = |status: &Status<'_>| status.synced.reason == reason::THROTTLED;
                Conclusion {
                    // Once only: a condition that changes with every pass triggers the next one.
                    status: match &status {
                        _ if self.parent.is_some_and(states_it) => None,
                        Some(status) if is_throttled(status) => host_only(status.synced.clone()),
                        _ => host_only(throttled.synced()),
                    },
                    next: next.again_after(throttled.wait),
                }
            }
            StatusWriteResult::Contested(wait) => Conclusion::silent(match next {
                // Nothing else triggers the pass that writes the status back.
                Next::UntilChanged => Next::RequeueAfter(*wait),
                next => next.within(*wait),
            }),
            // Another field manager writes the host's conditions, so they can still state the reason.
            StatusWriteResult::Rejected(failure) => Conclusion {
                status: host_only(not_synced(
                    reason::STATUS_REJECTED,
                    failure.message.as_str(),
                )),
                next: after_failure(failure.retry, next),
            },
            StatusWriteResult::Failed(retry) => Conclusion::silent(after_failure(*retry, next)),
            // A changed definition or policy triggers no pass.
            StatusWriteResult::Refused => Conclusion::silent(after_failure(Retry::Backoff, next)),
        }
    }
}

impl<'a> Conclusion<'a> {
    /// Returns the Event about a refused finalizer, because few users read the conditions of a deleted parent.
    pub(super) fn event(&self) -> Option<Event> {
        let synced = &self.status.as_ref()?.synced;
        (synced.reason == reason::FINALIZER_REFUSED && synced.status == ConditionStatus::False)
            .then(|| Event {
                kind: EventType::Warning,
                reason: synced.reason.clone(),
                message: synced.message.clone(),
            })
    }

    /// Returns the parent's outlook. Waiting, as for a rate limit, is no failure.
    pub(super) fn outlook(&self) -> ParentProgress {
        let synced = self.status.as_ref().map(|status| status.synced.status);
        match (synced, &self.next) {
            (Some(ConditionStatus::False), Next::UntilChanged) => ParentProgress::Stalled,
            (Some(ConditionStatus::False), Next::Backoff | Next::BackoffAtLeast(_)) => {
                ParentProgress::Reconciling
            }
            _ => ParentProgress::Ok,
        }
    }

    /// Leaves the status as it is.
    const fn silent(next: Next) -> Self {
        Self { status: None, next }
    }

    /// Leaves `Ready` as it is, unless the guest states it; without a report, also the guest's part.
    const fn new(report: Option<&'a Report>, synced: Condition, next: Next) -> Self {
        Self {
            status: Some(Status {
                report,
                synced,
                ready: None,
            }),
            next,
        }
    }

    /// Leaves the guest's part and `Ready` as they are.
    const fn for_host(synced: Condition, next: Next) -> Self {
        Self::new(None, synced, next)
    }

    /// Leaves `Ready` as it is, unless the guest states it.
    const fn for_report(report: &'a Report, synced: Condition, next: Next) -> Self {
        Self::new(Some(report), synced, next)
    }
}

/// Merges failures, limits, contested writes and the guest's requeue.
fn after_apply<'a>(applied: &AppliedPlan<'a>) -> Conclusion<'a> {
    let AppliedPlan {
        report,
        conclusion,
        throttled,
        contention,
        is_deferred,
    } = applied;
    let requested = requested(report);
    if *is_deferred {
        return Conclusion::silent(requested.within(REPORT_DEFERRED_MAX));
    }
    let wait = [
        throttled.as_ref().map(|throttled| throttled.wait),
        contention.as_ref().map(|contention| contention.wait),
    ]
    .into_iter()
    .flatten()
    .min();
    let (synced, next) = match (conclusion.retry, throttled, contention) {
        (Some(retry), _, _) => {
            let next = after_failure(retry, requested);
            // A failure that only a change can repair must not keep the operations that wait.
            let next = match wait {
                Some(wait) if retry == Retry::OnChange => next.again_after(wait),
                _ => next,
            };
            (conclusion.synced.clone(), next)
        }
        (None, Some(throttled), _) => (throttled.synced(), Next::RequeueAfter(throttled.wait)),
        (None, None, Some(contention)) => (contention.synced(), requested.within(contention.wait)),
        (None, None, None) => (conclusion.synced.clone(), requested),
    };
    Conclusion {
        status: Some(Status {
            report: Some(report),
            synced,
            ready: Some(conclusion.ready.clone()),
        }),
        next,
    }
}

/// Returns the next pass that the guest asked for.
fn requested(report: &Report) -> Next {
    report.requeue_after_ms.map_or(Next::Settled, |after| {
        Next::RequeueAfter(Duration::from_millis(after).max(REQUEUE_MIN))
    })
}

/// Merges a failed write's retry into the next pass.
fn after_failure(retry: Retry, next: Next) -> Next {
    match (retry, next) {
        (Retry::At(least), _) => Next::BackoffAtLeast(least),
        (Retry::Backoff, _) => Next::Backoff,
        // With `Settled`, the parent would not be reported as stalled.
        (Retry::Never | Retry::OnChange, Next::Settled) => Next::UntilChanged,
        (Retry::Never | Retry::OnChange, next) => next,
    }
}

fn not_synced(reason: &'static str, message: impl Into<String>) -> Condition {
    plan::synced(ConditionStatus::False, reason, message)
}

fn applied() -> Condition {
    plan::synced(ConditionStatus::True, reason::APPLIED, "")
}

fn paused() -> Condition {
    let message = format!("paused by the annotation {ANNOTATION_PAUSED}; remove it to resume");
    plan::synced(ConditionStatus::Unknown, reason::PAUSED, message)
}

fn hash_key_missing() -> Condition {
    not_synced(
        reason::HASH_KEY_MISSING,
        "the Secret with the cluster's hash key is missing; restore it, because a new key would change every hash (see the host's log)",
    )
}

#[cfg(test)]
mod tests;
