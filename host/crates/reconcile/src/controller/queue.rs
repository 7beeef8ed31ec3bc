//! The queue of one plugin: the state of every key, and the order and times of their passes.
//!
//! A pure data structure: every call gets the time, nothing waits, nothing is spawned.
//! It does not know the content of a pass, the cause of a trigger beyond its class, or the passes of other queues.
//!
//! ```
//! use std::time::Duration;
//!
//! use innkeeper_reconcile::Next;
//! use innkeeper_reconcile::controller::queue::{Class, Queue};
//!
//! let at = Duration::from_secs;
//! let namespace = |key: &&str| key.split_once('/').map(|(namespace, _)| namespace.into());
//! let mut queue = Queue::new(1, namespace);
//!
//! // Any number of triggers before a pass begins make one pass.
//! queue.trigger("demo/a", Class::Child, at(0));
//! queue.trigger("demo/a", Class::User, at(1));
//! let ticket = queue.pop(at(2)).unwrap();
//! assert_eq!(ticket.key, "demo/a");
//! assert_eq!(ticket.waited, at(2));
//!
//! // A trigger during the pass makes exactly one more, after it.
//! queue.trigger("demo/a", Class::Child, at(3));
//! assert_eq!(queue.pop(at(3)), None);
//! queue.done(&"demo/a", Next::Settled, at(4));
//! assert!(queue.pop(at(4)).is_some());
//!
//! // That pass asks for another one in a minute.
//! queue.done(&"demo/a", Next::RequeueAfter(at(60)), at(5));
//! assert_eq!(queue.next_due(), Some(at(65)));
//! ```
//!
//! The states of a key:
//!
//! ```text
//!              trigger                      pop                     done
//!   (absent) ----------> Ready (in turn) ----------> Running -------------> (absent)
//!                          ^                          | dirty               Delayed (requeue, failed, parked)
//!                          +--------------------------+                        |
//!                          +------------------------- due, trigger ------------'
//! ```
//!
//! One key has one state, so the number of live parents bounds the queue, for any number of triggers.
//! Namespaces take turns, so the number of waiting keys in one does not delay the keys of another.

mod class;

use std::{
    collections::BTreeSet,
    hash::{BuildHasherDefault, DefaultHasher, Hash},
    ops::Bound,
    sync::Arc,
    time::Duration,
};

use innkeeper_model::Backoff;
use slab::Slab;

pub use self::class::Class;
use crate::Next;

/// A key whose pass begins now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket<K> {
    /// The key.
    pub key: K,
    /// The end of the first of the parked passes in a row; none if the last pass was not parked.
    pub parked_since: Option<Duration>,
    /// The time that the key was queued.
    pub waited: Duration,
}

/// The first delay after a failure, which doubles with every further one.
///
/// Chosen: each retry calls the guest, so it is far above the 5 ms of client-go's default limiter.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// The longest delay after a failure, jitter included.
///
/// Chosen, and equal to the kubelet's longest delay between two starts of a container: the repair of a cause outside of the
/// cluster, which triggers nothing, is noticed after that time.
const BACKOFF_MAX: Duration = Duration::from_mins(5);

/// The longest delay after a failure once a child or a related object has changed.
///
/// Not zero, because the writes of a failing pass change children: the pass would trigger itself without a pause. A longer
/// pause that the API server asked for still counts.
/// Chosen: at most one such pass per second.
const BACKOFF_CHANGED: Duration = Duration::from_secs(1);

/// The rank that a less important key gets on top: more than the queue of any other keys takes, and finite, so that it has
/// its pass in any case.
const LAST_ADDED_RANK: Duration = Duration::from_hours(1);

#[expect(
    clippy::disallowed_types,
    reason = "used in every trigger and every pass, and never iterated"
)]
type Handles<K> = std::collections::HashMap<K, usize, BuildHasherDefault<DefaultHasher>>;

/// The namespace of a key; none if it is cluster-scoped.
type Namespace = Option<Arc<str>>;

/// The keys of one plugin.
#[derive(Debug)]
pub struct Queue<K> {
    /// The seed of the jitter.
    seed: u64,
    entries: Slab<QueueEntry<K>>,
    /// The index of a key's entry: a trigger and the end of a pass look a key up, and nothing else compares long keys.
    handles: Handles<K>,
    namespace: fn(&K) -> Namespace,
    /// Rank, sequence number and index of the keys that wait for a free place.
    ready: BTreeSet<(Duration, u64, usize)>,
    /// The keys from `ready` whose rank has passed, by namespace.
    due: BTreeSet<(Namespace, Duration, u64, usize)>,
    /// The namespace that had the last turn.
    turn: Namespace,
    /// The number of the keys in `ready` and `due` that wait because of an edit.
    edits: usize,
    /// Due time, sequence number and index of the keys that wait for their time.
    delayed: BTreeSet<(Duration, u64, usize)>,
    sequence: u64,
}

#[derive(Debug)]
struct QueueEntry<K> {
    key: K,
    state: KeyState,
    /// True if its passes come after those of the other keys.
    is_last: bool,
    backoff: Option<Backoff>,
    parked_since: Option<Duration>,
}

/// The state of a key.
#[derive(Debug)]
enum KeyState {
    /// Waits for a free place; in `ready` or `due`.
    Ready {
        class: Class,
        rank: Duration,
        sequence: u64,
        since: Duration,
    },
    /// Waits for its time; in `delayed`.
    Delayed {
        due: Duration,
        sequence: u64,
        wait: Wait,
    },
    /// Has a pass at the moment.
    Running {
        /// The most urgent trigger since the pass began; none without one.
        dirty: Option<Class>,
    },
    /// In no index: new, or between two states.
    Idle,
}

#[derive(Debug)]
enum Wait {
    Requeue,
    Failed {
        /// The earliest due time; a changed child or related object does not move the key before it.
        earliest: Duration,
    },
}

impl<K: Eq + Hash + Clone> Queue<K> {
    /// Returns an empty queue; `seed` is that of the jitter, and `namespace` returns the namespace of a key.
    pub fn new(seed: u64, namespace: fn(&K) -> Namespace) -> Self {
        Self {
            seed,
            entries: Slab::new(),
            handles: Handles::default(),
            namespace,
            ready: BTreeSet::new(),
            due: BTreeSet::new(),
            turn: None,
            edits: 0,
            delayed: BTreeSet::new(),
            sequence: 0,
        }
    }

    /// Requests a pass of a key.
    ///
    /// Any number of triggers before a pass begins make one pass; any number during a pass make exactly one more.
    pub fn trigger(&mut self, key: K, class: Class, now: Duration) {
        self.enqueue(key, class, false, now);
    }

    /// Requests a pass of a key that is less important than others: it begins while no other key is due, or an hour later
    /// than usual. This also holds for its retries, until the next [`Queue::trigger`].
    pub fn trigger_last(&mut self, key: K, class: Class, now: Duration) {
        self.enqueue(key, class, true, now);
    }

    fn enqueue(&mut self, key: K, class: Class, is_last: bool, now: Duration) {
        let handle = self.handle(key);
        if let Some(entry) = self.entries.get_mut(handle) {
            entry.is_last = is_last;
            if class.ends_backoff() {
                entry.backoff = None;
            }
        }
        let state = match self.leave(handle) {
            KeyState::Running { dirty } => KeyState::Running {
                dirty: Some(dirty.map_or(class, |earlier| earlier.min(class))),
            },
            KeyState::Ready {
                class: earlier,
                rank,
                sequence,
                since,
            } if rank <= self.rank(handle, class, now) => KeyState::Ready {
                class: earlier.min(class),
                rank,
                sequence,
                since,
            },
            // The key moves up, but it has been queued since its first trigger.
            KeyState::Ready { since, .. } => self.ready(handle, class, now, since),
            KeyState::Delayed {
                due,
                wait: Wait::Failed { earliest },
                ..
            } if !class.ends_backoff() => self.failed(due, earliest, class.is_change(), now),
            KeyState::Delayed { .. } | KeyState::Idle => self.ready(handle, class, now, now),
        };
        self.enter(handle, state);
    }

    /// Returns the next key, which then runs until [`Queue::done`]; none if no key is due.
    pub fn pop(&mut self, now: Duration) -> Option<Ticket<K>> {
        self.promote(now);
        let handle = self.next_handle()?;
        let since = match self.leave(handle) {
            KeyState::Ready { since, .. } => since,
            KeyState::Delayed { .. } | KeyState::Running { .. } | KeyState::Idle => now,
        };
        self.enter(handle, KeyState::Running { dirty: None });
        let entry = self.entries.get(handle)?;
        Some(Ticket {
            key: entry.key.clone(),
            parked_since: entry.parked_since,
            waited: now.saturating_sub(since),
        })
    }

    /// Ends the pass of a key; `next` is its result.
    pub fn done(&mut self, key: &K, next: Next, now: Duration) {
        let Some(&handle) = self.handles.get(key) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(handle) else {
            return;
        };
        let KeyState::Running { dirty } = entry.state else {
            return;
        };
        if matches!(
            next,
            Next::Settled | Next::RequeueAfter(_) | Next::UntilChanged | Next::Forget
        ) {
            entry.backoff = None;
        }
        entry.parked_since = match &next {
            Next::Parked(_) => entry.parked_since.or(Some(now)),
            _ => None,
        };
        let least = match next {
            Next::Backoff => Some(Duration::ZERO),
            Next::BackoffAtLeast(least) => Some(least),
            _ => None,
        };
        let state = match (least, next, dirty) {
            (Some(least), _, dirty) if !dirty.is_some_and(Class::ends_backoff) => {
                let due = now.saturating_add(self.backoff(handle).max(least));
                let earliest = now.saturating_add(least);
                Some(self.failed(due, earliest, dirty.is_some_and(Class::is_change), now))
            }
            (_, _, Some(class)) => Some(self.ready(handle, class, now, now)),
            (_, Next::RequeueAfter(delay) | Next::Again(delay) | Next::Parked(delay), None) => {
                Some(KeyState::Delayed {
                    due: now.saturating_add(delay),
                    sequence: self.next_sequence(),
                    wait: Wait::Requeue,
                })
            }
            (_, _, None) => None,
        };
        if let Some(state) = state {
            self.enter(handle, state);
        } else {
            // A key without a time for its next pass equals an unknown one, so it needs no memory.
            self.handles.remove(key);
            self.entries.remove(handle);
        }
    }

    /// Returns the due time of the next key: zero if one is due now, none if no key waits.
    pub fn next_due(&self) -> Option<Duration> {
        if self.depth() == 0 {
            self.delayed.first().map(|(due, _, _)| *due)
        } else {
            Some(Duration::ZERO)
        }
    }

    /// Returns the number of keys that wait for a free place.
    pub fn depth(&self) -> usize {
        self.ready.len() + self.due.len()
    }

    /// Returns true if a key waits because of an edit.
    pub fn has_edits(&self) -> bool {
        self.edits > 0
    }

    /// Returns the index of the key that has the next turn.
    fn next_handle(&mut self) -> Option<usize> {
        let last = (self.turn.clone(), Duration::MAX, u64::MAX, usize::MAX);
        let mut others = self.due.range((Bound::Excluded(last), Bound::Unbounded));
        let Some((namespace, _, _, handle)) = others.next().or_else(|| self.due.first()) else {
            return self.ready.first().map(|(_, _, handle)| *handle);
        };
        self.turn.clone_from(namespace);
        Some(*handle)
    }

    /// Moves the delayed keys that are due to the ready ones, and the ready ones whose rank has passed to the due ones.
    fn promote(&mut self, now: Duration) {
        while let Some(&(due, _, handle)) = self.delayed.first()
            && due <= now
        {
            self.delayed.pop_first();
            // Ranked by its due time: this call may come later, and keys that were due first should run first.
            let state = self.ready(handle, Class::Retry, due, due);
            self.enter(handle, state);
        }
        // A key that waits alone stays: it shares its turn with no other, and an idle host has most of its passes so.
        while self.depth() > 1
            && let Some(&(rank, sequence, handle)) = self.ready.first()
            && rank <= now
            && let Some(entry) = self.entries.get(handle)
        {
            self.ready.pop_first();
            let namespace = (self.namespace)(&entry.key);
            self.due.insert((namespace, rank, sequence, handle));
        }
    }

    /// Returns the index of a key's entry, and adds an entry if there is none.
    fn handle(&mut self, key: K) -> usize {
        let Self {
            entries, handles, ..
        } = self;
        *handles.entry(key).or_insert_with_key(|key| {
            entries.insert(QueueEntry {
                key: key.clone(),
                state: KeyState::Idle,
                is_last: false,
                backoff: None,
                parked_since: None,
            })
        })
    }

    /// Removes a key from its index and returns its state.
    fn leave(&mut self, handle: usize) -> KeyState {
        let Some(entry) = self.entries.get_mut(handle) else {
            return KeyState::Idle;
        };
        let state = std::mem::replace(&mut entry.state, KeyState::Idle);
        match &state {
            KeyState::Ready {
                class,
                rank,
                sequence,
                ..
            } => {
                self.edits -= usize::from(*class == Class::User);
                if !self.ready.remove(&(*rank, *sequence, handle)) {
                    let namespace = (self.namespace)(&entry.key);
                    self.due.remove(&(namespace, *rank, *sequence, handle));
                }
            }
            KeyState::Delayed { due, sequence, .. } => {
                self.delayed.remove(&(*due, *sequence, handle));
            }
            KeyState::Running { .. } | KeyState::Idle => {}
        }
        state
    }

    /// Gives a key that is in no index a state, and adds it to the index of that state.
    fn enter(&mut self, handle: usize, state: KeyState) {
        let Some(entry) = self.entries.get_mut(handle) else {
            return;
        };
        match &state {
            KeyState::Ready {
                class,
                rank,
                sequence,
                ..
            } => {
                self.edits += usize::from(*class == Class::User);
                self.ready.insert((*rank, *sequence, handle));
            }
            KeyState::Delayed { due, sequence, .. } => {
                self.delayed.insert((*due, *sequence, handle));
            }
            KeyState::Running { .. } | KeyState::Idle => {}
        }
        entry.state = state;
    }

    /// Returns the state of a key that is ranked by `now` and has been queued since `since`.
    fn ready(&mut self, handle: usize, class: Class, now: Duration, since: Duration) -> KeyState {
        KeyState::Ready {
            class,
            rank: self.rank(handle, class, now),
            sequence: self.next_sequence(),
            since,
        }
    }

    /// Returns the rank of a key that is triggered now.
    fn rank(&self, handle: usize, class: Class, now: Duration) -> Duration {
        let entry = self.entries.get(handle);
        let is_last = entry.is_some_and(|entry| entry.is_last);
        let rank = now.saturating_add(class.added_rank());
        if is_last {
            rank.saturating_add(LAST_ADDED_RANK)
        } else {
            rank
        }
    }

    /// Returns the state of a failed key: it waits until `due`, or for a shorter time if an input has changed.
    fn failed(
        &mut self,
        due: Duration,
        earliest: Duration,
        changed: bool,
        now: Duration,
    ) -> KeyState {
        let cut = now.saturating_add(BACKOFF_CHANGED);
        KeyState::Delayed {
            due: if changed {
                due.min(cut.max(earliest))
            } else {
                due
            },
            sequence: self.next_sequence(),
            wait: Wait::Failed { earliest },
        }
    }

    /// Returns the next delay of a key that failed.
    fn backoff(&mut self, handle: usize) -> Duration {
        let seed = self.seed ^ self.next_sequence();
        let Some(entry) = self.entries.get_mut(handle) else {
            return BACKOFF_MAX;
        };
        let begin = || Backoff::with_jitter(BACKOFF_MIN, BACKOFF_MAX, seed);
        entry.backoff.get_or_insert_with(begin).delay()
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

#[cfg(test)]
mod tests;
