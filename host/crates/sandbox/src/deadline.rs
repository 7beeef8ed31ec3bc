//! A call's deadline: thread CPU time, with wall time as a backstop.
//!
//! CPU time, because a throttled node must not fault innocent guests. Wall time too, because a guest that uses no CPU
//! must also end.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use wasmtime::{Store, UpdateDeadline};

use crate::{
    call::CallFault,
    state::{Ending, StoreState},
    ticker::Ticker,
};

/// A call is interrupted by the next tick; those that come for other calls find time left.
const NEXT_TICK: u64 = 1;

/// The wall time that a call may take, as a multiple of the CPU time: where a thread gets less than a tenth of a
/// processor, a deadline means nothing.
const WALL_FACTOR: u32 = 10;

/// A running measurement on the calling thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stopwatch {
    cpu: Duration,
    wall: Instant,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        Self {
            cpu: thread_cpu_time(),
            wall: Instant::now(),
        }
    }

    /// Returns the CPU time since the start. Must be called on the thread that started the measurement: the clock is
    /// the thread's own.
    pub(super) fn cpu(&self) -> Duration {
        thread_cpu_time().saturating_sub(self.cpu)
    }

    pub(super) const fn started_at(&self) -> Instant {
        self.wall
    }
}

/// Ends the call at the deadline. Must be called before the instance is made, because start functions are guest code.
pub(super) fn arm(
    store: &mut Store<StoreState>,
    watch: Stopwatch,
    limit: Duration,
    ticker: &Ticker,
) {
    // Before the ticker knows the call: a tick in between interrupts it too early, and never too late.
    store.set_epoch_deadline(NEXT_TICK);
    // The time since the start is never less than the CPU time: so the tick is due no later than the deadline, and the
    // remaining time is watched again.
    let call = ticker.watch(watch.started_at() + limit);
    store.epoch_deadline_callback(move |mut context| {
        let remaining = left(limit, watch.cpu(), watch.wall.elapsed());
        if remaining.is_zero() {
            let ending = Ending::Fault(CallFault::DeadlineExceeded { limit });
            return Err(context.data_mut().end(ending));
        }
        call.postpone(Instant::now() + remaining);
        Ok(UpdateDeadline::Continue(NEXT_TICK))
    });
}

/// Returns how long a call certainly stays within the deadline.
fn left(limit: Duration, cpu: Duration, wall: Duration) -> Duration {
    let wall_left = (limit * WALL_FACTOR).saturating_sub(wall);
    limit.saturating_sub(cpu).min(wall_left)
}

fn thread_cpu_time() -> Duration {
    // Infallible: a thread's time is never negative.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_counts_until_the_wall_time_is_over() {
        let limit = Duration::from_millis(10);
        for (cpu, wall, expected) in [
            (0, 0, 10),
            (4, 50, 6),
            (10, 10, 0),
            (11, 12, 0),
            (4, 97, 3),
            (0, 100, 0),
            (1, 200, 0),
        ] {
            let ms = Duration::from_millis;
            assert_eq!(left(limit, ms(cpu), ms(wall)), ms(expected), "{cpu} {wall}");
        }
    }

    #[test]
    fn cpu_time_grows_with_work_only() {
        let watch = Stopwatch::start();
        let mut sum = 0_u64;
        while watch.cpu() < Duration::from_millis(1) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(watch.started_at().elapsed() >= Duration::from_micros(900));
    }
}
