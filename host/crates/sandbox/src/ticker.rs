//! The thread that ticks the epochs of an engine while guests run.
//!
//! A thread of its own, because a runtime whose workers are busy would not tick when it matters.
//! It is parked some ticks after the last guest: an idle host uses no CPU for it, and a busy one does not wake it for every
//! call.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// The number of ticks without a guest after which the thread is parked.
///
/// Chosen: 10 ms with the usual tick of 2 ms, more than lies between two calls of a host with work to do.
const IDLE_TICKS: u32 = 5;

/// Ticks while at least one [`Ticking`] lives; dropping it waits for its thread.
pub(super) struct Ticker {
    demand: Arc<Demand>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Demand {
    /// The number of live [`Ticking`] values.
    users: AtomicUsize,
    stopped: AtomicBool,
}

impl Ticker {
    /// Starts the thread.
    pub(super) fn start(tick: Duration, on_tick: impl Fn() + Send + 'static) -> io::Result<Self> {
        let demand = Arc::new(Demand::default());
        let theirs = Arc::clone(&demand);
        let thread = thread::Builder::new()
            .name("epochs".to_owned())
            .spawn(move || {
                let mut idle = IDLE_TICKS;
                while !theirs.stopped.load(Ordering::SeqCst) {
                    if idle == IDLE_TICKS {
                        // A user that arrived before this line has left its token, so that this returns at once.
                        thread::park();
                        idle = 0;
                    }
                    thread::sleep(tick);
                    if theirs.users.load(Ordering::SeqCst) == 0 {
                        idle += 1;
                    } else {
                        idle = 0;
                        on_tick();
                    }
                }
            })?;
        Ok(Self {
            demand,
            thread: Some(thread),
        })
    }

    /// Keeps the ticks on until the returned value is dropped.
    pub(super) fn keep_ticking(&self) -> Ticking<'_> {
        let others = self.demand.users.fetch_add(1, Ordering::SeqCst);
        if let (0, Some(thread)) = (others, &self.thread) {
            thread.thread().unpark();
        }
        Ticking {
            users: &self.demand.users,
        }
    }
}

/// A user of the ticks.
#[must_use = "the ticks end with it"]
pub(super) struct Ticking<'a> {
    users: &'a AtomicUsize,
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.users.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.demand.stopped.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else {
            return;
        };
        thread.thread().unpark();
        if thread.join().is_err() {
            tracing::error!("the thread that ticks the epochs panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicU32, time::Instant};

    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    fn counted() -> (Ticker, impl Fn() -> u32) {
        let ticks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ticks);
        let ticker = Ticker::start(TICK, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        (ticker.unwrap(), move || ticks.load(Ordering::SeqCst))
    }

    fn wait_until(reached: impl Fn() -> bool) {
        let start = Instant::now();
        while !reached() {
            assert!(start.elapsed() < Duration::from_secs(10), "no tick came");
            thread::sleep(TICK);
        }
    }

    #[test]
    fn ticks_only_while_there_is_a_user() {
        let (ticker, ticks) = counted();
        thread::sleep(20 * TICK);
        assert_eq!(ticks(), 0);
        for _ in 0..3 {
            let before = ticks();
            let ticking = (ticker.keep_ticking(), ticker.keep_ticking());
            drop(ticking.0);
            wait_until(|| ticks() >= before + 3);
            drop(ticking.1);
            // A tick may still be on its way.
            thread::sleep(20 * TICK);
            let after = ticks();
            thread::sleep(20 * TICK);
            assert_eq!(ticks(), after);
        }
    }

    #[test]
    fn ends_while_it_waits_and_while_it_ticks() {
        drop(counted());
        let (ticker, ticks) = counted();
        let ticking = ticker.keep_ticking();
        wait_until(|| ticks() > 0);
        drop(ticking);
        drop(ticker);
    }
}
