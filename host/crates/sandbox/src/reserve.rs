//! Memory that all instances have together: who needs some waits until so much of it is free.
//!
//! What an instance may hold is taken before it is made, so that nobody who holds some ever waits for more.

use parking_lot::{Condvar, Mutex};

/// So many bytes may be held at a time.
pub(super) struct Reserve {
    bytes_max: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    free: usize,
    /// The number of the next one who comes.
    next: u64,
    /// Whose turn it is: in the order of coming, or one who needs much would wait for ever.
    turn: u64,
}

impl Reserve {
    pub(super) const fn new(bytes_max: usize) -> Self {
        let state = State {
            free: bytes_max,
            next: 0,
            turn: 0,
        };
        Self {
            bytes_max,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// As much as one may hold alone.
    pub(super) const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Waits until so many bytes are free and takes them; at most all that there are.
    pub(super) fn take(&self, bytes: usize) -> Taken<'_> {
        let bytes = bytes.min(self.bytes_max);
        let mut state = self.state.lock();
        let own = state.next;
        state.next += 1;
        let waits = |state: &mut State| state.turn != own || state.free < bytes;
        let has_waited = waits(&mut state);
        self.changed.wait_while(&mut state, waits);
        state.turn += 1;
        state.free -= bytes;
        drop(state);
        // There may be enough for the next one, too.
        self.changed.notify_all();
        Taken {
            reserve: self,
            bytes,
            has_waited,
        }
    }
}

/// Bytes that are held; they are free again when this goes.
#[must_use = "the bytes are free again when it goes"]
pub(super) struct Taken<'a> {
    reserve: &'a Reserve,
    bytes: usize,
    has_waited: bool,
}

impl Taken<'_> {
    /// Whether they were held by others.
    pub(super) const fn has_waited(&self) -> bool {
        self.has_waited
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.reserve.state.lock().free += self.bytes;
        self.reserve.changed.notify_all();
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
    fn never_more_than_all_is_held_and_nobody_is_left_waiting() {
        let reserve = Reserve::new(100);
        let (held, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for thread in 0..8 {
                let (reserve, held, most) = (&reserve, &held, &most);
                scope.spawn(move || {
                    for turn in 0..200 {
                        // One of them always wants more than there is.
                        let bytes = if thread == 0 {
                            1000
                        } else {
                            thread * 7 + turn % 5
                        };
                        let taken = reserve.take(bytes);
                        let now = held.fetch_add(taken.bytes, Ordering::SeqCst) + taken.bytes;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        held.fetch_sub(taken.bytes, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.load(Ordering::SeqCst), 100);
        let all = reserve.take(usize::MAX);
        assert_eq!((all.bytes, all.has_waited()), (100, false));
    }
}
