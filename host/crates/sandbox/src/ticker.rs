//! The thread that advances an engine's epoch when a call may have exceeded its deadline.
//!
//! A separate thread, because a runtime whose workers are busy would not tick when it matters.
//! It sleeps until the first deadline among the running calls, and nearly all end long before: a busy host wakes it
//! a few times per second, an idle one never.

use std::{
    io,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use slab::Slab;

/// The time between two ticks for calls that a tick has not interrupted yet: they wait for a processor or for the host,
/// or the tick came while they set a later time.
const PAUSE: Duration = Duration::from_millis(1);

/// Ticks when a [`Watched`] call's time has come; dropping it waits for the thread.
pub(super) struct Ticker {
    calls: Arc<Calls>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Calls {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The running calls' times.
    due: Slab<Instant>,
    /// The time until which the thread sleeps; none while it waits for a call.
    sleeps_until: Option<Instant>,
    stopped: bool,
}

impl Ticker {
    /// Starts the thread.
    pub(super) fn start(on_tick: impl Fn() + Send + 'static) -> io::Result<Self> {
        let calls = Arc::<Calls>::default();
        let theirs = Arc::clone(&calls);
        let thread = thread::Builder::new()
            .name("epochs".to_owned())
            .spawn(move || theirs.serve(on_tick))?;
        Ok(Self {
            calls,
            thread: Some(thread),
        })
    }

    /// Ticks at `due`, and then again and again, until the returned value is dropped or has another time.
    pub(super) fn watch(&self, due: Instant) -> Watched {
        let mut state = self.calls.state.lock();
        let key = state.due.insert(due);
        // At a later time the thread is awake anyway, because it looks at all times when the first one comes.
        let wakes = state.sleeps_until.is_none_or(|until| due < until);
        // Released first: the woken thread needs the lock.
        drop(state);
        if wakes {
            self.calls.changed.notify_one();
        }
        Watched {
            calls: Arc::clone(&self.calls),
            key,
        }
    }
}

impl Calls {
    fn serve(&self, on_tick: impl Fn()) {
        let mut state = self.state.lock();
        while !state.stopped {
            state.sleeps_until = state.due.iter().map(|(_, due)| *due).min();
            match state.sleeps_until {
                None => self.changed.wait(&mut state),
                Some(due) if due > Instant::now() => {
                    self.changed.wait_until(&mut state, due);
                }
                // Calls begin and end meanwhile, and an interrupted call takes this lock to postpone.
                Some(_) => MutexGuard::unlocked(&mut state, || {
                    on_tick();
                    thread::sleep(PAUSE);
                }),
            }
        }
    }
}

/// A call that a tick interrupts at its time.
#[must_use = "no tick comes after it is dropped"]
pub(super) struct Watched {
    calls: Arc<Calls>,
    key: usize,
}

impl Watched {
    /// Sets a later time.
    pub(super) fn postpone(&self, due: Instant) {
        // The thread sleeps at most until the old time: it need not be woken.
        self.calls.state.lock().due[self.key] = due;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // The thread is not woken: nearly all calls end early, and it then wakes up once in vain.
        self.calls.state.lock().due.remove(self.key);
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.calls.state.lock().stopped = true;
        self.calls.changed.notify_one();
        let Some(thread) = self.thread.take() else {
            return;
        };
        if thread.join().is_err() {
            tracing::error!("the thread that ticks the epochs panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    };

    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_mins(10);

    fn counted() -> (Ticker, impl Fn() -> u32) {
        let ticks = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&ticks);
        let ticker = Ticker::start(move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        (ticker.unwrap(), move || ticks.load(Ordering::SeqCst))
    }

    fn wait_until(reached: impl Fn() -> bool) {
        let start = Instant::now();
        while !reached() {
            assert!(start.elapsed() < Duration::from_secs(10), "no tick came");
            thread::sleep(PAUSE);
        }
    }

    #[test]
    fn ticks_from_the_first_time_of_a_call_until_it_ends() {
        let (ticker, ticks) = counted();
        for _ in 0..3 {
            let before = ticks();
            let now = Instant::now();
            let late = ticker.watch(now + LATE);
            let soon = ticker.watch(now + SOON);
            wait_until(|| ticks() > before);
            assert!(now.elapsed() >= SOON);
            // The call continues after the first tick.
            wait_until(|| ticks() > before + 2);
            drop(soon);
            wait_until(|| ticker.calls.state.lock().sleeps_until == Some(now + LATE));
            drop(late);
        }
    }

    #[test]
    fn a_call_with_more_time_is_interrupted_later() {
        let call = Arc::new(Mutex::new(None::<Watched>));
        let (sender, times) = mpsc::channel();
        let theirs = Arc::clone(&call);
        let ticker = Ticker::start(move || {
            let now = Instant::now();
            if let Some(call) = &*theirs.lock() {
                call.postpone(now + SOON);
            }
            _ = sender.send(now);
        })
        .unwrap();
        let mut call = call.lock();
        *call = Some(ticker.watch(Instant::now()));
        drop(call);
        let next = || times.recv_timeout(Duration::from_secs(10)).unwrap();
        let mut last = next();
        for _ in 0..3 {
            let now = next();
            assert!(now >= last + SOON);
            last = now;
        }
    }

    #[test]
    fn ends_while_it_waits_sleeps_and_ticks() {
        drop(counted());
        for due in [Instant::now(), Instant::now() + LATE] {
            let (ticker, _) = counted();
            let call = ticker.watch(due);
            drop(ticker);
            drop(call);
        }
    }
}
