//! The write limit of a parent: a token bucket that fills evenly, and a breaker that opens when the bucket is empty.
//!
//! Pure: every call gets the time.
//! Without the breaker, a plugin that wants a different object in every pass would write at the highest rate for ever,
//! and the parent's condition would change with every write.

use std::time::Duration;

use innkeeper_model::{Rate, TokenBucket};
use tokio::time::Instant;

/// The period of the limit, which is a number of writes per minute.
const MINUTE: Duration = Duration::from_mins(1);

/// The write limit of one parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Budget {
    bucket: TokenBucket<Instant>,
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
        let burst = u64::from(per_minute_max.max(1));
        let rate = Rate {
            burst,
            refill: MINUTE,
        };
        if wanted == 0 {
            return Allowance {
                writes: 0,
                wait: None,
            };
        }
        // Half a bucket, so that a parent over its limit pauses visibly and then writes a whole plan, instead of one
        // write per interval.
        let resume = burst.div_ceil(2);
        self.open &= self.bucket.available(rate, now) < resume;
        let writes = if self.open {
            0
        } else {
            let wanted = u64::try_from(wanted).unwrap_or(u64::MAX);
            usize::try_from(self.bucket.take(wanted, rate, now)).unwrap_or(usize::MAX)
        };
        self.open |= writes < wanted;
        let wait = self.open.then(|| self.bucket.wait(resume, rate, now));
        Allowance { writes, wait }
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
