//! Schedules resyncs, which give every parent a pass without a known change.
//!
//! A level-triggered controller misses nothing as long as every change makes a trigger. Resyncs limit how long a change
//! without a trigger stays unnoticed. Pure: every call gets the time.

use std::time::Duration;

use fastrand::Rng;

/// The largest difference between an interval and the period, as a share, so that plugins that started together drift
/// apart. The same as for controller-runtime's `SyncPeriod`.
const JITTER: f64 = 0.1;

/// The resyncs of one parent kind.
#[derive(Debug)]
pub(super) struct Resync {
    period: Duration,
    due: Duration,
    rng: Rng,
}

impl Resync {
    /// Starts the resyncs; the first one is due a period from now, because a start lists all parents anyway.
    pub(super) fn new(period: Duration, seed: u64, now: Duration) -> Self {
        let mut rng = Rng::with_seed(seed);
        Self {
            due: now.saturating_add(jittered(period, &mut rng)),
            period,
            rng,
        }
    }

    /// Returns true if a resync is due; then the next one is due a period from now, even if this one is late.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.due;
        if is_due {
            self.due = now.saturating_add(jittered(self.period, &mut self.rng));
        }
        is_due
    }
}

fn jittered(period: Duration, rng: &mut Rng) -> Duration {
    period.mul_f64(1.0 - JITTER + 2.0 * JITTER * rng.f64())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Never due before 90 % of the period, always due after 110 %.
        #[test]
        fn resyncs_come_once_in_a_period_with_jitter(
            seed in any::<u64>(),
            period_s in 1_u64..100_000,
            late_s in prop::collection::vec(0_u64..200_000, 1..20),
        ) {
            let start = Duration::from_hours(1);
            let period = Duration::from_secs(period_s);
            let mut resync = Resync::new(period, seed, start);
            let mut last = start;
            for late in late_s {
                let earliest = last + period.mul_f64(0.9);
                let latest = last + period.mul_f64(1.1);
                prop_assert!(!resync.is_due(earliest.saturating_sub(Duration::from_micros(1))));
                last = latest + Duration::from_secs(late);
                prop_assert!(resync.is_due(last), "after {last:?}");
                prop_assert!(!resync.is_due(last), "it should be due only once");
            }
            let mut other = Resync::new(period, seed ^ 1, start);
            prop_assert_ne!(Resync::new(period, seed, start).due, other.due);
            prop_assert!(other.is_due(Duration::MAX), "the largest time should not overflow");
        }
    }
}
