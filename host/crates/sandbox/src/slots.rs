//! A number of places that threads wait for: of instances, and of processes that compile.
//!
//! It knows nothing of what is done in a place.

use std::num::NonZeroU32;

use parking_lot::{Condvar, Mutex};

/// So many may be taken at a time.
pub(super) struct Slots {
    free: Mutex<u32>,
    freed: Condvar,
}

impl Slots {
    pub(super) fn new(count: NonZeroU32) -> Self {
        Self {
            free: Mutex::new(count.get()),
            freed: Condvar::new(),
        }
    }

    /// Waits for a free one and takes it.
    pub(super) fn wait(&self) -> Slot<'_> {
        let mut free = self.free.lock();
        self.freed.wait_while(&mut free, |free| *free == 0);
        *free -= 1;
        Slot {
            slots: self,
            left: *free,
        }
    }
}

/// A place; it is free again when this goes.
#[must_use = "the place is free again when it goes"]
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    left: u32,
}

impl Slot<'_> {
    /// How many were free still when it was taken.
    pub(super) const fn left(&self) -> u32 {
        self.left
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.slots.free.lock() += 1;
        self.slots.freed.notify_one();
    }
}
