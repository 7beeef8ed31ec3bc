//! A controller's queue: the state of every key, and the order and times of passes.
//!
//! A pure data structure: every call gets the time, nothing waits, nothing is spawned.
//! It does not know what a pass does, why a trigger came, or other queues.
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
//! A key's states:
//!
//! ```text
//!              trigger                      pop                     done
//!   (absent) ----------> Ready (in turn) ----------> Running -------------> (absent)
//!                          ^                          | dirty               Delayed (requeue, failed, await cache)
//!                          +--------------------------+                        |
//!                          +------------------------- due, trigger ------------'
//! ```
//!
//! A key has one state, so the number of live parents bounds the queue.
//! Namespaces take turns, and waiting keys in one do not delay the keys in another.

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
    /// Since when passes in a row have waited for the cache; `None` if the last one did not.
    pub cache_wait_since: Option<Duration>,
    /// The time in the queue.
    pub waited: Duration,
}

/// The first delay after a failure, which doubles with every further one.
///
/// Far above the 5 ms of client-go's default limiter, because each retry calls the guest.
pub(super) const BACKOFF_MIN: Duration = Duration::from_millis(200);

/// The longest delay after a failure, jitter included, like the kubelet's between two container starts.
///
/// A repair outside the cluster, which triggers nothing, takes effect after that time.
const BACKOFF_MAX: Duration = Duration::from_mins(5);

/// The longest delay after a failure once a child or a related object has changed.
///
/// Not zero, because a failing pass may write children and would trigger itself without a pause. A longer pause that the
/// API server asked for still counts.
const BACKOFF_CHANGED: Duration = Duration::from_secs(1);

/// The rank delay for a less important key: later than all other keys in a full queue, but finite, so that it gets a pass.
const LAST_ADDED_RANK: Duration = Duration::from_hours(1);

#[expect(
    clippy::disallowed_types,
    reason = "used in every trigger and every pass, and never iterated"
)]
type Handles<K> = std::collections::HashMap<K, usize, BuildHasherDefault<DefaultHasher>>;

/// A key's namespace; `None` if it is cluster-scoped.
type Namespace = Option<Arc<str>>;

/// A controller's keys.
#[derive(Debug)]
pub struct Queue<K> {
    /// The jitter's seed.
    seed: u64,
    entries: Slab<QueueEntry<K>>,
    /// The index of each key's entry, so that only a trigger and the end of a pass compare long keys.
    handles: Handles<K>,
    namespace: fn(&K) -> Namespace,
    /// The keys that wait for a permit: rank, sequence number and index.
    ready: BTreeSet<(Duration, u64, usize)>,
    /// The keys from `ready` whose rank has passed, by namespace.
    due: BTreeSet<(Namespace, Duration, u64, usize)>,
    /// The namespace that had the last turn.
    turn: Namespace,
    /// The number of keys in `ready` and `due` that wait because of an edit.
    edits: usize,
    /// The keys that wait for their time: due time, sequence number and index.
    delayed: BTreeSet<(Duration, u64, usize)>,
    sequence: u64,
}

#[derive(Debug)]
struct QueueEntry<K> {
    key: K,
    state: KeyState,
    /// True if the other keys' passes come first.
    is_last: bool,
    backoff: Option<Backoff>,
    cache_wait_since: Option<Duration>,
}

/// A key's state.
#[derive(Debug)]
enum KeyState {
    /// Waits for a permit; in `ready` or `due`.
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
    /// Has a running pass.
    Running {
        /// The most urgent trigger since the pass began.
        dirty: Option<Class>,
    },
    /// In no index: new, or between two states.
    Idle,
}

#[derive(Debug)]
enum Wait {
    Requeue,
    Failed {
        /// A changed child or related object makes the key due at this time at the earliest.
        earliest: Duration,
    },
}

impl<K: Eq + Hash + Clone> Queue<K> {
    /// Returns an empty queue; `seed` is for the jitter, and `namespace` returns a key's namespace.
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

    /// Requests a pass.
    ///
    /// Any number of triggers before a pass begins make one pass; any number during a pass make exactly one more.
    pub fn trigger(&mut self, key: K, class: Class, now: Duration) {
        self.enqueue(key, class, false, now);
    }

    /// Requests a less important pass: it begins when nothing else is due, or an hour later than usual. The same holds for
    /// the retries, until the next [`Queue::trigger`].
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
                // Only the class rises: a repeated trigger must not send a waiting key back to the end.
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

    /// Returns the next due key, which then runs until [`Queue::done`].
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
            cache_wait_since: entry.cache_wait_since,
            waited: now.saturating_sub(since),
        })
    }

    /// Ends a key's pass with the result `next`.
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
        // A pass that only waited for the cache says nothing about the failure before it, so the back-off stays.
        if matches!(
            next,
            Next::Settled | Next::RequeueAfter(_) | Next::UntilChanged | Next::Forget
        ) {
            entry.backoff = None;
        }
        entry.cache_wait_since = match &next {
            Next::AwaitCache(_) => entry.cache_wait_since.or(Some(now)),
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
            (
                _,
                Next::RequeueAfter(delay) | Next::AwaitOwnWrites(delay) | Next::AwaitCache(delay),
                None,
            ) => Some(KeyState::Delayed {
                due: now.saturating_add(delay),
                sequence: self.next_sequence(),
                wait: Wait::Requeue,
            }),
            (_, _, None) => None,
        };
        if let Some(state) = state {
            self.enter(handle, state);
        } else {
            // Without a time for its next pass, the key is like an unknown one.
            self.handles.remove(key);
            self.entries.remove(handle);
        }
    }

    /// Returns when the next key is due: zero if one is due now, `None` if no key waits.
    pub fn next_due(&self) -> Option<Duration> {
        if self.depth() == 0 {
            self.delayed.first().map(|(due, _, _)| *due)
        } else {
            Some(Duration::ZERO)
        }
    }

    /// Returns how many keys wait for a permit.
    pub fn depth(&self) -> usize {
        self.ready.len() + self.due.len()
    }

    /// Returns true if a key waits because of an edit.
    pub fn has_edits(&self) -> bool {
        self.edits > 0
    }

    /// Returns the index of the key whose turn is next.
    fn next_handle(&mut self) -> Option<usize> {
        // Sorts after all keys of the namespace that had the last turn.
        let last = (self.turn.clone(), Duration::MAX, u64::MAX, usize::MAX);
        let mut others = self.due.range((Bound::Excluded(last), Bound::Unbounded));
        let Some((namespace, _, _, handle)) = others.next().or_else(|| self.due.first()) else {
            // Ranks order keys and delay none: if no rank has passed yet, the first key runs now.
            return self.ready.first().map(|(_, _, handle)| *handle);
        };
        self.turn.clone_from(namespace);
        Some(*handle)
    }

    /// Moves keys from `delayed` to `ready` when they are due, and from `ready` to `due` when their rank has passed.
    fn promote(&mut self, now: Duration) {
        while let Some(&(due, _, handle)) = self.delayed.first()
            && due <= now
        {
            self.delayed.pop_first();
            // Ranked by its due time, because this call may come later and keys that were due first should run first.
            let state = self.ready(handle, Class::Retry, due, due);
            self.enter(handle, state);
        }
        // A single key needs no turn: this is the usual case on an idle host.
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
                cache_wait_since: None,
            })
        })
    }

    /// Removes a key from the index and returns the state.
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
                // `promote` has moved it already.
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

    /// Sets the state of a key that is in no index, and adds it to that state's index.
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

    /// Returns the state of a key that ranks by `now` and has been queued since `since`.
    fn ready(&mut self, handle: usize, class: Class, now: Duration, since: Duration) -> KeyState {
        KeyState::Ready {
            class,
            rank: self.rank(handle, class, now),
            sequence: self.next_sequence(),
            since,
        }
    }

    /// Returns a key's rank if it is triggered now.
    fn rank(&self, handle: usize, class: Class, now: Duration) -> Duration {
        let is_last = self.entries.get(handle).is_some_and(|entry| entry.is_last);
        let rank = now.saturating_add(class.added_rank());
        if is_last {
            rank.saturating_add(LAST_ADDED_RANK)
        } else {
            rank
        }
    }

    /// Returns a failed key's state: it waits until `due`, or less if an input has changed.
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

    /// Returns a failed key's next delay.
    fn backoff(&mut self, handle: usize) -> Duration {
        // Another seed each time: keys that failed together must not be retried together.
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
