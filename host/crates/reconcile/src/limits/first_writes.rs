//! A separate limit for each child's first create and first deletion after the parent's spec or the plugin has changed.
//!
//! These are no write storm, because the plugin's limits allow that many children. Later creates and deletions of the same
//! child count as other writes.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use innkeeper_model::{Digest, Limits, Operation, Rate};
use tokio::time::Instant;

use super::budget::{Allowance, WriteLimit, parent_rate, to_u64};

/// The time in which the limit regains the writes for one whole answer.
const ANSWER_PERIOD: Duration = Duration::from_mins(1);

/// The number of whole answers that may be written at once: a user who tries out an edit creates and deletes all children
/// a few times.
const ANSWERS_AT_ONCE: u32 = 4;

/// The cause of creates and deletions: the parent's generation and the plugin's revision.
pub(crate) type WriteCause = (Option<i64>, Digest);

/// A parent's write limits.
#[derive(Debug, Default)]
pub(crate) struct ParentLimits {
    firsts: WriteLimit,
    others: WriteLimit,
    cause: Option<WriteCause>,
    /// The children that were written since the cause; their hashes take less memory than their names.
    written: BTreeSet<u64>,
}

impl ParentLimits {
    /// Takes writes that belong to no child, such as a status.
    pub(crate) fn take(&mut self, count: usize, limits: &Limits, now: Instant) -> Allowance {
        self.others.take(count, parent_rate(limits), now)
    }

    /// Takes the first operations of a plan, up to the first one that has to wait. Returns true if that one is a first
    /// write.
    pub(crate) fn take_operations(
        &mut self,
        operations: &[Operation],
        cause: &WriteCause,
        limits: &Limits,
        now: Instant,
    ) -> (Allowance, bool) {
        if self.cause.as_ref() != Some(cause) {
            self.cause = Some(cause.clone());
            // Only this record: with refilled buckets, each edit would allow another whole answer.
            self.written.clear();
        }
        let first_rate = first_rate(limits);
        let other_rate = parent_rate(limits);
        let mut firsts = self.firsts.free(first_rate, now);
        let mut others = self.others.free(other_rate, now);
        let mut first_writes = 0;
        let mut other_writes = 0;
        let mut writes = 0;
        let mut by_firsts = false;
        for operation in operations {
            let hash = first_write(operation).filter(|hash| !self.written.contains(hash));
            let (free, count) = match hash {
                Some(_) => (&mut firsts, &mut first_writes),
                None => (&mut others, &mut other_writes),
            };
            // The first one that does not fit opens its limit's breaker below.
            *count += 1;
            if *free == 0 {
                by_firsts = hash.is_some();
                break;
            }
            *free -= 1;
            writes += 1;
            self.written.extend(hash);
        }
        let wait = [
            self.firsts.take(first_writes, first_rate, now).wait,
            self.others.take(other_writes, other_rate, now).wait,
        ]
        .into_iter()
        .flatten()
        .max()
        .filter(|_| writes < operations.len());
        (Allowance { writes, wait }, by_firsts)
    }
}

/// Hashes the child that an operation creates or deletes.
fn first_write(operation: &Operation) -> Option<u64> {
    let (Operation::Create { id, .. } | Operation::Prune { id, .. }) = operation else {
        return None;
    };
    // If two children have the same hash, the second one only counts as a later write.
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    Some(hasher.finish())
}

fn first_rate(limits: &Limits) -> Rate {
    Rate {
        burst: to_u64(limits.children_max).saturating_mul(ANSWERS_AT_ONCE.into()),
        refill: ANSWER_PERIOD.saturating_mul(ANSWERS_AT_ONCE),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use innkeeper_model::{Gvk, ObjectId, ResourceVersion, Uid};

    use super::*;

    fn kind() -> Gvk {
        Gvk::new("", "v1", "ConfigMap")
    }

    fn id(number: usize) -> ObjectId {
        ObjectId::new(kind().group_kind(), Some("demo"), &number.to_string())
    }

    fn creates(count: usize) -> Vec<Operation> {
        let create = |number| Operation::Create {
            key: String::new(),
            id: id(number),
            kind: kind(),
            body: Arc::default(),
            generate: Vec::new(),
        };
        (0..count).map(create).collect()
    }

    fn prunes(count: usize) -> Vec<Operation> {
        let prune = |number| Operation::Prune {
            id: id(number),
            kind: kind(),
            uid: Uid("u".into()),
            resource_version: ResourceVersion(1),
        };
        (0..count).map(prune).collect()
    }

    fn cause(generation: i64) -> WriteCause {
        (Some(generation), Digest::hash(b"revision"))
    }

    #[test]
    fn a_whole_answer_is_written_and_deleted_at_once() {
        let limits = Limits::default();
        let now = Instant::now();
        let all = limits.children_max;
        let mut parent = ParentLimits::default();
        let edits = [creates(all), prunes(all), creates(all), prunes(all)];
        for (generation, operations) in (1..).zip(edits) {
            let (allowance, _) =
                parent.take_operations(&operations, &cause(generation), &limits, now);
            assert_eq!((allowance.writes, allowance.wait), (all, None));
        }
        // The other writes have their whole limit.
        assert_eq!(parent.take(120, &limits, now).writes, 120);
        // Whoever edits the spec again and again waits.
        let (allowance, by_firsts) = parent.take_operations(&creates(all), &cause(5), &limits, now);
        assert_eq!((allowance.writes, by_firsts), (0, true));
        assert!(allowance.wait.is_some_and(|wait| wait <= 2 * ANSWER_PERIOD));
    }

    #[test]
    fn only_the_first_write_of_a_child_is_free() {
        let limits = Limits::default();
        let now = Instant::now();
        let mut parent = ParentLimits::default();
        let mut writes = 0;
        loop {
            let (allowance, _) = parent.take_operations(&creates(1), &cause(1), &limits, now);
            writes += allowance.writes;
            if allowance.writes == 0 {
                break;
            }
        }
        assert_eq!(writes, 121);
        // A plan is written up to the first operation that has to wait.
        let mut operations = creates(3);
        operations.swap(0, 1);
        let (allowance, by_firsts) = parent.take_operations(&operations, &cause(1), &limits, now);
        assert_eq!((allowance.writes, by_firsts), (1, false));
        assert!(allowance.wait.is_some());
    }
}
