//! The token bucket: a rate with bursts.
//!
//! Pure: every call brings the time.

use std::{
    ops::{Add, Sub},
    time::Duration,
};

/// A bucket's size, and how fast it fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Tokens in a full bucket; a bucket has room for at least one.
    pub burst: u64,
    /// The time in which an empty bucket fills up.
    pub refill: Duration,
}

/// A bucket that fills evenly and is full at first.
///
/// The state is one moment: when the bucket is full again. Token fractions are therefore kept exactly,
/// and a changed rate applies at once to a bucket in use.
///
/// `T` is a moment on any clock: `Instant` from the standard library or tokio, or a `Duration` since a fixed moment.
/// All calls for one bucket must use the same clock. Time before the last call counts as no time.
///
/// ```
/// # use innkeeper_model::{Rate, TokenBucket};
/// # use std::time::Duration;
/// let second = Duration::from_secs(1);
/// let rate = Rate { burst: 10, refill: second };
/// let mut bucket = TokenBucket::default();
/// assert_eq!(bucket.take(8, rate, second), 8);
/// assert_eq!(bucket.take(8, rate, second), 2);
/// assert_eq!(bucket.wait(5, rate, second), second / 2);
/// assert_eq!(bucket.available(rate, second + second / 2), 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket<T> {
    /// The moment at which the bucket is full; none if no token was ever taken.
    full_at: Option<T>,
}

// Not derived: that would ask `T` for a default, which an instant does not have.
impl<T> Default for TokenBucket<T> {
    fn default() -> Self {
        Self { full_at: None }
    }
}

impl<T> TokenBucket<T>
where
    T: Copy + Ord + Add<Duration, Output = T> + Sub<Output = Duration>,
{
    /// Returns how many whole tokens there are.
    pub fn available(&self, rate: Rate, now: T) -> u64 {
        // A rate without a refill time divides by one instead of zero, and its bucket is always full.
        let refill = rate.refill.as_nanos().max(1);
        let tokens = refill
            .saturating_sub(self.missing(now).as_nanos())
            .saturating_mul(u128::from(rate.burst.max(1)))
            / refill;
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    /// Takes at most `wanted` tokens and returns how many it took.
    pub fn take(&mut self, wanted: u64, rate: Rate, now: T) -> u64 {
        let taken = wanted.min(self.available(rate, now));
        if taken > 0 {
            self.full_at = Some(now + self.missing(now) + rate.time_for(taken));
        }
        taken
    }

    /// Takes `wanted` tokens, or none if there are fewer, and returns true if it took them.
    pub fn take_all(&mut self, wanted: u64, rate: Rate, now: T) -> bool {
        wanted <= self.available(rate, now) && self.take(wanted, rate, now) == wanted
    }

    /// Returns the time until `wanted` tokens are there if none is taken before; for more than a full bucket holds, the
    /// time until it is full.
    pub fn wait(&self, wanted: u64, rate: Rate, now: T) -> Duration {
        let may_be_missing = rate.refill.saturating_sub(rate.time_for(wanted));
        self.missing(now).saturating_sub(may_be_missing)
    }

    /// Returns the time until the bucket is full.
    fn missing(&self, now: T) -> Duration {
        match self.full_at {
            // Compared first, because not every clock's difference saturates.
            Some(full_at) if full_at > now => full_at - now,
            _ => Duration::ZERO,
        }
    }
}

impl Rate {
    /// Returns how long a bucket takes to gain this many tokens, at most a full bucket.
    /// Rounded up: a bucket never gains more than the rate.
    fn time_for(self, tokens: u64) -> Duration {
        let burst = self.burst.max(1);
        let nanos = self
            .refill
            .as_nanos()
            .saturating_mul(u128::from(tokens.min(burst)));
        Duration::from_nanos_u128(nanos.div_ceil(u128::from(burst)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const TEN_PER_SECOND: Rate = Rate {
        burst: 10,
        refill: SECOND,
    };

    #[test]
    fn a_bucket_gives_a_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::default();
        // (milliseconds, wanted, taken, available after that)
        for (millis, wanted, taken, left) in [
            (0, 4, 4, 6),
            (0, 10, 6, 0),
            (99, 1, 0, 0),
            (100, 1, 1, 0),
            (250, 1, 1, 0),
            // The half token of the line before is not lost.
            (300, 1, 1, 0),
            (60_000, 20, 10, 0),
            // A clock that goes back gives no tokens.
            (10, 1, 0, 0),
        ] {
            let now = Duration::from_millis(millis);
            assert_eq!(bucket.take(wanted, TEN_PER_SECOND, now), taken, "{millis}");
            assert_eq!(bucket.available(TEN_PER_SECOND, now), left, "{millis}");
        }
    }

    #[test]
    fn takes_all_or_nothing() {
        let mut bucket = TokenBucket::default();
        assert!(bucket.take_all(7, TEN_PER_SECOND, SECOND));
        assert!(!bucket.take_all(4, TEN_PER_SECOND, SECOND));
        assert!(bucket.take_all(3, TEN_PER_SECOND, SECOND));
        assert!(bucket.take_all(0, TEN_PER_SECOND, SECOND));
    }

    #[test]
    fn there_is_as_much_as_wanted_after_the_wait() {
        for burst in [1, 3, 7, 299, 1_000_000_007] {
            let rate = Rate {
                burst,
                refill: Duration::from_mins(1),
            };
            for wanted in [1, burst.div_ceil(2), burst] {
                let mut bucket = TokenBucket::default();
                bucket.take(burst, rate, SECOND);
                let wait = bucket.wait(wanted, rate, SECOND);
                assert!(!wait.is_zero());
                assert!(bucket.available(rate, SECOND + wait) >= wanted, "{rate:?}");
                // The rounding is less than a nanosecond.
                let before = SECOND + wait.saturating_sub(Duration::from_nanos(2));
                assert!(bucket.available(rate, before) < wanted, "{rate:?}");
            }
        }
    }

    #[test]
    fn a_changed_rate_applies_at_once() {
        let mut bucket = TokenBucket::default();
        bucket.take(5, TEN_PER_SECOND, SECOND);
        let doubled = Rate {
            burst: 20,
            refill: SECOND,
        };
        assert_eq!(bucket.available(doubled, SECOND), 10);
    }

    #[test]
    fn an_empty_rate_still_lets_one_pass() {
        let rate = Rate {
            burst: 0,
            refill: Duration::ZERO,
        };
        let mut bucket = TokenBucket::default();
        assert_eq!(bucket.take(5, rate, SECOND), 1);
        assert_eq!(bucket.wait(1, rate, SECOND), Duration::ZERO);
    }
}
