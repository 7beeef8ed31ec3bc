//! Which parent is due for a pass, and when: the state of every key of one plugin.
//!
//! A pure data structure: time comes in with every call, nothing waits, nothing is spawned.
//! It does not know what a pass is, what triggered it beyond its class, or how many passes run elsewhere.
//!
//! ```text
//!              trigger                      pop                     done
//!   (absent) ----------> Ready (by rank) ----------> Running -------------> (absent)
//!                          ^                          | dirty               Delayed (requeue, failed, parked)
//!                          +--------------------------+                        |
//!                          +------------------------- due, trigger ------------'
//! ```
//!
//! One key has one state, so the queue is bounded by the number of live parents, however many triggers arrive.

use std::{
    collections::BTreeSet,
    hash::{BuildHasherDefault, DefaultHasher, Hash},
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use slab::Slab;

use crate::Next;

/// How urgent a trigger is, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Somebody changed the parent: its generation, its deletion, what steers its passes.
    /// Also ends the back-off.
    User,
    /// A child or a related object changed.
    Child,
    /// Another revision of the plugin serves.
    /// It may do what the last one failed at, so that this ends the back-off; nobody waits for it.
    Swapped,
    /// A retry or a requeue came due, or only what the host itself wrote was seen.
    Retry,
    /// The first list of a watch, or a resync.
    Initial,
}

impl Class {
    /// Whether an input of the pass changed, so that what failed before may work now.
    fn is_change(self) -> bool {
        self <= Self::Swapped
    }

    /// Whether what failed before says nothing about the next pass.
    fn ends_backoff(self) -> bool {
        matches!(self, Self::User | Self::Swapped)
    }

    /// How much later than a user's edit of the same moment a key of this class runs.
    ///
    /// Keys run in the order of arrival plus this head start: that is first in first out inside a class, a preference
    /// between classes, and ageing at once, because what has waited longer than the head start overtakes.
    /// A burst of edits that the API server cannot follow is answered first and reported later: each edit has a pass
    /// that writes children, and further ones, for what came of it, that write status.
    const fn handicap(self) -> Duration {
        match self {
            Self::User => Duration::ZERO,
            Self::Child => Duration::from_secs(5),
            Self::Retry => Duration::from_secs(10),
            Self::Swapped | Self::Initial => Duration::from_secs(15),
        }
    }
}

/// A key that is to have a pass now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket<K> {
    /// The key.
    pub key: K,
    /// How often passes of this key failed in a row.
    pub failures: u32,
    /// Since when passes of this key have been parked; none if the last one was not.
    pub parked_since: Option<Duration>,
    /// For how long it was due.
    pub waited: Duration,
}

/// How the queue waits.
#[derive(Clone, Debug)]
pub struct QueueOptions {
    /// The first delay after a failure; it doubles with every further one.
    pub backoff_min: Duration,
    /// The longest delay after a failure, jitter included.
    pub backoff_max: Duration,
    /// A changed child or related object cuts a back-off down to this.
    /// Not to nothing: a pass that fails and writes in turn would feed itself.
    pub backoff_changed: Duration,
    /// Seeds the jitter.
    pub seed: u64,
}

impl Default for QueueOptions {
    fn default() -> Self {
        Self {
            backoff_min: Duration::from_millis(200),
            backoff_max: Duration::from_mins(5),
            backoff_changed: Duration::from_secs(1),
            seed: 0,
        }
    }
}

#[expect(
    clippy::disallowed_types,
    reason = "looked into with every trigger and every pass, and never iterated"
)]
type Handles<K> = std::collections::HashMap<K, usize, BuildHasherDefault<DefaultHasher>>;

/// The keys of one plugin.
#[derive(Debug)]
pub struct Queue<K> {
    options: QueueOptions,
    entries: Slab<QueueEntry<K>>,
    /// Where the entry of a key is: it is looked up once for a trigger and once for the end of a pass, and nothing else
    /// compares keys.
    handles: Handles<K>,
    /// By rank, then in the order of arrival.
    ready: BTreeSet<(Duration, u64, usize)>,
    /// By due time.
    delayed: BTreeSet<(Duration, u64, usize)>,
    sequence: u64,
}

#[derive(Debug)]
struct QueueEntry<K> {
    key: K,
    state: KeyState,
    failures: u32,
    backoff: Option<ExponentialBackoff>,
    parked_since: Option<Duration>,
}

/// Where a key is.
#[derive(Debug)]
enum KeyState {
    /// Waits for a free place; in `ready`.
    Ready {
        rank: Duration,
        sequence: u64,
        since: Duration,
    },
    /// Waits for its time; in `delayed`.
    Delayed {
        due: Duration,
        sequence: u64,
        why: Wait,
    },
    /// Has a pass at the moment.
    Running {
        /// The most urgent trigger since the pass began.
        dirty: Option<Class>,
    },
    /// In no index: new, or on its way from one state to the next.
    Idle,
}

#[derive(Debug)]
enum Wait {
    Requeue,
    Failed {
        /// What changes in between does not make the key due before this.
        earliest: Duration,
    },
}

impl<K: Eq + Hash + Clone> Queue<K> {
    /// An empty queue.
    pub fn new(options: QueueOptions) -> Self {
        Self {
            options,
            entries: Slab::new(),
            handles: Handles::default(),
            ready: BTreeSet::new(),
            delayed: BTreeSet::new(),
            sequence: 0,
        }
    }

    /// Asks for a pass of this key.
    /// Any number of triggers before a pass begins are one pass; any number during a pass are exactly one more.
    pub fn trigger(&mut self, key: K, class: Class, now: Duration) {
        let handle = self.handle(key);
        if class.ends_backoff()
            && let Some(entry) = self.entries.get_mut(handle)
        {
            entry.failures = 0;
            entry.backoff = None;
        }
        let state = match self.leave(handle) {
            KeyState::Running { dirty } => KeyState::Running {
                dirty: Some(dirty.map_or(class, |earlier| earlier.min(class))),
            },
            KeyState::Ready {
                rank,
                sequence,
                since,
            } if rank <= now.saturating_add(class.handicap()) => KeyState::Ready {
                rank,
                sequence,
                since,
            },
            // More urgent than before, and due for as long as before.
            KeyState::Ready { since, .. } => self.ready(class, now, since),
            KeyState::Delayed {
                due,
                why: Wait::Failed { earliest },
                ..
            } if !class.ends_backoff() => self.failed(due, earliest, class.is_change(), now),
            KeyState::Delayed { .. } | KeyState::Idle => self.ready(class, now, now),
        };
        self.enter(handle, state);
    }

    /// The next key to run; it counts as running until [`Queue::done`].
    pub fn pop(&mut self, now: Duration) -> Option<Ticket<K>> {
        self.promote(now);
        let (_, _, handle) = *self.ready.first()?;
        let since = match self.leave(handle) {
            KeyState::Ready { since, .. } => since,
            KeyState::Delayed { .. } | KeyState::Running { .. } | KeyState::Idle => now,
        };
        self.enter(handle, KeyState::Running { dirty: None });
        let entry = self.entries.get(handle)?;
        Some(Ticket {
            key: entry.key.clone(),
            failures: entry.failures,
            parked_since: entry.parked_since,
            waited: now.saturating_sub(since),
        })
    }

    /// Ends the pass of a key.
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
        match &next {
            Next::Backoff | Next::BackoffAtLeast(_) if !dirty.is_some_and(Class::ends_backoff) => {
                entry.failures = entry.failures.saturating_add(1);
            }
            Next::Again(_) | Next::Parked(_) | Next::Backoff | Next::BackoffAtLeast(_) => {}
            Next::Settled | Next::RequeueAfter(_) | Next::UntilChanged | Next::Forget => {
                entry.failures = 0;
                entry.backoff = None;
            }
        }
        entry.parked_since = match &next {
            Next::Parked(_) => entry.parked_since.or(Some(now)),
            _ => None,
        };
        let state = match (next, dirty) {
            (Next::Backoff, dirty) if !dirty.is_some_and(Class::ends_backoff) => {
                let due = now.saturating_add(self.backoff(handle));
                Some(self.failed(due, now, dirty.is_some_and(Class::is_change), now))
            }
            (Next::BackoffAtLeast(least), dirty) if !dirty.is_some_and(Class::ends_backoff) => {
                let due = now.saturating_add(self.backoff(handle).max(least));
                Some(self.failed(
                    due,
                    now.saturating_add(least),
                    dirty.is_some_and(Class::is_change),
                    now,
                ))
            }
            (_, Some(class)) => Some(self.ready(class, now, now)),
            (Next::RequeueAfter(delay) | Next::Again(delay) | Next::Parked(delay), None) => {
                Some(self.delayed(now, delay, Wait::Requeue))
            }
            (_, None) => None,
        };
        if let Some(state) = state {
            self.enter(handle, state);
        } else {
            // A settled key needs no memory: it is as good as one that never was.
            self.handles.remove(key);
            self.entries.remove(handle);
        }
    }

    /// When the next delayed key comes due; zero when one is ready now, none when nothing waits.
    pub fn next_due(&self) -> Option<Duration> {
        if self.ready.is_empty() {
            self.delayed.first().map(|(due, _, _)| *due)
        } else {
            Some(Duration::ZERO)
        }
    }

    /// How many keys wait for a free place.
    pub fn depth(&self) -> usize {
        self.ready.len()
    }

    /// Moves what is due to the ready keys.
    fn promote(&mut self, now: Duration) {
        while let Some(&(due, _, handle)) = self.delayed.first()
            && due <= now
        {
            self.delayed.pop_first();
            // Ranked by the time it was due, not by the time somebody looked.
            let state = self.ready(Class::Retry, due, due);
            self.enter(handle, state);
        }
    }

    /// Where the entry of a key is, which is made if there is none.
    fn handle(&mut self, key: K) -> usize {
        let Self {
            entries, handles, ..
        } = self;
        *handles.entry(key).or_insert_with_key(|key| {
            entries.insert(QueueEntry {
                key: key.clone(),
                state: KeyState::Idle,
                failures: 0,
                backoff: None,
                parked_since: None,
            })
        })
    }

    /// Takes a key out of all indexes; says where it was.
    fn leave(&mut self, handle: usize) -> KeyState {
        let Some(entry) = self.entries.get_mut(handle) else {
            return KeyState::Idle;
        };
        let state = std::mem::replace(&mut entry.state, KeyState::Idle);
        match &state {
            KeyState::Ready { rank, sequence, .. } => {
                self.ready.remove(&(*rank, *sequence, handle));
            }
            KeyState::Delayed { due, sequence, .. } => {
                self.delayed.remove(&(*due, *sequence, handle));
            }
            KeyState::Running { .. } | KeyState::Idle => {}
        }
        state
    }

    /// Puts a key that is in no index into the one that its state asks for.
    fn enter(&mut self, handle: usize, state: KeyState) {
        let Some(entry) = self.entries.get_mut(handle) else {
            return;
        };
        match &state {
            KeyState::Ready { rank, sequence, .. } => {
                self.ready.insert((*rank, *sequence, handle));
            }
            KeyState::Delayed { due, sequence, .. } => {
                self.delayed.insert((*due, *sequence, handle));
            }
            KeyState::Running { .. } | KeyState::Idle => {}
        }
        entry.state = state;
    }

    /// Ranked from `now` on, and due since `since`.
    fn ready(&mut self, class: Class, now: Duration, since: Duration) -> KeyState {
        KeyState::Ready {
            rank: now.saturating_add(class.handicap()),
            sequence: self.next_sequence(),
            since,
        }
    }

    fn delayed(&mut self, now: Duration, delay: Duration, why: Wait) -> KeyState {
        KeyState::Delayed {
            due: now.saturating_add(delay),
            sequence: self.next_sequence(),
            why,
        }
    }

    /// A failed key waits for its back-off, cut down when something changed meanwhile.
    fn failed(
        &mut self,
        due: Duration,
        earliest: Duration,
        changed: bool,
        now: Duration,
    ) -> KeyState {
        let cut = now.saturating_add(self.options.backoff_changed);
        KeyState::Delayed {
            due: if changed {
                due.min(cut.max(earliest))
            } else {
                due
            },
            sequence: self.next_sequence(),
            why: Wait::Failed { earliest },
        }
    }

    /// The next delay of a key that failed.
    fn backoff(&mut self, handle: usize) -> Duration {
        let backoff_max = self.options.backoff_max;
        let backoff_min = self.options.backoff_min;
        let seed = self.options.seed ^ self.next_sequence();
        let Some(entry) = self.entries.get_mut(handle) else {
            return backoff_max;
        };
        entry
            .backoff
            .get_or_insert_with(|| {
                ExponentialBuilder::new()
                    .with_min_delay(backoff_min)
                    // Jitter adds up to as much again.
                    .with_max_delay(backoff_max / 2)
                    .without_max_times()
                    .with_jitter()
                    .with_jitter_seed(seed)
                    .build()
            })
            .next()
            .unwrap_or(backoff_max)
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }
}

#[cfg(test)]
mod tests;
