//! What to do about the lease, decided from what was observed of it and when.
//!
//! Pure, with client-go's rules: time is what passes on this machine's own monotonic clock, and the times written in
//! the lease decide nothing, because other clocks wrote them. Unlike client-go's, that clock goes on while the machine
//! sleeps, so that a holder that wakes up knows how late it is.
//! A holder counts from the moment *before* it sent the renewal, all others from the moment *after* they saw it, so
//! that the holder gives up first, however the clocks differ in what they show, and as long as they do not differ in
//! how fast they run by more than the lease's duration is longer than the renew deadline.

use std::time::Duration;

use innkeeper_model::{Lease, LeaseRecord, ResourceVersion};
use jiff::Timestamp;

use super::Times;

/// One candidate's view of the lease. Its times are what has passed since some moment that stays the same.
#[derive(Debug)]
pub(super) struct Machine {
    identity: String,
    times: Times,
    seen: Option<Seen>,
    held: Option<HeldLease>,
}

/// What the lease said last.
#[derive(Debug)]
struct Seen {
    record: LeaseRecord,
    /// When it was first seen to say so.
    since: Duration,
}

/// A claim.
#[derive(Debug)]
struct HeldLease {
    /// When the last renewal that succeeded was about to be sent.
    since: Duration,
    version: ResourceVersion,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// To write this.
    Write(Write),
    /// To look again later: another process holds the lease.
    Wait,
    /// To give up for good: the lease went to another process.
    Yield {
        /// Who holds it.
        holder: String,
    },
    /// To give up for good: the claim was not renewed in time.
    Lapse,
}

/// A write of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    /// The version that it replaces; none: it makes the lease.
    pub(super) replaces: Option<ResourceVersion>,
    /// What the lease says then.
    pub(super) record: LeaseRecord,
}

impl Machine {
    pub(super) const fn new(identity: String, times: Times) -> Self {
        Self {
            identity,
            times,
            seen: None,
            held: None,
        }
    }

    /// Whether it has had a claim, which may have lapsed since.
    pub(super) const fn is_holder(&self) -> bool {
        self.held.is_some()
    }

    /// The renewal that needs no look before; none without a claim.
    pub(super) fn renewal(&self, now: Duration, wall: Timestamp) -> Option<Write> {
        let (held, seen) = (self.held.as_ref()?, self.seen.as_ref()?);
        (!self.has_lapsed(now)).then(|| Write {
            replaces: Some(held.version),
            record: LeaseRecord {
                renewed: Some(wall),
                ..seen.record.clone()
            },
        })
    }

    /// What to do about a lease that has just been read; none: there is no lease.
    ///
    /// `now` is the time after the read, `wall` the time for people.
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
            // Whoever held a lease that somebody deleted does not know that yet.
            return if self.is_held_by_another(now) {
                Decision::Wait
            } else {
                Decision::Write(self.take(None, None, wall))
            };
        };
        let Lease { version, record } = lease;
        let mine = record.holder == self.identity;
        if self.held.is_some() && !mine && !record.holder.is_empty() {
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

    /// Takes a write that was done: sent after `sent`, answered before `now`.
    ///
    /// Answers with the moment from which the claim counts; none if it lapsed on the way.
    pub(super) fn wrote(
        &mut self,
        lease: Lease,
        sent: Duration,
        now: Duration,
    ) -> Option<Duration> {
        let Lease { version, record } = lease;
        let mine = record.holder == self.identity;
        self.see(record, now);
        let is_late = now.saturating_sub(sent) >= self.times.renew_deadline;
        if !mine || is_late || self.has_lapsed(now) {
            return None;
        }
        self.held = Some(HeldLease {
            since: sent,
            version,
        });
        Some(sent)
    }

    /// The write that lets go of a lease that has just been read; none if it is not this process's.
    pub(super) fn release(&self, lease: &Lease, wall: Timestamp) -> Option<Write> {
        (lease.record.holder == self.identity).then(|| Write {
            replaces: Some(lease.version),
            record: LeaseRecord {
                holder: String::new(),
                // Whoever goes by the duration alone need not wait either.
                duration_s: 1,
                acquired: Some(wall),
                renewed: Some(wall),
                transitions: lease.record.transitions,
            },
        })
    }

    /// Whether a claim has run out unrenewed.
    fn has_lapsed(&self, now: Duration) -> bool {
        let since = self.held.as_ref().map(|held| held.since);
        since.is_some_and(|since| now.saturating_sub(since) >= self.times.renew_deadline)
    }

    /// Takes note of what the lease says; a change starts its time anew.
    fn see(&mut self, record: LeaseRecord, now: Duration) {
        if self.seen.as_ref().is_none_or(|seen| seen.record != record) {
            self.seen = Some(Seen { record, since: now });
        }
    }

    /// Whether another process may still believe that it holds what was seen last.
    fn is_held_by_another(&self, now: Duration) -> bool {
        let Some(Seen { record, since }) = &self.seen else {
            return false;
        };
        // A holder that was given more time is let have it, and an edited record takes none away.
        let stated = Duration::from_secs(record.duration_s.into());
        let duration = stated.max(self.times.duration);
        let is_another = !record.holder.is_empty() && record.holder != self.identity;
        is_another && now.saturating_sub(*since) < duration
    }

    /// The record with this process as the holder.
    fn take(
        &self,
        replaces: Option<ResourceVersion>,
        before: Option<LeaseRecord>,
        wall: Timestamp,
    ) -> Write {
        let (acquired, transitions) = match before {
            Some(before) if before.holder == self.identity => {
                (before.acquired.or(Some(wall)), before.transitions)
            }
            Some(before) => (Some(wall), before.transitions.saturating_add(1)),
            None => (Some(wall), 0),
        };
        Write {
            replaces,
            record: LeaseRecord {
                holder: self.identity.clone(),
                duration_s: self.times.duration_s(),
                acquired,
                renewed: Some(wall),
                transitions,
            },
        }
    }
}
