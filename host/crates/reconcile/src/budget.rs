//! The write limit of a parent: a token bucket that fills evenly, and a breaker that opens when the bucket is empty.
//!
//! Pure: every call gets the time.
//! Without the breaker, a plugin that wants a different object in every pass would write at the highest rate for ever,
//! and the parent's condition would change with every write.

use std::time::Duration;

use tokio::time::Instant;

/// The period of the limit, which is a number of writes per minute.
const MINUTE: Duration = Duration::from_mins(1);

/// The token bucket of one parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Budget {
    /// The time at which all writes so far would have ended at an even rate; none before the first write.
    ///
    /// One time instead of a number of tokens, because it needs no update while time passes.
    spent: Option<Instant>,
    /// The breaker: a write found the bucket empty, and the bucket is not yet half full again.
    open: bool,
}

/// The answer to a request for writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// The number of writes that are allowed now.
    pub(super) writes: usize,
    /// The time until more writes are allowed; none if all wanted writes are.
    pub(super) wait: Option<Duration>,
}

impl Budget {
    /// Takes up to `wanted` tokens from the bucket, which holds `per_minute_max` and fills up in a minute.
    pub(super) fn take(&mut self, wanted: usize, per_minute_max: u32, now: Instant) -> Allowance {
        let capacity = per_minute_max.max(1);
        let interval = MINUTE / capacity;
        // Half a bucket, so that a parent over its limit pauses visibly and then writes a whole plan, instead of one
        // write per interval.
        let resume = capacity.div_ceil(2);
        if wanted == 0 {
            return Allowance {
                writes: 0,
                wait: None,
            };
        }
        self.open &= self.available(interval, capacity, now) < resume;
        let available = if self.open {
            0
        } else {
            self.available(interval, capacity, now)
        };
        let granted = available.min(u32::try_from(wanted).unwrap_or(u32::MAX));
        let spent = self.spent.map_or(now, |spent| spent.max(now));
        self.spent = Some(spent + interval * granted);
        let writes = usize::try_from(granted).unwrap_or(usize::MAX);
        self.open |= writes < wanted;
        let wait = self
            .open
            .then(|| self.until(interval, capacity, resume, now));
        Allowance { writes, wait }
    }

    /// Returns the number of tokens left.
    fn available(&self, interval: Duration, capacity: u32, now: Instant) -> u32 {
        let used = self
            .used(now)
            .as_nanos()
            .div_ceil(interval.as_nanos().max(1));
        capacity.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX))
    }

    /// Returns the time until `wanted` tokens are left.
    fn until(&self, interval: Duration, capacity: u32, wanted: u32, now: Instant) -> Duration {
        let may_be_used = interval * capacity.saturating_sub(wanted);
        self.used(now).saturating_sub(may_be_used)
    }

    /// Returns the lead of the writes over an even rate.
    fn used(&self, now: Instant) -> Duration {
        self.spent
            .map_or(Duration::ZERO, |spent| spent.saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_parent_below_the_rate_never_waits() {
        let start = Instant::now();
        let mut budget = Budget::default();
        for minute in 0..10 {
            let now = start + MINUTE * minute;
            let expected = Allowance {
                writes: 120,
                wait: None,
            };
            assert_eq!(budget.take(120, 120, now), expected);
        }
        for half_second in 0..1000_u32 {
            let now = start + MINUTE * 11 + (SECOND / 2) * half_second;
            assert_eq!(budget.take(1, 120, now).writes, 1);
        }
    }

    #[test]
    fn writes_over_the_limit_wait_until_the_bucket_is_half_full() {
        let now = Instant::now();
        let mut budget = Budget::default();
        let first = budget.take(256, 120, now);
        assert_eq!((first.writes, first.wait), (120, Some(SECOND * 30)));
        let early = budget.take(136, 120, now + SECOND * 29);
        assert_eq!((early.writes, early.wait), (0, Some(SECOND)));
        let next = budget.take(136, 120, now + SECOND * 30);
        assert_eq!((next.writes, next.wait), (60, Some(SECOND * 30)));
        let last = budget.take(16, 120, now + SECOND * 60);
        assert_eq!((last.writes, last.wait), (16, None));
    }

    #[test]
    fn a_limit_of_one_allows_one_write_per_minute() {
        let now = Instant::now();
        let mut budget = Budget::default();
        assert_eq!(budget.take(1, 1, now).writes, 1);
        assert_eq!(budget.take(1, 1, now + SECOND * 59).writes, 0);
        assert_eq!(budget.take(1, 1, now + SECOND * 60).writes, 1);
    }

    proptest! {
        /// Q6: for any numbers of wanted writes at any times.
        #[test]
        fn q6_the_rate_is_kept_and_the_wait_is_enough(
            limit in 1..300_u32,
            wants in proptest::collection::vec((0..40_000_u64, 0..400_usize), 1..60),
        ) {
            let start = Instant::now();
            let mut now = start;
            let mut budget = Budget::default();
            let mut written = 0;
            for (pause_ms, wanted) in wants {
                now += Duration::from_millis(pause_ms);
                let allowance = budget.take(wanted, limit, now);
                written += allowance.writes;
                prop_assert!(allowance.writes <= wanted);
                prop_assert_eq!(allowance.wait.is_none(), allowance.writes == wanted);
                let minutes = (now - start).as_secs_f64() / 60.0;
                let most = f64::from(limit) * (minutes + 1.0) + 1.0;
                prop_assert!(f64::from(u32::try_from(written).unwrap()) <= most);
                if let Some(wait) = allowance.wait {
                    let mut later = budget;
                    let later = later.take(1, limit, now + wait);
                    prop_assert_eq!(later.writes, 1, "a write should be allowed after the wait");
                }
            }
        }
    }
}
