//! The first create and the first deletion of each child after a change of its parent's spec or of the plugin.
//!
//! An answer may have as many children as the plugin's limit says, so these writes are no storm and have a limit of their
//! own. Every later create or deletion of the same child counts as any other write.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use innkeeper_model::{Digest, Limits, Operation, Rate};
use tokio::time::Instant;

use crate::limits::budget::{Allowance, WriteLimit, parent_rate, to_u64};

/// The time in which the limit gains the writes of one whole answer.
const ANSWER_PERIOD: Duration = Duration::from_mins(1);

/// The whole answers that may be written at once: a user who tries out an edit creates all children and deletes them again
/// a few times.
const ANSWERS_AT_ONCE: u32 = 4;

/// What causes children to be created and deleted: the generation of the parent, and the plugin's revision.
pub(crate) type WriteCause = (Option<i64>, Digest);

/// The write limits of a parent.
#[derive(Debug, Default)]
pub(crate) struct ParentLimits {
    /// The limit of the first writes.
    firsts: WriteLimit,
    /// The limit of all other writes.
    others: WriteLimit,
    cause: Option<WriteCause>,
    /// Hashes of the children that were written since the cause, which take less memory than their names.
    written: BTreeSet<u64>,
}

impl ParentLimits {
    /// Takes the allowance for writes that belong to no child of the answer, such as a status.
    pub(crate) fn take(&mut self, wanted: usize, limits: &Limits, now: Instant) -> Allowance {
        self.others.take(wanted, parent_rate(limits), now)
    }

    /// Takes the allowance for the first operations of a plan, up to the first one that has to wait. Returns with it true
    /// if that one is a first write.
    pub(crate) fn take_operations(
        &mut self,
        operations: &[Operation],
        cause: &WriteCause,
        limits: &Limits,
        now: Instant,
    ) -> (Allowance, bool) {
        if self.cause.as_ref() != Some(cause) {
            self.cause = Some(cause.clone());
            self.written.clear();
        }
        let (first_rate, other_rate) = (first_rate(limits), parent_rate(limits));
        let (mut firsts, mut others) = (
            self.firsts.free(first_rate, now),
            self.others.free(other_rate, now),
        );
        let (mut first_writes, mut other_writes, mut writes) = (0, 0, 0);
        let mut by_firsts = false;
        for operation in operations {
            let hash = first_write(operation).filter(|hash| !self.written.contains(hash));
            let (free, taken) = match hash {
                Some(_) => (&mut firsts, &mut first_writes),
                None => (&mut others, &mut other_writes),
            };
            // The first one that does not fit opens the breaker of its limit below.
            *taken += 1;
            if *free == 0 {
                by_firsts = hash.is_some();
                break;
            }
            *free -= 1;
            writes += 1;
            self.written.extend(hash);
        }
        let waits = [
            self.firsts.take(first_writes, first_rate, now).wait,
            self.others.take(other_writes, other_rate, now).wait,
        ];
        let wait = waits.into_iter().flatten().max();
        let wait = wait.filter(|_| writes < operations.len());
        (Allowance { writes, wait }, by_firsts)
    }
}

/// Returns the hash of the child that an operation creates or deletes.
fn first_write(operation: &Operation) -> Option<u64> {
    let (Operation::Create { id, .. } | Operation::Prune { id, .. }) = operation else {
        return None;
    };
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    Some(hasher.finish())
}

/// Returns the limit of the first writes.
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
        let (limits, now) = (Limits::default(), Instant::now());
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
        let (limits, now) = (Limits::default(), Instant::now());
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
