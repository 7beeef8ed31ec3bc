//! How many writes a parent may have: a bucket that fills evenly, and a breaker that opens when it is empty.
//!
//! Pure; time comes in with every call.
//! Without the breaker a plugin that wants another thing in every pass would write at the highest rate for ever, and
//! the parent's condition would change with every write.

use std::time::Duration;

use tokio::time::Instant;

const MINUTE: Duration = Duration::from_mins(1);

/// The writes of one parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Budget {
    /// When all writes so far would be over if they were spread out evenly; none: there were none.
    spent: Option<Instant>,
    /// It was empty when somebody wanted to write, and is not half full again.
    open: bool,
}

/// What somebody who wants to write gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// How many writes may be done now.
    pub(super) writes: usize,
    /// How long to wait for more; none if these are all that were wanted.
    pub(super) wait: Option<Duration>,
}

impl Budget {
    /// Takes as much as there is of `wanted` writes, at most `per_minute_max` in any minute.
    pub(super) fn take(&mut self, wanted: usize, per_minute_max: u32, now: Instant) -> Allowance {
        let capacity = per_minute_max.max(1);
        let interval = MINUTE / capacity;
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

    /// How many writes are left.
    fn available(&self, interval: Duration, capacity: u32, now: Instant) -> u32 {
        let used = self
            .used(now)
            .as_nanos()
            .div_ceil(interval.as_nanos().max(1));
        capacity.saturating_sub(u32::try_from(used).unwrap_or(u32::MAX))
    }

    /// How long until so many writes are left.
    fn until(&self, interval: Duration, capacity: u32, wanted: u32, now: Instant) -> Duration {
        let may_be_used = interval * capacity.saturating_sub(wanted);
        self.used(now).saturating_sub(may_be_used)
    }

    /// How far ahead of an even rate the writes are.
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
    fn what_is_too_much_is_held_back_until_half_of_it_is_back() {
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
    fn a_limit_of_one_is_one_a_minute() {
        let now = Instant::now();
        let mut budget = Budget::default();
        assert_eq!(budget.take(1, 1, now).writes, 1);
        assert_eq!(budget.take(1, 1, now + SECOND * 59).writes, 0);
        assert_eq!(budget.take(1, 1, now + SECOND * 60).writes, 1);
    }

    proptest! {
        /// Q6: whatever is wanted, and when.
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
                    prop_assert_eq!(later.writes, 1, "after the wait there is something");
                }
            }
        }
    }
}
