//! The claim: proof that this process is the one that may write, and until when.
//!
//! The lease's holder extends it. Every write checks it right before it is sent, and is cut off when it expires.
//! Times come from [`since_boot`]: the claim lapses while the machine sleeps, too. Once it is over it stays over.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{sync::watch, time::sleep};

use crate::clock::since_boot;

/// The interval at which the clock itself is read, because a timer stands still while the machine sleeps. So a claim that
/// lapsed during sleep is noticed at most this long after the wake-up; other hosts wait five seconds longer than the holder.
const LOOK: Duration = Duration::from_secs(1);

/// A claim; clones share it.
#[derive(Clone, Debug)]
pub struct Claim {
    term: Arc<watch::Sender<Term>>,
    now: fn() -> Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    /// Only this process writes.
    Unlimited,
    /// Another process may write.
    Awaited,
    /// This process may write.
    Held {
        /// The time from which no write begins.
        begin_until: Duration,
        /// The time at which running writes are cut off.
        until: Duration,
    },
    /// Another process may write, and this one never again.
    Over,
}

impl Claim {
    fn new(term: Term) -> Self {
        Self {
            term: Arc::new(watch::Sender::new(term)),
            now: since_boot,
        }
    }

    /// A claim that is held for ever, for a process that is alone.
    pub fn unlimited() -> Self {
        Self::new(Term::Unlimited)
    }

    /// A claim that is not held yet.
    pub fn awaited() -> Self {
        Self::new(Term::Awaited)
    }

    /// Holds it, or holds it longer: writes begin before `begin_until` and have ended by `until`.
    ///
    /// Returns whether it is held afterwards: an expired claim is never held again.
    pub fn hold(&self, begin_until: Duration, until: Duration) -> bool {
        let now = (self.now)();
        self.term.send_modify(|term| {
            *term = match *term {
                // The answer came after the time that it grants: another host may hold the lease by now.
                Term::Awaited if until <= now => Term::Awaited,
                Term::Awaited => Term::Held { begin_until, until },
                Term::Held { until: last, .. } if now < last => Term::Held { begin_until, until },
                // It lapsed before this renewal: another host may have written since, so this one ends.
                Term::Held { .. } | Term::Over => Term::Over,
                Term::Unlimited => Term::Unlimited,
            };
        });
        matches!(*self.term.borrow(), Term::Held { .. } | Term::Unlimited)
    }

    /// Ends the claim for ever: no further write begins, and running writes are cut off.
    pub fn end(&self) {
        // `send` would keep the old term while nobody waits.
        self.term.send_replace(Term::Over);
    }

    /// Waits until it is held for the first time.
    pub async fn acquired(&self) {
        let mut terms = self.term.subscribe();
        let is_held = |term: &Term| matches!(term, Term::Unlimited | Term::Held { .. });
        // The sender lives as long as `self`.
        if terms.wait_for(is_held).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until it is over; for ever, if it is never held or never ends.
    pub async fn over(&self) {
        let mut terms = self.term.subscribe();
        loop {
            let term = *terms.borrow_and_update();
            let lapse = async {
                match term {
                    Term::Held { until, .. } => self.lapse(until).await,
                    Term::Unlimited | Term::Awaited => std::future::pending().await,
                    Term::Over => {}
                }
            };
            tokio::select! {
                () = lapse => return,
                // Renewed or given up: the new end counts.
                _ = terms.changed() => {}
            }
        }
    }

    async fn lapse(&self, until: Duration) {
        while let Some(left) = until.checked_sub((self.now)())
            && !left.is_zero()
        {
            // In short steps, because the timer does not count while the machine sleeps.
            sleep(left.min(LOOK)).await;
        }
    }

    /// Returns whether writes may be under way.
    pub fn is_held(&self) -> bool {
        match *self.term.borrow() {
            Term::Unlimited => true,
            // Nothing changes the term when its time is over, so the clock decides.
            Term::Held { until, .. } => (self.now)() < until,
            Term::Awaited | Term::Over => false,
        }
    }

    /// Returns whether a write may begin: a little before the claim ends, none does.
    pub fn may_begin(&self) -> bool {
        match *self.term.borrow() {
            Term::Unlimited => true,
            Term::Held { begin_until, .. } => (self.now)() < begin_until,
            Term::Awaited | Term::Over => false,
        }
    }

    /// Runs work until the claim ends; none if the work was cut off.
    pub async fn bound<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut over = pin!(self.over());
        let mut work = pin!(work);
        poll_fn(|context| {
            // After the process was frozen, timers may be late: the clock is read before each step.
            // `over` is polled for its timer: work that nothing wakes is cut off as well.
            if !self.is_held() || over.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicBool, Ordering},
    };

    use tokio::time::timeout;

    use super::*;

    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(40);

    fn within(duration: Duration) -> Duration {
        since_boot() + duration
    }

    #[tokio::test]
    async fn a_claim_that_lapsed_is_never_held_again() {
        let claim = Claim::awaited();
        assert!(!claim.may_begin() && !claim.is_held());
        assert!(!claim.hold(within(SHORT), since_boot()), "came too late");
        assert!(claim.hold(within(SHORT), within(SHORT)));
        assert!(claim.may_begin() && claim.is_held());
        claim.acquired().await;
        timeout(LONG, claim.over()).await.unwrap();
        assert!(!claim.may_begin() && !claim.is_held());
        assert!(!claim.hold(within(LONG), within(LONG)));
        assert!(!claim.is_held());
    }

    #[tokio::test]
    async fn a_claim_that_is_prolonged_goes_on() {
        let claim = Claim::awaited();
        assert!(claim.hold(within(LONG), within(LONG)));
        assert!(timeout(SHORT, claim.over()).await.is_err());
        assert_eq!(claim.bound(async { 1 }).await, Some(1));
        claim.end();
        claim.over().await;
        assert_eq!(claim.bound(async { 1 }).await, None);
    }

    #[tokio::test]
    async fn near_its_end_nothing_begins_and_what_is_under_way_is_cut_off() {
        let claim = Claim::awaited();
        assert!(claim.hold(since_boot(), within(SHORT)));
        assert!(!claim.may_begin() && claim.is_held());
        let cut_off = timeout(LONG, claim.bound(pending::<()>())).await;
        assert_eq!(cut_off.unwrap(), None);
    }

    #[tokio::test]
    async fn after_a_freeze_no_step_is_taken_even_if_no_timer_has_fired() {
        let claim = Claim::awaited();
        assert!(claim.hold(within(SHORT), within(SHORT)));
        let mut steps = 0;
        let work = poll_fn(|context| {
            steps += 1;
            // As a frozen process: time passes, and no timer is looked at.
            std::thread::sleep(SHORT);
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!(claim.bound(work).await, None);
        assert_eq!(steps, 1);
    }

    #[tokio::test]
    async fn a_claim_lapses_while_the_machine_sleeps() {
        static HAS_SLEPT: AtomicBool = AtomicBool::new(false);
        let claim = Claim {
            now: || {
                let slept = u32::from(HAS_SLEPT.load(Ordering::Relaxed)) * LONG;
                since_boot() + slept
            },
            ..Claim::awaited()
        };
        assert!(claim.hold(within(LONG), within(LONG)));
        let mut over = pin!(claim.over());
        assert!(timeout(SHORT, &mut over).await.is_err());
        HAS_SLEPT.store(true, Ordering::Relaxed);
        assert!(!claim.may_begin() && !claim.is_held());
        // Well before the timer fired.
        timeout(LONG / 2, over).await.unwrap();
        assert!(!claim.hold(within(2 * LONG), within(2 * LONG)));
    }

    #[tokio::test]
    async fn a_process_that_is_alone_writes_for_ever() {
        let claim = Claim::unlimited();
        claim.acquired().await;
        assert!(claim.may_begin() && claim.is_held());
        assert!(timeout(SHORT, claim.over()).await.is_err());
        sleep(Duration::ZERO).await;
    }
}
