//! The lease's rules: decides what to write from the observed leases and when they were observed.
//!
//! Pure, with client-go's rules. Each call gets two clocks:
//!
//! - `now`, `sent`, `since`: this machine's monotonic clock. It alone decides. Unlike client-go's clock, it counts
//!   the time while the machine sleeps, so a holder that wakes up knows that it is late.
//! - `wall`: this machine's wall clock, for the times in the lease, which only inform the user. The times in an
//!   observed lease decide nothing, because other machines' clocks wrote them.
//!
//! The API server's clock is not used: resource versions order the writes.
//!
//! The holder counts from the time *before* it sends a renewal, the others from the time *after* they see it, so the
//! holder gives up first. This does not depend on the times that the clocks show, only on their rates: these may differ
//! by less than the ratio of the lease's duration to the renew deadline, 1.5 with the defaults.

use std::time::Duration;

use innkeeper_model::ResourceVersion;
use jiff::Timestamp;

use super::{Lease, LeaseRecord, Times, balance::Holder};

/// The duration in a released lease, as client-go states it.
const RELEASED_S: u32 = 1;

/// The most transitions that the API server accepts.
const TRANSITIONS_MAX: u32 = i32::MAX.unsigned_abs();

/// One candidate's view of the lease. Times come from the candidate's monotonic clock, counted from any fixed moment.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    identity: String,
    times: Times,
    seen: Option<Seen>,
    held: Option<HeldLease>,
    /// The term that this process asked for last. A lease with this identity in another term is an edit.
    asked: Option<Term>,
}

/// The lease's content as observed last.
#[derive(Clone, Debug)]
struct Seen {
    record: LeaseRecord,
    /// The time at which this content was first seen, on this machine's monotonic clock.
    since: Duration,
}

/// The lease while this process holds it.
#[derive(Clone, Debug)]
struct HeldLease {
    /// The time just before the last successful renewal was sent, on this machine's monotonic clock.
    since: Duration,
    version: ResourceVersion,
}

/// A holder's term: its start, in microseconds as the API server keeps it, and the transitions before it.
type Term = (Option<i64>, u32);

fn term(record: &LeaseRecord) -> Term {
    let acquired = record.acquired.map(Timestamp::as_microsecond);
    (acquired, record.transitions)
}

/// Returns true if the last holder released the lease.
fn is_released(record: &LeaseRecord) -> bool {
    record.holder.is_empty() && record.duration_s == RELEASED_S
}

/// A candidate's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Write the lease.
    Write(Write),
    /// Read the lease again later: another process holds it.
    Wait,
    /// Give up for good: another process has the lease.
    Yield {
        /// That process's identity.
        holder: String,
    },
    /// Give up for good: the claim was not renewed in time.
    Lapse,
}

/// A write to the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// The version that it replaces; none to create the lease.
    pub(super) replaces: Option<ResourceVersion>,
    /// The lease's new content.
    pub(super) record: LeaseRecord,
}

impl Machine {
    pub(super) const fn new(identity: String, times: Times) -> Self {
        Self {
            identity,
            times,
            seen: None,
            held: None,
            asked: None,
        }
    }

    /// Returns the holder that this process waits for, and the duration that counts, in seconds.
    pub(super) fn other_holder(&self) -> Option<(&str, u64)> {
        let record = &self.seen.as_ref()?.record;
        (!self.is_holder()).then(|| (&*record.holder, self.duration(record).as_secs()))
    }

    /// Returns who holds the lease as observed last, and for how long at least without a renewal.
    ///
    /// For a machine that only [observes](Self::observe): also the own process is a holder like any other.
    pub(super) fn holder(&self, now: Duration) -> (Holder, Option<Duration>) {
        let Some(Seen { record, since }) = &self.seen else {
            return (Holder::Nobody, None);
        };
        let age = now.saturating_sub(*since);
        if self.is_held_by_another(now) {
            let left = self.duration(record).saturating_sub(age);
            return (Holder::Host(record.holder.clone()), Some(left));
        }
        let holder = if is_released(record) {
            Holder::Released(age)
        } else {
            Holder::Nobody
        };
        (holder, None)
    }

    /// Returns the duration that counts.
    fn duration(&self, record: &LeaseRecord) -> Duration {
        // An edit can remove the holder and leave a duration that would block everybody for years.
        let is_unheld = record.holder.is_empty();
        let stated = if is_unheld { 0 } else { record.duration_s };
        // A longer duration is the holder's. A shorter one may be an edit that the holder has not seen yet.
        Duration::from_secs(stated.into()).max(self.times.duration)
    }

    /// Returns true if this process has held the lease; the claim may have lapsed since.
    pub(super) const fn is_holder(&self) -> bool {
        self.held.is_some()
    }

    /// Returns a renewal, which needs no read before; none without a claim.
    pub(super) fn renewal(&self, now: Duration, wall: Timestamp) -> Option<Write> {
        let lease = self.held.as_ref()?;
        let last = self.seen.as_ref()?;
        (!self.has_lapsed(now)).then(|| Write {
            replaces: Some(lease.version),
            record: LeaseRecord {
                renewed: Some(wall),
                // Keeps the term, by which this process recognizes its own lease.
                ..last.record.clone()
            },
        })
    }

    /// Decides on the next step after a read; `lease` is none if there is no lease.
    ///
    /// `now` is the monotonic clock after the read, `wall` the wall clock for a write.
    pub(super) fn decide(
        &mut self,
        lease: Option<Lease>,
        now: Duration,
        wall: Timestamp,
    ) -> Decision {
        if self.has_lapsed(now) {
            return Decision::Lapse;
        }
        let Some(lease) = lease else {
            self.observe(None, now);
            return if self.is_held_by_another(now) {
                Decision::Wait
            } else {
                Decision::Write(self.take(None, None, wall))
            };
        };
        let Lease {
            version, record, ..
        } = lease;
        let is_own = record.holder == self.identity;
        // No process has taken a lease whose holder an edit removed: the write below restores the holder.
        if self.held.is_some() && !is_own && !record.holder.is_empty() {
            self.held = None;
            return Decision::Yield {
                holder: record.holder,
            };
        }
        self.see(record, now);
        if self.is_held_by_another(now) {
            return Decision::Wait;
        }
        let before = self.seen.as_ref().map(|seen| seen.record.clone());
        Decision::Write(self.take(Some(version), before, wall))
    }

    /// Notes a successful write, which was sent after `sent` and answered before `now`.
    ///
    /// Returns the time from which the claim counts; none if the claim lapsed before the answer.
    pub(super) fn wrote(
        &mut self,
        lease: Lease,
        sent: Duration,
        now: Duration,
    ) -> Option<Duration> {
        let Lease {
            version, record, ..
        } = lease;
        let is_own = record.holder == self.identity;
        self.see(record, now);
        // The lease is this process's, but other processes may take it over soon: only a write in time gives a claim.
        let is_late = now.saturating_sub(sent) >= self.times.renew_deadline;
        if !is_own || is_late || self.has_lapsed(now) {
            return None;
        }
        self.held = Some(HeldLease {
            // Others count from when they see the write, so this process gives up before they take over.
            since: sent,
            version,
        });
        Some(sent)
    }

    /// Returns the write that releases a lease that has just been read; none if another process holds it.
    pub(super) fn release(&self, lease: &Lease, wall: Timestamp) -> Option<Write> {
        (lease.record.holder == self.identity).then(|| Write {
            replaces: Some(lease.version),
            record: LeaseRecord {
                holder: String::new(),
                // As client-go does: a client that reads only the duration need not wait either.
                duration_s: RELEASED_S,
                acquired: Some(wall),
                renewed: Some(wall),
                transitions: lease.record.transitions,
            },
        })
    }

    /// Returns true if the claim was not renewed in time.
    fn has_lapsed(&self, now: Duration) -> bool {
        self.held
            .as_ref()
            .is_some_and(|lease| now.saturating_sub(lease.since) >= self.times.renew_deadline)
    }

    /// Notes the lease as it was read; none if there is no lease.
    pub(super) fn observe(&mut self, lease: Option<&LeaseRecord>, now: Duration) {
        match lease {
            Some(record) => self.see(record.clone(), now),
            // The holder of a deleted lease still believes in its claim until its next renewal. It is not older than this
            // process's own duration, whatever the deleted lease stated.
            None if self.held.is_none() && self.seen.is_some() => {
                self.see(LeaseRecord::default(), now);
            }
            None => {}
        }
    }

    /// Records the lease's content; a change restarts the duration.
    fn see(&mut self, record: LeaseRecord, now: Duration) {
        // Not by version: a changed label, for example, does not show that the holder is alive.
        if self.seen.as_ref().is_none_or(|seen| seen.record != record) {
            self.seen = Some(Seen { record, since: now });
        }
    }

    /// Returns true if another process may still believe that it holds the lease.
    fn is_held_by_another(&self, now: Duration) -> bool {
        let Some(Seen { record, since }) = &self.seen else {
            return false;
        };
        // An edit can remove the holder or name this process, while the last holder still believes in its claim until its
        // next renewal.
        let is_mine = record.holder == self.identity && self.asked == Some(term(record));
        if self.is_holder() || is_released(record) || is_mine {
            return false;
        }
        now.saturating_sub(*since) < self.duration(record)
    }

    /// Returns the write that makes this process the holder.
    fn take(
        &mut self,
        replaces: Option<ResourceVersion>,
        before: Option<LeaseRecord>,
        wall: Timestamp,
    ) -> Write {
        let (acquired, transitions) = match before {
            // The same term, as in client-go: only a new holder counts as a transition.
            Some(before) if before.holder == self.identity => {
                (before.acquired.or(Some(wall)), before.transitions)
            }
            // The API server refuses a larger number, so an edited lease could never be taken.
            Some(before) => (
                Some(wall),
                before.transitions.saturating_add(1).min(TRANSITIONS_MAX),
            ),
            None => (Some(wall), 0),
        };
        let record = LeaseRecord {
            holder: self.identity.clone(),
            duration_s: self.times.duration_s(),
            acquired,
            renewed: Some(wall),
            transitions,
        };
        self.asked = Some(term(&record));
        Write { replaces, record }
    }
}
