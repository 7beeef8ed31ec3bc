//! The claim: proof that this process is the one that may write, and until when.
//!
//! The lease's holder extends it. Every write checks it right before it is sent, and is cut off when it expires.
//! Times come from [`since_boot`]: the claim lapses while the machine sleeps, too. Once it is over it stays over. A claim
//! that was [given up](Claim::give_up) may be held again, because no write was under way at that time.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use tokio::{sync::watch, time::sleep};
use tokio_util::task::TaskTracker;

use crate::clock::since_boot;

/// The interval at which the clock itself is read, because a timer stands still while the machine sleeps. So a claim that
/// lapsed during sleep is noticed at most this long after the wake-up; other hosts wait five seconds longer than the holder.
const LOOK: Duration = Duration::from_secs(1);

/// A claim; clones share it.
#[derive(Clone, Debug)]
pub struct Claim {
    state: Arc<watch::Sender<State>>,
    /// Counts the bound work. Always closed, so that a wait ends when none is left.
    work: TaskTracker,
    now: fn() -> Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    term: Term,
    /// The number of times that the claim was given up. Work of an earlier term never continues in a later one.
    number: u64,
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
    /// This process is giving up the claim: no write begins.
    Draining {
        /// The time at which running writes are cut off.
        until: Duration,
    },
    /// Another process may write, and this one never again.
    Over,
}

impl State {
    /// Returns the time at which work from the term with this number is cut off; none if never, and zero if it was cut off
    /// already.
    fn work_until(self, number: u64) -> Option<Duration> {
        match self.term {
            _ if self.number != number => Some(Duration::ZERO),
            Term::Unlimited => None,
            Term::Held { until, .. } | Term::Draining { until } => Some(until),
            Term::Awaited | Term::Over => Some(Duration::ZERO),
        }
    }

    /// Returns the time at which the claim is over for ever, as far as known.
    fn over_at(self) -> Option<Duration> {
        match self.term {
            Term::Held { until, .. } => Some(until),
            Term::Over => Some(Duration::ZERO),
            Term::Unlimited | Term::Awaited | Term::Draining { .. } => None,
        }
    }
}

impl Claim {
    fn new(term: Term) -> Self {
        let work = TaskTracker::new();
        work.close();
        Self {
            state: Arc::new(watch::Sender::new(State { term, number: 0 })),
            work,
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
    /// Returns whether it is held afterwards: an expired claim is never held again, and one that is being given up only
    /// after that.
    pub fn hold(&self, begin_until: Duration, until: Duration) -> bool {
        let now = (self.now)();
        self.state.send_modify(|state| {
            state.term = match state.term {
                // The answer came after the time that it grants: another host may hold the lease by now.
                Term::Awaited if until <= now => Term::Awaited,
                Term::Awaited => Term::Held { begin_until, until },
                Term::Held { until: last, .. } if now < last => Term::Held { begin_until, until },
                // It lapsed before this renewal: another host may have written since, so this one ends.
                Term::Held { .. } | Term::Over => Term::Over,
                term @ (Term::Draining { .. } | Term::Unlimited) => term,
            };
        });
        matches!(self.term(), Term::Held { .. } | Term::Unlimited)
    }

    /// Gives up a held claim for another process: no further write begins, and running writes end. Afterwards it is
    /// awaited and may be held again.
    ///
    /// Returns when no write is under way, at the latest when the claim would have lapsed. Otherwise does nothing: if the
    /// claim is not held, or unlimited. If the caller stops waiting, the claim must be [ended](Self::end).
    pub async fn give_up(&self) {
        self.state.send_modify(|state| {
            if let Term::Held { until, .. } = state.term {
                state.term = Term::Draining { until };
            }
        });
        let Term::Draining { until } = self.term() else {
            return;
        };
        tokio::select! {
            () = self.work.wait() => {}
            () = self.lapse(until) => {}
        }
        self.state.send_modify(|state| {
            // Unless it was ended meanwhile.
            if let Term::Draining { .. } = state.term {
                *state = State {
                    term: Term::Awaited,
                    number: state.number + 1,
                };
            }
        });
    }

    /// Ends the claim for ever: no further write begins, and running writes are cut off.
    pub fn end(&self) {
        self.state.send_modify(|state| state.term = Term::Over);
    }

    fn term(&self) -> Term {
        self.state.borrow().term
    }

    /// Waits until it is held.
    pub async fn acquired(&self) {
        let mut states = self.state.subscribe();
        let is_held = |state: &State| matches!(state.term, Term::Unlimited | Term::Held { .. });
        // The sender lives as long as `self`.
        if states.wait_for(is_held).await.is_err() {
            std::future::pending().await
        }
    }

    /// Waits until it is over for ever; without end, if it is never held, never ends or is given up.
    pub async fn over(&self) {
        self.reached(State::over_at).await;
    }

    /// Waits for the time that `end` returns for the present state; none: never.
    async fn reached(&self, end: impl Fn(State) -> Option<Duration>) {
        let mut states = self.state.subscribe();
        loop {
            let end = end(*states.borrow_and_update());
            let lapse = async {
                match end {
                    Some(end) => self.lapse(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = lapse => return,
                // Renewed, given up or ended: the new end counts.
                _ = states.changed() => {}
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
        let number = self.state.borrow().number;
        self.is_held_since(number)
    }

    fn is_held_since(&self, number: u64) -> bool {
        // Nothing changes the term when its time is over, so the clock decides.
        let until = self.state.borrow().work_until(number);
        until.is_none_or(|until| (self.now)() < until)
    }

    /// Returns whether a write may begin: a little before the claim ends, and while it is given up, none does.
    pub fn may_begin(&self) -> bool {
        match self.term() {
            Term::Unlimited => true,
            Term::Held { begin_until, .. } => (self.now)() < begin_until,
            Term::Awaited | Term::Draining { .. } | Term::Over => false,
        }
    }

    /// Runs work until the claim ends; none if the work was cut off.
    pub async fn bound<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let number = self.state.borrow().number;
        let _counted = self.work.token();
        let mut over = pin!(self.reached(|state| state.work_until(number)));
        let mut work = pin!(work);
        poll_fn(|context| {
            // After the process was frozen, timers may be late: the clock is read before each step.
            // `over` is polled for its timer: work that nothing wakes is cut off as well.
            if !self.is_held_since(number) || over.as_mut().poll(context).is_ready() {
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
        cell::Cell,
        future::pending,
        sync::atomic::{AtomicBool, Ordering},
    };

    use tokio::{sync::oneshot, time::timeout};

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
    async fn giving_up_waits_for_running_writes_and_lets_none_begin() {
        let claim = Claim::awaited();
        claim.give_up().await;
        assert!(claim.hold(within(LONG), within(LONG)));
        let (end, ended) = oneshot::channel::<()>();
        let mut write = pin!(claim.bound(ended));
        assert!(timeout(SHORT, &mut write).await.is_err());
        let mut giving_up = pin!(claim.give_up());
        assert!(timeout(SHORT, &mut giving_up).await.is_err());
        assert!(!claim.may_begin() && claim.is_held());
        assert!(!claim.hold(within(LONG), within(LONG)), "a late renewal");
        assert!(timeout(SHORT, claim.over()).await.is_err());
        end.send(()).unwrap();
        assert_eq!(write.await, Some(Ok(())));
        timeout(LONG / 2, giving_up).await.unwrap();
        assert!(!claim.may_begin() && !claim.is_held());
        assert!(claim.hold(within(LONG), within(LONG)));
        assert!(claim.may_begin());
    }

    #[tokio::test]
    async fn giving_up_ends_when_the_claim_lapses_and_its_work_never_goes_on() {
        let claim = Claim::awaited();
        assert!(claim.hold(within(SHORT), within(SHORT)));
        let steps = Cell::new(0);
        let mut write = pin!(claim.bound(poll_fn(|_| {
            steps.set(steps.get() + 1);
            Poll::<()>::Pending
        })));
        assert!(timeout(Duration::ZERO, &mut write).await.is_err());
        let before = steps.get();
        timeout(LONG, claim.give_up()).await.unwrap();
        assert!(claim.hold(within(LONG), within(LONG)));
        assert_eq!(write.await, None);
        assert_eq!(steps.get(), before);
        claim.end();
        claim.give_up().await;
        claim.over().await;
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
