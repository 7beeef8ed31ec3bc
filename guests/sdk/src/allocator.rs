//! The guest allocator: a bump allocator in front of the ordinary one.
//!
//! An instance lives for one call, so growing the memory is wasted work: the host releases it after the call.
//! The arena is in the initial memory, and the zeros take no space in the component.
//! Blocks that do not fit come from the ordinary allocator, so a guest with large allocations holds at most the arena in
//! addition.

#![expect(
    unsafe_code,
    reason = "an allocator hands out raw memory; no kept crate has an arena in the initial memory and falls back"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, UnsafeCell};
use std::ptr;

#[cfg(test)]
mod tests;

/// The arena size.
///
/// Quickstart calls take at most 223 KiB (backup; etcd 164, wordpress 135, memcached 32). The host scans the initial
/// memory after each call: 1 MiB makes a memcached pass a tenth slower, and growth costs 8 us.
#[cfg(target_arch = "wasm32")]
const ARENA_BYTES: usize = 256 << 10;

#[cfg(target_arch = "wasm32")]
#[global_allocator]
static ALLOCATOR: Bump<ARENA_BYTES> = Bump::new();

/// The alignment and size unit of arena blocks: a freed block has room for an address.
const UNIT: usize = 8;

/// Freed blocks with fewer units than this are reused.
const UNITS_MAX: usize = 64;

/// An allocator that takes consecutive blocks from an arena.
///
/// The last block can be freed or grow in place. Other small freed blocks are reused for blocks with the same size, so
/// that a call touches fewer pages, which the host must wipe after the call.
struct Bump<const BYTES: usize> {
    /// The number of allocated bytes at the start of the arena.
    used: Cell<usize>,
    /// The last freed block for each number of units; it starts with the address of the previous one.
    freed: [Cell<*mut u8>; UNITS_MAX],
    arena: UnsafeCell<[u8; BYTES]>,
}

/// The bytes that a block takes in the arena.
const fn room(layout: Layout) -> usize {
    layout.size().next_multiple_of(UNIT)
}

// SAFETY: without atomics there is one thread.
#[cfg(all(target_arch = "wasm32", not(target_feature = "atomics")))]
unsafe impl<const BYTES: usize> Sync for Bump<BYTES> {}

impl<const BYTES: usize> Bump<BYTES> {
    const fn new() -> Self {
        Self {
            used: Cell::new(0),
            freed: [const { Cell::new(ptr::null_mut()) }; UNITS_MAX],
            arena: UnsafeCell::new([0; BYTES]),
        }
    }

    /// The freed blocks with a size, if such blocks are reused.
    fn freed(&self, room: usize) -> Option<&Cell<*mut u8>> {
        self.freed.get(room / UNIT)
    }

    /// The start of an arena block; `None` for a block from the ordinary allocator.
    fn offset(&self, block: *mut u8) -> Option<usize> {
        let offset = block.addr().wrapping_sub(self.arena.get().addr());
        (offset < BYTES).then_some(offset)
    }
}

// SAFETY: blocks of the arena are within it, aligned, and either above all blocks that are in use or freed ones of the
// same size; the others are the ordinary allocator's. Freed blocks are below `used`, which only the last block lowers.
// No sum overflows: a layout's size with the alignment is at most `isize::MAX`.
#[expect(
    clippy::cast_ptr_alignment,
    reason = "blocks of the arena are aligned to a unit, which is the alignment of an address or a multiple of it"
)]
unsafe impl<const BYTES: usize> GlobalAlloc for Bump<BYTES> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let room = room(layout);
        if layout.align() <= UNIT
            && let Some(freed) = self.freed(room)
        {
            let block = freed.get();
            if !block.is_null() {
                // SAFETY: a freed block has a unit at least, and begins with the address of the one before it.
                freed.set(unsafe { block.cast::<*mut u8>().read() });
                return block;
            }
        }
        let free = self.arena.get().cast::<u8>().wrapping_add(self.used.get());
        let gap = free.addr().wrapping_neg() & (layout.align().max(UNIT) - 1);
        let end = self.used.get().wrapping_add(gap).wrapping_add(room);
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
        let room = room(layout);
        if offset.wrapping_add(room) == self.used.get() {
            self.used.set(offset);
        } else if let Some(freed) = self.freed(room) {
            // SAFETY: the block has a unit at least, is aligned to it, and has no user any more.
            unsafe { block.cast::<*mut u8>().write(freed.get()) };
            freed.set(block);
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Some(offset) = self.offset(block) else {
            // SAFETY: the block is not of the arena, so it is of the ordinary allocator.
            return unsafe { System.realloc(block, layout, size) };
        };
        let before = room(layout);
        let is_last = offset.wrapping_add(before) == self.used.get();
        let end = offset.wrapping_add(size.next_multiple_of(UNIT));
        if is_last && end <= BYTES {
            self.used.set(end);
            return block;
        }
        if size <= before {
            return block;
        }
        // SAFETY: the caller promises that the size is valid with this alignment. Both blocks have at least the size of
        // the old one, which is in use, so they do not overlap.
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
