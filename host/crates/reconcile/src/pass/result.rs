//! The facts that a pass found, and the conclusion from them: the conditions of the parent and its next pass.
//!
//! Pure: only [`Findings::conclude`] makes the condition `Synced` of a pass and the time of the next one.

mod status;

use std::time::Duration;

use innkeeper_model::{
    ANNOTATION_PAUSED, Condition, ConditionStatus, Event, EventType, FaultKind, Object, Phase,
    PluginName, Report, Retry, reason,
};
use innkeeper_plan::{self as plan, Contention, ParentProgress, WriteFailure};
use innkeeper_policy::NotSelected;
use tokio::time::Instant;

use crate::{
    limits::exceeded::Bound,
    limits::throttled::HeldBack,
    next::Next,
    pass::skip::{Stop, is_unclaimed, named},
};

pub(crate) use status::StatusFinding;

/// The shortest requeue that a guest may ask for. Chosen: too short to notice, and far above the time of a pass.
const REQUEUE_MIN: Duration = Duration::from_millis(100);

/// The time that a pass may wait for the cache before its parent gets a condition about it: a host that starts lists
/// most clusters in less.
const WAITING_SAID_AFTER: Duration = Duration::from_secs(10);

/// The time between two passes that wait for the cache, in case the trigger gets lost. Chosen, not measured.
const WAITING_RECHECK: Duration = Duration::from_secs(30);

/// The longest deferral of a report to the next pass, which the watch triggers; a timer triggers it then.
/// Chosen: a watch lags by less.
const REPORT_DEFERRED_MAX: Duration = Duration::from_secs(1);

/// The facts of one pass.
pub(crate) struct Findings<'a> {
    plugin: &'a PluginName,
    /// The parent as observed; none if it is gone, or if no condition of it may state the facts.
    parent: Option<&'a Object>,
    end: End<'a>,
    /// The results of status writes that failed or had to wait, in their order.
    status: Vec<StatusFinding>,
}

/// The end of the steps before the report.
pub(crate) enum End<'a> {
    /// A step stopped the pass.
    Stopped {
        reason: &'a Stop,
        /// The time that earlier passes have waited for the cache.
        parked: Duration,
        now: Instant,
    },
    /// The finalizer was removed, or the write failed; with the report of the guest if it has finalized the parent.
    Released(Option<&'a Report>, Result<(), WriteFailure>),
    /// The guest leaves the children as they are.
    Kept { phase: Phase, report: &'a Report },
    /// The guest has finalized the parent; the status goes first, because the parent is gone without its finalizer.
    Finalizing {
        report: &'a Report,
        /// The present condition about a finalizer that could not be removed in an earlier pass.
        refused: Option<Condition>,
    },
    /// The plan was not tried to its end, because the host failed to prepare a write.
    NotApplied { report: &'a Report, error: String },
    /// All failures say that the cluster has changed since the observation.
    Superseded {
        /// True if some operation is worth another attempt.
        again: bool,
    },
    /// The plan was applied, as far as that was possible.
    Applied(Box<Applied<'a>>),
}

/// The findings about a plan that was applied.
pub(crate) struct Applied<'a> {
    pub(crate) report: &'a Report,
    pub(crate) conclusion: plan::Conclusion,
    pub(crate) held_back: Option<HeldBack>,
    /// The writes that others undo again and again.
    pub(crate) contention: Option<Contention>,
    /// True if the report is deferred to the next pass, which the watch of the written children triggers.
    pub(crate) is_deferred: bool,
}

impl Applied<'_> {
    /// Returns true if no operation failed or has to wait.
    pub(crate) const fn is_complete(&self) -> bool {
        self.conclusion.retry.is_none() && self.held_back.is_none() && self.contention.is_none()
    }
}

/// The conclusion from the findings of a pass.
#[derive(Debug)]
pub(crate) struct Conclusion<'a> {
    /// The status to write; none: the parent keeps its status.
    pub(crate) status: Option<Status<'a>>,
    pub(crate) next: Next,
}

/// A status with the host's conditions.
#[derive(Debug)]
pub(crate) struct Status<'a> {
    /// The guest's part; none: it stays as it is.
    pub(crate) report: Option<&'a Report>,
    pub(crate) synced: Condition,
    /// The host's condition `Ready`; none: it stays as it is.
    pub(crate) ready: Option<Condition>,
}

impl<'a> Findings<'a> {
    pub(crate) const fn of(
        plugin: &'a PluginName,
        parent: Option<&'a Object>,
        end: End<'a>,
    ) -> Self {
        Self {
            plugin,
            parent,
            end,
            status: Vec::new(),
        }
    }

    /// Adds the result of a status write.
    pub(crate) fn add(&mut self, finding: StatusFinding) {
        self.status.push(finding);
    }

    /// Returns true if operations wait, so that the next pass is not like this one.
    pub(crate) const fn waits(&self) -> bool {
        match &self.end {
            End::Applied(applied) => applied.held_back.is_some() || applied.contention.is_some(),
            _ => false,
        }
    }

    /// Returns the events of the guest.
    pub(crate) fn events(&self) -> &'a [Event] {
        match &self.end {
            End::Kept { report, .. }
            | End::Finalizing { report, .. }
            | End::NotApplied { report, .. } => &report.events,
            End::Applied(applied) => &applied.report.events,
            End::Stopped {
                reason: Stop::Fault { fault, .. },
                ..
            } => fault.report.as_ref().map_or(&[], |report| &report.events),
            End::Stopped { .. } | End::Released(..) | End::Superseded { .. } => &[],
        }
    }

    /// Draws the conclusion from all findings so far.
    pub(crate) fn conclude(&self) -> Conclusion<'a> {
        let first = match &self.end {
            End::Stopped {
                reason,
                parked,
                now,
            } => self.stopped(reason, *parked, *now),
            End::Released(_, Ok(())) => Conclusion::silent(Next::Settled),
            End::Released(report, Err(failure)) => {
                let next = after_failure(failure.retry, Next::Backoff);
                if failure.reason == reason::FINALIZER_REFUSED {
                    let synced = not_synced(failure.reason, failure.message.as_str());
                    match report {
                        // With the field manager of the status that was written before the attempt.
                        Some(report) => Conclusion::of_report(report, synced, next),
                        None => Conclusion::of_host(synced, next),
                    }
                } else {
                    Conclusion::silent(next)
                }
            }
            End::Kept { phase, report } => {
                let next = match (phase, requested(report)) {
                    // A parent that keeps its finalizer without a date has another pass.
                    (Phase::Finalize, Next::Settled) => Next::Backoff,
                    (_, next) => next,
                };
                Conclusion::of_report(report, applied(), next)
            }
            End::Finalizing { report, refused } => {
                let (synced, next) = match refused {
                    Some(synced) => (synced.clone(), Next::Backoff),
                    None => (applied(), Next::Settled),
                };
                Conclusion::of_report(report, synced, next)
            }
            End::NotApplied { report, error } => {
                let synced = not_synced(reason::APPLY_FAILED, error.as_str());
                Conclusion::of_report(report, synced, Next::Backoff)
            }
            End::Superseded { again: true } => Conclusion::silent(Next::Backoff),
            End::Superseded { again: false } => Conclusion::silent(Next::UntilChanged),
            End::Applied(applied) => after_apply(applied),
        };
        let status = self.status.iter();
        status.fold(first, |conclusion, finding| {
            self.after_status(conclusion, finding)
        })
    }

    fn stopped(&self, stop: &'a Stop, parked: Duration, now: Instant) -> Conclusion<'a> {
        match stop {
            Stop::Gone => Conclusion::silent(Next::Forget),
            Stop::Behind { until } => {
                Conclusion::silent(Next::Again(until.saturating_duration_since(now)))
            }
            Stop::NotCached(waiting) => {
                let since = waiting.iter().map(|waiting| waiting.since).min();
                let waited =
                    since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
                self.waiting(&named(waiting), waited.max(parked), true)
            }
            Stop::CacheFull(full) => {
                let bound = Bound::cache(self.plugin, full);
                let message = format!(
                    "the children stay as they are, because {}",
                    bound.sentence()
                );
                // A namespace that shrinks triggers nobody.
                let next = Next::Parked(WAITING_RECHECK);
                Conclusion::of_host(not_synced(bound.reason, message), next)
            }
            Stop::NamespacesNotCached(kind) => {
                let what = format!(
                    "{kind}, whose labels spec.parents.namespaceSelector selects; the host needs get, list and watch of namespaces (the chart has the role)"
                );
                let is_unclaimed = self
                    .parent
                    .is_some_and(|parent| is_unclaimed(self.plugin, parent));
                self.waiting(&what, parked, is_unclaimed)
            }
            Stop::ReadNotCached(kind) => self.waiting(&kind.to_string(), parked, true),
            Stop::Ignored | Stop::Released | Stop::NamespaceNotSeen => {
                Conclusion::silent(Next::UntilChanged)
            }
            Stop::Paused => Conclusion::of_host(paused(), Next::UntilChanged),
            Stop::NotSelected { why, .. } => self.not_selected(*why),
            Stop::HashKeyMissing => Conclusion::of_host(hash_key_missing(), Next::Backoff),
            Stop::Unchanged(next) | Stop::NotReported(next) => Conclusion::silent(next.clone()),
            Stop::GivenUp(synced) => Conclusion::of_host(synced.clone(), Next::UntilChanged),
            Stop::NotCalled => Conclusion::silent(Next::Backoff),
            Stop::Fault { fault, phase } => {
                let next = match (fault.kind, phase) {
                    (FaultKind::Retry, _) | (_, Phase::Finalize) => Next::Backoff,
                    (FaultKind::Invalid | FaultKind::Fatal, Phase::Reconcile) => Next::UntilChanged,
                };
                let synced = plan::fault_condition(fault);
                match &fault.report {
                    Some(report) => Conclusion::of_report(report, synced, next),
                    None => Conclusion::of_host(synced, next),
                }
            }
            Stop::Refused { reason, message } => {
                Conclusion::of_host(not_synced(reason, message.as_str()), Next::Backoff)
            }
        }
    }

    /// A pass that waits for the cache: a condition states it after some time, if it may.
    fn waiting(&self, what: &str, waited: Duration, may_be_told: bool) -> Conclusion<'a> {
        if waited < WAITING_SAID_AFTER {
            return Conclusion::silent(Next::Parked(WAITING_SAID_AFTER.saturating_sub(waited)));
        }
        let next = Next::Parked(WAITING_RECHECK);
        if self.parent.is_none() || !may_be_told {
            return Conclusion::silent(next);
        }
        let message = format!("waiting until the cluster has been read: {what}");
        let synced = plan::synced(ConditionStatus::Unknown, reason::WAITING_FOR_CACHE, message);
        Conclusion::of_host(synced, next)
    }

    /// A parent that has left the selection keeps its children. One that was never selected is not touched: its
    /// conditions may belong to another host.
    fn not_selected(&self, why: NotSelected) -> Conclusion<'a> {
        let parent = self.parent;
        let Some(parent) = parent.filter(|parent| plan::has_host_condition(self.plugin, parent))
        else {
            return Conclusion::silent(Next::UntilChanged);
        };
        let (field, plugin) = (why.field(), self.plugin);
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
            "{field} of Plugin {plugin} {cause}: the host no longer reconciles the object, and its children stay as they are; {remedy} to resume"
        );
        let synced = plan::synced(ConditionStatus::Unknown, reason::NOT_SELECTED, message);
        let ready = Condition {
            kind: reason::READY.to_owned(),
            status: ConditionStatus::Unknown,
            reason: reason::NOT_SELECTED.to_owned(),
            message: "the host no longer observes the children".to_owned(),
        };
        let mut conclusion = Conclusion::of_host(synced, Next::UntilChanged);
        // A paused parent keeps its last `Ready`, because it resumes. Here the last one would be taken for the present
        // state, also if the guest stated it.
        if let Some(status) = &mut conclusion.status {
            status.ready = Some(ready);
        }
        conclusion
    }
}

impl<'a> Conclusion<'a> {
    /// Returns the Event about a parent that nobody may take for one that is cared for, because its conditions are read by
    /// few after its deletion.
    pub(crate) fn event(&self) -> Option<Event> {
        let synced = &self.status.as_ref()?.synced;
        (synced.reason == reason::FINALIZER_REFUSED && synced.status == ConditionStatus::False)
            .then(|| Event {
                kind: EventType::Warning,
                reason: synced.reason.clone(),
                message: synced.message.clone(),
            })
    }

    /// Returns the outlook of the parent. One that only waits, as for a rate limit, is not failed.
    pub(crate) fn outlook(&self) -> ParentProgress {
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

    /// Leaves the guest's part and `Ready` as they are.
    const fn of_host(synced: Condition, next: Next) -> Self {
        Self {
            status: Some(Status {
                report: None,
                synced,
                ready: None,
            }),
            next,
        }
    }

    /// Leaves `Ready` as it is, unless the guest states it.
    const fn of_report(report: &'a Report, synced: Condition, next: Next) -> Self {
        Self {
            status: Some(Status {
                report: Some(report),
                synced,
                ready: None,
            }),
            next,
        }
    }
}

/// Merges the failures of the plan, the rate limit, the contested writes and the request of the guest.
fn after_apply<'a>(applied: &Applied<'a>) -> Conclusion<'a> {
    let Applied {
        report,
        conclusion,
        held_back,
        contention,
        is_deferred,
    } = applied;
    let requested = requested(report);
    if *is_deferred {
        return Conclusion::silent(requested.within(REPORT_DEFERRED_MAX));
    }
    let waits = [
        held_back.as_ref().map(|held| held.wait),
        contention.as_ref().map(|contention| contention.wait),
    ];
    let wait = waits.into_iter().flatten().min();
    let (synced, next) = match (conclusion.retry, held_back, contention) {
        (Some(retry), _, _) => {
            let next = after_failure(retry, requested);
            // A failure that only a change can repair must not keep the operations that wait.
            let next = match wait {
                Some(wait) if retry == Retry::OnChange => next.again_after(wait),
                _ => next,
            };
            (conclusion.synced.clone(), next)
        }
        (None, Some(held), _) => (held.synced(), Next::RequeueAfter(held.wait)),
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

/// Merges the retry of a failed write into the next pass.
fn after_failure(retry: Retry, next: Next) -> Next {
    match (retry, next) {
        (Retry::At(least), _) => Next::BackoffAtLeast(least),
        (Retry::Backoff, _) => Next::Backoff,
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
    let message =
        format!("the annotation {ANNOTATION_PAUSED} stops all passes; remove it to resume");
    plan::synced(ConditionStatus::Unknown, reason::PAUSED, message)
}

fn hash_key_missing() -> Condition {
    not_synced(
        reason::HASH_KEY_MISSING,
        "the Secret with the cluster's hash key is missing: restore it; a new key would change every hash, see the host's log",
    )
}

#[cfg(test)]
mod tests;
