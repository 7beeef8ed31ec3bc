//! The delays between attempts.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// Delays that double from the first to the longest one, without an end.
///
/// ```
/// # use innkeeper_model::Backoff;
/// # use std::time::Duration;
/// let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(3));
/// let delays: Vec<u64> = (0..4).map(|_| backoff.delay().as_secs()).collect();
/// assert_eq!(delays, [1, 2, 3, 3]);
/// ```
#[derive(Debug)]
pub struct Backoff {
    delays: ExponentialBackoff,
    max: Duration,
}

impl Backoff {
    /// Returns delays from `min` to `max`.
    pub fn new(min: Duration, max: Duration) -> Self {
        Self::from_builder(builder(min, max), max)
    }

    /// Returns delays from `min` to `max`, the jitter of this seed included: what failed together is not repeated
    /// together.
    pub fn with_jitter(min: Duration, max: Duration, seed: u64) -> Self {
        // Jitter adds up to the same time again.
        let builder = builder(min, max / 2).with_jitter().with_jitter_seed(seed);
        Self::from_builder(builder, max)
    }

    fn from_builder(builder: ExponentialBuilder, max: Duration) -> Self {
        Self {
            delays: builder.build(),
            max,
        }
    }

    /// Returns the delay before the next attempt.
    pub fn delay(&mut self) -> Duration {
        self.delays
            .next()
            .map_or(self.max, |delay| delay.min(self.max))
    }
}

fn builder(min: Duration, max: Duration) -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(min)
        .with_max_delay(max)
        .without_max_times()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_with_jitter_grow_and_stay_within_the_bounds() {
        let min = Duration::from_millis(100);
        let max = Duration::from_secs(10);
        for seed in 0..100 {
            let mut backoff = Backoff::with_jitter(min, max, seed);
            let mut floor = min;
            for _ in 0..50 {
                let delay = backoff.delay();
                assert!(floor <= delay && delay <= max, "{seed}: {delay:?}");
                floor = (floor * 2).min(max / 2);
            }
        }
        let first = |seed| Backoff::with_jitter(min, max, seed).delay();
        assert_ne!(first(1), first(2));
    }
}
