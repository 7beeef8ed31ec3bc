//! Write limits for parents and namespaces: a token bucket, and a breaker that opens when the bucket is empty.
//!
//! Pure: every call gets the time.
//! Without the breaker, a plugin whose answer differs in every pass would write at the highest rate for ever, and the
//! parent's condition would change with every write.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use innkeeper_model::{Limits, NAMESPACE_BURST, PluginName, Rate, TokenBucket};
use parking_lot::Mutex;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_mins(1);

/// Returns the write limit for each parent.
pub(crate) fn parent_rate(limits: &Limits) -> Rate {
    Rate {
        burst: u64::from(limits.writes_per_minute_max.max(1)),
        refill: MINUTE,
    }
}

/// Returns the write limit for each namespace.
pub(crate) fn namespace_rate(limits: &Limits) -> Rate {
    let per_second = u64::from(limits.writes_per_second_max.max(1));
    Rate {
        burst: per_second * NAMESPACE_BURST.as_secs(),
        refill: NAMESPACE_BURST,
    }
}

/// A write limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WriteLimit {
    bucket: TokenBucket<Instant>,
    /// The breaker: a write met an empty bucket, which is not yet half full again.
    open: bool,
}

/// The writes that a limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// The writes that are allowed now.
    pub(crate) writes: usize,
    /// The time until more writes are allowed; `None` if all requested writes are.
    pub(crate) wait: Option<Duration>,
}

impl WriteLimit {
    /// Takes up to `count` tokens from the bucket.
    pub(crate) fn take(&mut self, count: usize, rate: Rate, now: Instant) -> Allowance {
        // Without writes, an open breaker makes nobody wait.
        if count == 0 {
            return Allowance {
                writes: 0,
                wait: None,
            };
        }
        let writes = count.min(self.free(rate, now));
        self.bucket.take(to_u64(writes), rate, now);
        self.open |= writes < count;
        let wait = self.open.then(|| self.bucket.wait(resume(rate), rate, now));
        Allowance { writes, wait }
    }

    /// Returns how many writes are allowed now.
    pub(crate) fn free(&mut self, rate: Rate, now: Instant) -> usize {
        let available = self.bucket.available(rate, now);
        self.open &= available < resume(rate);
        if self.open {
            return 0;
        }
        usize::try_from(available).unwrap_or(usize::MAX)
    }

    /// Returns the used share of the bucket.
    fn used(&self, rate: Rate, now: Instant) -> Share {
        let used = rate.burst.saturating_sub(self.bucket.available(rate, now));
        Share::new(used, rate.burst)
    }
}

/// Returns how many tokens close the breaker: half a bucket, so that a parent over its limit pauses visibly and then writes
/// a whole plan, instead of one write per interval.
const fn resume(rate: Rate) -> u64 {
    rate.burst.div_ceil(2)
}

/// The used share of a limit, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    /// Divides `used` by `limit`; at most 1.
    pub(crate) fn new(used: u64, limit: u64) -> Self {
        let limit = u128::from(limit.max(1));
        let used = u128::from(used).min(limit);
        Self(u32::try_from(used * 1000 / limit).unwrap_or(1000))
    }

    /// Returns the whole percents.
    pub const fn percent(self) -> u32 {
        self.0 / 10
    }

    /// Returns the share as a number from 0 to 1.
    pub fn ratio(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

pub(crate) fn to_u64(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// All plugins' write limits in their parents' namespaces; cluster-scoped parents share the empty name.
#[derive(Debug, Default)]
pub struct NamespaceBudgets(Mutex<BTreeMap<(PluginName, Arc<str>), WriteLimit>>);

impl NamespaceBudgets {
    /// Takes up to `count` writes from the limits of a parent and its namespace; `parent` takes them from the parent's.
    ///
    /// Neither is charged for a write that the other one refuses. Returns true if the namespace's limit is the lower one.
    pub(crate) fn take(
        &self,
        place: (&PluginName, Option<&str>),
        rate: Rate,
        count: usize,
        now: Instant,
        parent: impl FnOnce(usize) -> Allowance,
    ) -> (Allowance, bool) {
        let (plugin, namespace) = place;
        let mut budgets = self.0.lock();
        let key = (plugin.clone(), Arc::from(namespace.unwrap_or_default()));
        let budget = budgets.entry(key).or_default();
        let own = parent(count.min(budget.free(rate, now)));
        // The parent's limit is the lower one, so the namespace pays only for what the parent may write.
        if own.wait.is_some() {
            budget.take(own.writes, rate, now);
            return (own, false);
        }
        (budget.take(count, rate, now), true)
    }

    /// Returns the namespace that has used the largest share of its writes, and that share; `None` if all buckets are full.
    pub(crate) fn fullest(
        &self,
        plugin: &PluginName,
        rate: Rate,
        now: Instant,
    ) -> Option<(Arc<str>, Share)> {
        let mut budgets = self.0.lock();
        // A full bucket equals a new one. Nothing else removes the namespaces that are gone.
        let is_full = |budget: &WriteLimit| budget.bucket.available(rate, now) == rate.burst;
        budgets.retain(|(owner, _), budget| owner != plugin || !is_full(budget));
        budgets
            .iter()
            .filter(|((owner, _), _)| owner == plugin)
            .map(|((_, namespace), budget)| (Arc::clone(namespace), budget.used(rate, now)))
            .max_by_key(|(_, used)| *used)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    const fn per_minute(writes: u64) -> Rate {
        Rate {
            burst: writes,
            refill: MINUTE,
        }
    }

    #[test]
    fn a_parent_below_the_rate_never_waits() {
        let start = Instant::now();
        let mut budget = WriteLimit::default();
        for minute in 0..10 {
            let now = start + MINUTE * minute;
            let expected = Allowance {
                writes: 120,
                wait: None,
            };
            assert_eq!(budget.take(120, per_minute(120), now), expected);
        }
        for half_second in 0..1000_u32 {
            let now = start + MINUTE * 11 + (SECOND / 2) * half_second;
            assert_eq!(budget.take(1, per_minute(120), now).writes, 1);
        }
    }

    #[test]
    fn writes_over_the_limit_wait_until_the_bucket_is_half_full() {
        let now = Instant::now();
        let mut budget = WriteLimit::default();
        let first = budget.take(256, per_minute(120), now);
        assert_eq!((first.writes, first.wait), (120, Some(SECOND * 30)));
        let early = budget.take(136, per_minute(120), now + SECOND * 29);
        assert_eq!((early.writes, early.wait), (0, Some(SECOND)));
        let next = budget.take(136, per_minute(120), now + SECOND * 30);
        assert_eq!((next.writes, next.wait), (60, Some(SECOND * 30)));
        let last = budget.take(16, per_minute(120), now + SECOND * 60);
        assert_eq!((last.writes, last.wait), (16, None));
    }

    #[test]
    fn a_limit_of_one_allows_one_write_per_minute() {
        let now = Instant::now();
        let mut budget = WriteLimit::default();
        assert_eq!(budget.take(1, per_minute(1), now).writes, 1);
        assert_eq!(budget.take(1, per_minute(1), now + SECOND * 59).writes, 0);
        assert_eq!(budget.take(1, per_minute(1), now + SECOND * 60).writes, 1);
    }

    /// Takes writes for parents without own limits.
    fn take(budgets: &NamespaceBudgets, limits: &Limits, count: usize, now: Instant) -> usize {
        let place = (&PluginName::new("web").unwrap(), Some("demo"));
        let free = |writes| Allowance { writes, wait: None };
        let (allowance, _) = budgets.take(place, namespace_rate(limits), count, now, free);
        allowance.writes
    }

    /// As `tests/bench/run` does: each parent has its finalizer, two creates and two statuses.
    #[test]
    fn the_defaults_do_not_bind_ten_thousand_parents_in_one_namespace() {
        let budgets = NamespaceBudgets::default();
        let limits = Limits::default();
        let start = Instant::now();
        for parent in 0..10_000_u32 {
            for count in [3, 1, 1] {
                // 4,000 parents per second are more than any host was seen to do.
                let now = start + SECOND / 4000 * parent;
                assert_eq!(take(&budgets, &limits, count, now), count, "{parent}");
            }
        }
        assert!(limits.namespace_objects_max >= 2 * 20_000);
        assert!(limits.namespace_bytes_max >= 20_000 * 10_000);
    }

    #[test]
    fn a_plugin_that_writes_without_end_comes_down_to_the_rate_of_its_namespace() {
        let budgets = NamespaceBudgets::default();
        let limits = Limits::default();
        let start = Instant::now();
        let mut written = 0;
        for hundredth in 0..40_000_u32 {
            let now = start + SECOND / 100 * hundredth;
            written += take(&budgets, &limits, 100, now);
        }
        // The burst of 50,000, and 500 per second.
        assert!(written <= 50_000 + 500 * 400, "{written}");
        let rate = namespace_rate(&limits);
        let plugin = PluginName::new("web").unwrap();
        let later = start + SECOND * 400;
        let (namespace, used) = budgets.fullest(&plugin, rate, later).unwrap();
        assert_eq!(&*namespace, "demo");
        assert!(used.percent() >= 50, "{used:?}");
        let full = later + NAMESPACE_BURST;
        assert_eq!(budgets.fullest(&plugin, rate, full), None);
        assert!(budgets.0.lock().is_empty());
    }

    #[test]
    fn neither_limit_is_charged_for_a_write_that_the_other_one_refuses() {
        let now = Instant::now();
        let budgets = NamespaceBudgets::default();
        let mut parent = WriteLimit::default();
        let place = (&PluginName::new("web").unwrap(), Some("demo"));
        let rate = Rate {
            burst: 10,
            refill: MINUTE,
        };
        let take = |parent: &mut WriteLimit, count| {
            let own = |writes| parent.take(writes, per_minute(4), now);
            let (allowance, is_namespace) = budgets.take(place, rate, count, now, own);
            (allowance.writes, allowance.wait.is_some(), is_namespace)
        };
        assert_eq!(take(&mut parent, 6), (4, true, false));
        let mut others = [WriteLimit::default(); 2];
        assert_eq!(take(&mut others[0], 4), (4, false, true));
        assert_eq!(take(&mut others[1], 4), (2, true, true));
        // The namespace is shut now, and the parent keeps the two writes that it could not make.
        assert_eq!(take(&mut others[1], 2), (0, true, true));
        assert_eq!(others[1].free(per_minute(4), now), 2);
    }

    proptest! {
        /// For any writes at any times.
        #[test]
        fn the_rate_is_kept_and_the_wait_is_enough(
            limit in 1..300_u32,
            wants in proptest::collection::vec((0..40_000_u64, 0..400_usize), 1..60),
        ) {
            let start = Instant::now();
            let mut now = start;
            let mut budget = WriteLimit::default();
            let mut written = 0;
            for (pause_ms, count) in wants {
                now += Duration::from_millis(pause_ms);
                let allowance = budget.take(count, per_minute(limit.into()), now);
                written += allowance.writes;
                prop_assert!(allowance.writes <= count);
                prop_assert_eq!(allowance.wait.is_none(), allowance.writes == count);
                let minutes = (now - start).as_secs_f64() / 60.0;
                let most = f64::from(limit) * (minutes + 1.0) + 1.0;
                prop_assert!(f64::from(u32::try_from(written).unwrap()) <= most);
                if let Some(wait) = allowance.wait {
                    let mut later = budget;
                    let later = later.take(1, per_minute(limit.into()), now + wait);
                    prop_assert_eq!(later.writes, 1, "a write should be allowed after the wait");
                }
            }
        }
    }
}
