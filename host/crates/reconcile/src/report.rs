//! The end of a pass: status and conditions where they changed, events, and when the next pass comes.

use innkeeper_apply::{self as apply, Target};
use innkeeper_model::{Condition, ConditionStatus, Event, Object, Report, Retry, reason};
use innkeeper_plan::{self as plan, GuestPart, ReadyPart, StatusWrite, StatusWrites};
use tracing::{debug, warn};

use super::{Next, Reconciler, not_synced};

/// What a pass came to.
pub(super) struct Verdict<'a> {
    pub(super) guest: GuestPart<'a>,
    pub(super) synced: Condition,
    pub(super) ready: ReadyPart,
    pub(super) events: &'a [Event],
    /// Whether the pass changed something.
    pub(super) fresh: bool,
    pub(super) next: Next,
}

/// How a pass ended.
pub(super) struct Ended {
    pub(super) next: Next,
    /// Whether something was written, or tried to be.
    pub(super) wrote: bool,
}

impl Ended {
    /// After something was tried.
    pub(super) const fn after_writes(next: Next) -> Self {
        Self { next, wrote: true }
    }

    /// Whether the same pass would end in the same way and change nothing again.
    pub(super) const fn is_repeatable(&self) -> bool {
        !self.wrote && matches!(self.next, Next::Settled | Next::RequeueAfter(_))
    }
}

impl<'a> Verdict<'a> {
    /// Only the host has something to say.
    pub(super) fn of_host(synced: Condition, next: Next) -> Self {
        Self {
            guest: GuestPart::Leave,
            synced,
            ready: ReadyPart::Leave,
            events: &[],
            fresh: false,
            next,
        }
    }

    /// The guest reported; `Ready` is as it was unless somebody says more.
    pub(super) fn of_report(report: &'a Report, synced: Condition, next: Next) -> Self {
        Self {
            guest: GuestPart::State(report),
            events: &report.events,
            ..Self::of_host(synced, next)
        }
    }
}

impl Reconciler {
    /// Writes what changed of the parent's status, and its events.
    pub(super) async fn report(
        &self,
        target: &mut Target,
        parent: &Object,
        verdict: Verdict<'_>,
    ) -> Ended {
        let Verdict {
            guest,
            synced,
            ready,
            events,
            fresh,
            next,
        } = verdict;
        if synced.status != ConditionStatus::True {
            debug!(
                reason = synced.reason,
                message = synced.message,
                "not synced"
            );
        }
        let name = &self.name;
        let now = (self.shared.now)();
        let mut next = next;
        let mut writes = plan::status(name, parent, guest, &synced, ready.clone(), now);
        let leave = |synced: &Condition| {
            plan::status(name, parent, GuestPart::Leave, synced, ready.clone(), now)
        };
        let (mut written, mut refused) = (false, false);
        if !writes.is_empty()
            && let Some(held) = self.hold_back_status(&parent.id(), &synced)
        {
            refused = true;
            // Said once, and then nothing of it: what changes with every pass would be written with every pass, and
            // brings the next one by being written.
            writes = if plan::gives(parent, reason::THROTTLED) {
                StatusWrites::default()
            } else if synced.reason == reason::THROTTLED {
                leave(&synced)
            } else {
                leave(&held.synced())
            };
            next = next.again_after(held.wait);
        }
        if let Some(write) = writes.guest.take() {
            match self.write_status(target, parent, &write).await {
                Ok(()) => written = true,
                Err(error) if error.is_rejection() => {
                    // The host's own conditions go separately, so that this one can be seen.
                    refused = true;
                    let failure = error.failure();
                    warn!(error = %failure.message, "the API server rejected the guest's status");
                    writes = leave(&not_synced(reason::STATUS_REJECTED, failure.message));
                    next = after_failure(failure.retry, next);
                }
                Err(error) => return Ended::after_writes(status_failed(&error, next)),
            }
        }
        if let Some(write) = writes.host.take() {
            match self.write_status(target, parent, &write).await {
                Ok(()) => written = true,
                Err(error) => return Ended::after_writes(status_failed(&error, next)),
            }
        }
        let wrote = fresh || written;
        self.say(parent, events, wrote).await;
        Ended {
            next,
            wrote: wrote || refused,
        }
    }

    async fn write_status(
        &self,
        target: &mut Target,
        parent: &Object,
        write: &StatusWrite,
    ) -> Result<(), apply::Error> {
        let id = parent.id();
        match self.shared.writer.status(target, write).await {
            Ok(written) => {
                self.wrote(&id, "status");
                self.registration
                    .note_write(&id, &id, written.resource_version);
                Ok(())
            }
            Err(error) => {
                self.note_failure(&id, &id, Some(target.resource_version()), &error);
                Err(error)
            }
        }
    }

    /// Events are for people: one that cannot be written is not worth a pass.
    async fn say(&self, parent: &Object, events: &[Event], fresh: bool) {
        let name = &self.name;
        let left = self.ledger.lock().take_left(&parent.id());
        let left = left.iter().map(|event| (event, true));
        let is_new = |event: &&Event| !left.clone().any(|(known, _)| known == *event);
        let own = events.iter().filter(is_new).map(|event| (event, fresh));
        for (event, fresh) in left.clone().chain(own) {
            let now = (self.shared.now)();
            let recorded = self
                .shared
                .events
                .record(&self.shared.writer, name, parent, event, fresh, now)
                .await;
            if let Err(error) = recorded {
                debug!(error = %innkeeper_model::error_chain(&error), reason = event.reason, "failed to write an event");
            }
        }
    }
}

fn status_failed(error: &apply::Error, next: Next) -> Next {
    if error.is_silent() {
        debug!(
            category = error.category(),
            "status not written, the parent changed"
        );
    } else {
        warn!(error = %innkeeper_model::error_chain(error), "failed to write the status");
    }
    after_failure(error.retry(), next)
}

/// What a failed write makes of what the pass wanted next.
pub(super) fn after_failure(retry: Retry, next: Next) -> Next {
    match (retry, next) {
        (Retry::At(least), _) => Next::BackoffAtLeast(least),
        (Retry::Backoff, _) => Next::Backoff,
        (Retry::Never | Retry::OnChange, Next::Settled) => Next::UntilChanged,
        (Retry::Never | Retry::OnChange, next) => next,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_failed_write_decides_over_what_the_pass_wanted() {
        let minute = Duration::from_mins(1);
        let asked = Next::RequeueAfter(minute);
        for (retry, next, expected) in [
            (Retry::Backoff, asked.clone(), Next::Backoff),
            (
                Retry::At(minute),
                Next::Settled,
                Next::BackoffAtLeast(minute),
            ),
            (Retry::OnChange, Next::Settled, Next::UntilChanged),
            (Retry::Never, Next::Settled, Next::UntilChanged),
            (Retry::OnChange, Next::Backoff, Next::Backoff),
            (Retry::OnChange, asked.clone(), asked),
        ] {
            assert_eq!(after_failure(retry, next), expected, "{retry:?}");
        }
    }
}
