//! The thread that ticks the epochs of an engine while guests run.
//!
//! A thread of its own, because a runtime whose workers are busy would not tick when it matters.
//! While no guest runs it waits without a timeout, so that an idle host uses no CPU for it.

use std::{
    io,
    ops::ControlFlow,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

/// Ticks while at least one [`Ticking`] lives; dropping it waits for its thread.
pub(super) struct Ticker {
    shared: Arc<TickerShared>,
    thread: Option<JoinHandle<()>>,
}

struct TickerShared {
    demand: Mutex<Demand>,
    /// Notified when the first user arrives, and when the ticker stops.
    wanted: Condvar,
    /// Notified when the ticker stops. A condition variable of its own, so that a user that arrives between two ticks does
    /// not wake the thread.
    stopped: Condvar,
}

#[derive(Default)]
struct Demand {
    /// The number of live [`Ticking`] values.
    users: usize,
    stopped: bool,
}

impl Ticker {
    /// Starts the thread; it ends when `on_tick` breaks.
    pub(super) fn start(
        tick: Duration,
        mut on_tick: impl FnMut() -> ControlFlow<()> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(TickerShared {
            demand: Mutex::default(),
            wanted: Condvar::new(),
            stopped: Condvar::new(),
        });
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("epochs".to_owned())
            .spawn(move || while theirs.wait(tick) && on_tick().is_continue() {})?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Keeps the ticks on until the returned value is dropped.
    pub(super) fn keep_ticking(&self) -> Ticking<'_> {
        let mut demand = self.shared.demand.lock();
        demand.users += 1;
        let wakes = demand.users == 1;
        drop(demand);
        if wakes {
            self.shared.wanted.notify_one();
        }
        Ticking {
            shared: &self.shared,
        }
    }
}

impl TickerShared {
    /// Waits until the next tick; returns false if the ticker has stopped.
    fn wait(&self, tick: Duration) -> bool {
        let mut demand = self.demand.lock();
        let idle = |demand: &mut Demand| demand.users == 0 && !demand.stopped;
        self.wanted.wait_while(&mut demand, idle);
        // Users that arrive or leave in between do not shorten the tick.
        self.stopped
            .wait_while_for(&mut demand, |demand| !demand.stopped, tick);
        !demand.stopped
    }
}

/// A user of the ticks.
#[must_use = "the ticks end with it"]
pub(super) struct Ticking<'a> {
    shared: &'a TickerShared,
}

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        self.shared.demand.lock().users -= 1;
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.demand.lock().stopped = true;
        self.shared.wanted.notify_one();
        self.shared.stopped.notify_one();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that ticks the epochs panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU32, Ordering},
        time::Instant,
    };

    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    fn counted() -> (Ticker, impl Fn() -> u32) {
        let ticks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ticks);
        let ticker = Ticker::start(TICK, move || {
            counted.fetch_add(1, Ordering::SeqCst);
            ControlFlow::Continue(())
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
