//! A counting semaphore for threads: permits are instances, compiler processes, or bytes of memory.
//!
//! Tokio's semaphore waits in a future and takes at most `u32::MAX` permits at a time. Here threads block, and a
//! guest may need more bytes than that.

use parking_lot::{Condvar, Mutex};

/// Permits that threads acquire in the order in which they ask.
///
/// A thread acquires all that it needs at once, so that no thread waits while it holds permits.
pub(super) struct Semaphore {
    permits_max: usize,
    state: Mutex<SemaphoreState>,
    changed: Condvar,
}

struct SemaphoreState {
    free: usize,
    /// The next ticket.
    next: u64,
    /// The ticket that is served. Without this order, threads that need few permits could overtake one that needs
    /// many for ever.
    serving: u64,
}

impl Semaphore {
    pub(super) const fn new(permits_max: usize) -> Self {
        let state = SemaphoreState {
            free: permits_max,
            next: 0,
            serving: 0,
        };
        Self {
            permits_max,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// All permits, free or not.
    pub(super) const fn permits_max(&self) -> usize {
        self.permits_max
    }

    /// Waits until `count` permits are free and takes them; at most all that exist.
    pub(super) fn acquire(&self, count: usize) -> Permits<'_> {
        // A request for more permits than exist would wait for ever.
        let count = count.min(self.permits_max);
        let mut state = self.state.lock();
        let ticket = state.next;
        state.next += 1;
        let waits = |state: &mut SemaphoreState| state.serving != ticket || state.free < count;
        let has_waited = waits(&mut state);
        self.changed.wait_while(&mut state, waits);
        state.serving += 1;
        state.free -= count;
        let free = state.free;
        drop(state);
        // The next ticket may need no more than is left, and no release would wake its thread. All are woken, because
        // a condition variable cannot wake the holder of one ticket.
        self.changed.notify_all();
        Permits {
            semaphore: self,
            count,
            left: free,
            has_waited,
        }
    }
}

/// Permits that a thread holds, released on drop.
#[must_use = "the permits are released on drop"]
pub(super) struct Permits<'a> {
    semaphore: &'a Semaphore,
    count: usize,
    left: usize,
    has_waited: bool,
}

impl Permits<'_> {
    /// The permits that were free after these were taken.
    pub(super) const fn left(&self) -> usize {
        self.left
    }

    /// Returns true if other threads held the permits when this one asked.
    pub(super) const fn has_waited(&self) -> bool {
        self.has_waited
    }
}

impl Drop for Permits<'_> {
    fn drop(&mut self) {
        self.semaphore.state.lock().free += self.count;
        self.semaphore.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn threads_hold_at_most_all_permits_and_none_is_left_waiting() {
        let semaphore = Semaphore::new(100);
        let in_use = AtomicUsize::new(0);
        let most = AtomicUsize::new(0);
        thread::scope(|scope| {
            for thread in 0..8 {
                let semaphore = &semaphore;
                let in_use = &in_use;
                let most = &most;
                scope.spawn(move || {
                    for turn in 0..200 {
                        // One thread always asks for more than exist.
                        let count = if thread == 0 {
                            1000
                        } else {
                            thread * 7 + turn % 5
                        };
                        let permits = semaphore.acquire(count);
                        let now = in_use.fetch_add(permits.count, Ordering::SeqCst) + permits.count;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        in_use.fetch_sub(permits.count, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 100);
        let all = semaphore.acquire(usize::MAX);
        assert_eq!((all.count, all.left(), all.has_waited()), (100, 0, false));
    }
}
