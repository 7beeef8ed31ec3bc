//! The change of a conclusion by a status write that failed or had to wait.

use std::time::Duration;

use innkeeper_model::{Condition, Retry, reason};
use innkeeper_plan::{self as plan, WriteFailure};

use super::{Conclusion, Findings, Status, after_failure, not_synced};
use crate::{limits::throttled::HeldBack, next::Next};

/// The result of a status write that failed or had to wait.
pub(crate) enum StatusFinding {
    /// The rate limit of the parent holds the status back.
    HeldBack(HeldBack),
    /// Others overwrite the status again and again, so it waits for this time.
    Contested(Duration),
    /// The API server rejected the guest's part.
    Rejected(WriteFailure),
    /// The write failed.
    Failed(Retry),
    /// The API server refuses the host's conditions too.
    Refused,
}

impl<'a> Findings<'a> {
    /// Changes a conclusion.
    pub(super) fn after_status(
        &self,
        before: Conclusion<'a>,
        finding: &StatusFinding,
    ) -> Conclusion<'a> {
        let Conclusion { status, next } = before;
        let host_only = |synced: Condition| {
            status.as_ref().map(|status| Status {
                report: None,
                synced,
                // The `Ready` of the guest is part of its report, which is left out.
                ready: match (status.report, &status.ready) {
                    (_, Some(ready)) if plan::outranks_guest(ready) => status.ready.clone(),
                    (Some(report), _) if report.states_ready() => None,
                    _ => status.ready.clone(),
                },
            })
        };
        match finding {
            StatusFinding::HeldBack(held) => {
                let is_told = |parent| plan::has_reason(parent, reason::THROTTLED);
                let throttled = |status: &Status<'_>| status.synced.reason == reason::THROTTLED;
                Conclusion {
                    // Once only: a condition that changes with every pass triggers the next one.
                    status: match &status {
                        _ if self.parent.is_some_and(is_told) => None,
                        Some(status) if throttled(status) => host_only(status.synced.clone()),
                        _ => host_only(held.synced()),
                    },
                    next: next.again_after(held.wait),
                }
            }
            StatusFinding::Contested(wait) => Conclusion::silent(match next {
                Next::UntilChanged => Next::RequeueAfter(*wait),
                next => next.within(*wait),
            }),
            // Another field manager writes the host's conditions, so they can still state the reason.
            StatusFinding::Rejected(failure) => Conclusion {
                status: host_only(not_synced(
                    reason::STATUS_REJECTED,
                    failure.message.as_str(),
                )),
                next: after_failure(failure.retry, next),
            },
            StatusFinding::Failed(retry) => Conclusion::silent(after_failure(*retry, next)),
            // A change of the definition or of a policy triggers no pass.
            StatusFinding::Refused => Conclusion::silent(after_failure(Retry::Backoff, next)),
        }
    }
}
