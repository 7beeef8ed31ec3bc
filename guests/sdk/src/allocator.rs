//! The allocator of a guest: a bump allocator in front of the ordinary one.
//!
//! An instance lives for one call, so to free memory is wasted work. So is to grow it: the host takes the growth back
//! after the call. The arena is part of the initial memory, and its zeros take no bytes of the component.
//! Blocks that do not fit come from the ordinary allocator, which frees them. So a guest that allocates much holds at
//! most the arena more than with the ordinary allocator alone.

#![expect(
    unsafe_code,
    reason = "an allocator hands out raw memory; no kept crate has an arena, never frees and falls back"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};

#[cfg(test)]
mod tests;

/// The size of the arena, of which a usual call of the shipped plugins needs less than half.
#[cfg(target_arch = "wasm32")]
const ARENA_BYTES: usize = 1 << 20;

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: Bump<ARENA_BYTES> = Bump::new();

/// An allocator that takes block after block from an arena.
///
/// Only the last block is freed, or grows in place.
struct Bump<const BYTES: usize> {
    /// The number of bytes at the start of the arena that are handed out.
    used: Cell<usize>,
    arena: UnsafeCell<[u8; BYTES]>,
}

// SAFETY: without atomics there is one thread.
#[cfg(all(target_arch = "wasm32", not(target_feature = "atomics")))]
unsafe impl<const BYTES: usize> Sync for Bump<BYTES> {}

impl<const BYTES: usize> Bump<BYTES> {
    const fn new() -> Self {
        Self {
            used: Cell::new(0),
            arena: UnsafeCell::new([0; BYTES]),
        }
    }

    /// The start of a block of the arena; none for a block of the ordinary allocator.
    fn offset(&self, block: *mut u8) -> Option<usize> {
        let offset = block.addr().wrapping_sub(self.arena.get().addr());
        (offset < BYTES).then_some(offset)
    }
}

// SAFETY: blocks of the arena are within it, aligned, and above all blocks that are in use; the others are the ordinary
// allocator's. No sum overflows: a layout's size with its alignment is at most `isize::MAX`.
unsafe impl<const BYTES: usize> GlobalAlloc for Bump<BYTES> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let free = self.arena.get().cast::<u8>().wrapping_add(self.used.get());
        let gap = free.addr().wrapping_neg() & (layout.align() - 1);
        let end = self
            .used
            .get()
            .wrapping_add(gap)
            .wrapping_add(layout.size());
        if end > BYTES {
            // SAFETY: the caller's promise is the same.
            return unsafe { System.alloc(layout) };
        }
        self.used.set(end);
        free.wrapping_add(gap)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(offset) = self.offset(block) else {
            // SAFETY: the block is not of the arena, so it is of the ordinary allocator.
            return unsafe { System.dealloc(block, layout) };
        };
        if offset.wrapping_add(layout.size()) == self.used.get() {
            self.used.set(offset);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(offset) = self.offset(block) else {
            // SAFETY: the block is not of the arena, so it is of the ordinary allocator.
            return unsafe { System.realloc(block, layout, size) };
        };
        let is_last = offset.wrapping_add(layout.size()) == self.used.get();
        let end = offset.wrapping_add(size);
        if is_last && end <= BYTES {
            self.used.set(end);
            return block;
        }
        if size <= layout.size() {
            return block;
        }
        // SAFETY: the caller promises that the size is valid with this alignment. Both blocks have at least the size of
        // the old one, and the new one is above it or outside the arena.
        unsafe {
            let new = self.alloc(Layout::from_size_align_unchecked(size, layout.align()));
            if !new.is_null() {
                block.copy_to_nonoverlapping(new, layout.size());
                self.dealloc(block, layout);
            }
            new
        }
    }
}
