use std::alloc::{GlobalAlloc as _, Layout};
use std::ptr;
use std::slice;

use proptest::prelude::*;

use super::Bump;

/// A step of a program: a number that chooses a block, and a size.
#[derive(Clone, Debug)]
enum Step {
    Allocate(usize, u32),
    Resize(usize, usize),
    Free(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1_usize..400, 0_u32..7).prop_map(|(size, align)| Step::Allocate(size, align)),
        (any::<usize>(), 1_usize..400).prop_map(|(block, size)| Step::Resize(block, size)),
        any::<usize>().prop_map(Step::Free),
    ]
}

/// A block and the byte that fills it.
struct Block {
    start: *mut u8,
    layout: Layout,
    fill: u8,
}

impl Block {
    fn fill(self) -> Self {
        // SAFETY: the block has the layout's size and a single user.
        unsafe { self.start.write_bytes(self.fill, self.layout.size()) };
        self
    }

    fn holds(&self, size: usize) -> bool {
        // SAFETY: as above, and it is filled.
        let bytes = unsafe { slice::from_raw_parts(self.start, size) };
        self.start.addr().is_multiple_of(self.layout.align())
            && bytes.iter().all(|byte| *byte == self.fill)
    }
}

proptest! {
    #[test]
    fn blocks_keep_their_bytes_while_others_come_and_go(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let bump = Bump::<4096>::new();
        let mut blocks: Vec<Block> = Vec::new();
        for (fill, step) in (0..=u8::MAX).cycle().zip(steps) {
            match step {
                Step::Allocate(size, align) => {
                    let layout = Layout::from_size_align(size, 1 << align).unwrap();
                    // SAFETY: the size is not zero.
                    let start = unsafe { bump.alloc(layout) };
                    blocks.push(Block { start, layout, fill }.fill());
                }
                Step::Resize(at, size) if !blocks.is_empty() => {
                    let at = at % blocks.len();
                    let Block { start, layout, fill } = blocks.swap_remove(at);
                    // SAFETY: the block is of this allocator and is used no more.
                    let start = unsafe { bump.realloc(start, layout, size) };
                    let preserved = layout.size().min(size);
                    let layout = Layout::from_size_align(size, layout.align()).unwrap();
                    let block = Block { start, layout, fill };
                    prop_assert!(block.holds(preserved));
                    blocks.push(block.fill());
                }
                Step::Free(at) if !blocks.is_empty() => {
                    let Block { start, layout, .. } = blocks.swap_remove(at % blocks.len());
                    // SAFETY: as above.
                    unsafe { bump.dealloc(start, layout) };
                }
                Step::Resize(..) | Step::Free(_) => {}
            }
            prop_assert!(blocks.iter().all(|block| block.holds(block.layout.size())));
        }
        for block in blocks {
            // SAFETY: as above.
            unsafe { bump.dealloc(block.start, block.layout) };
        }
    }
}

#[test]
fn the_last_block_grows_in_place_and_is_freed() {
    let bump = Bump::<1024>::new();
    let [small, large] = [100, 1000].map(|size| Layout::from_size_align(size, 1).unwrap());
    // SAFETY: each block is used with the same layout until it is freed.
    unsafe {
        let first = bump.alloc(small);
        let grown = bump.realloc(first, small, 1000);
        assert!(ptr::eq(first, grown));
        bump.dealloc(grown, large);
        assert!(ptr::eq(bump.alloc(large), first));
    }
}

#[test]
fn a_block_that_does_not_fit_is_freed_by_the_ordinary_allocator() {
    let bump = Bump::<1024>::new();
    let [small, large] = [1000, 5000].map(|size| Layout::from_size_align(size, 8).unwrap());
    // SAFETY: each block is used with the same layout until it is freed.
    unsafe {
        let inside = bump.alloc(small);
        let outside = bump.realloc(inside, small, 5000);
        assert_eq!(bump.offset(outside), None);
        // The arena is free again.
        assert!(ptr::eq(bump.alloc(small), inside));
        bump.dealloc(outside, large);
    }
}

#[test]
fn a_freed_block_is_used_again_for_one_of_its_size() {
    let bump = Bump::<1024>::new();
    let [small, similar, larger, aligned] = [(50, 1), (55, 8), (57, 1), (56, 64)]
        .map(|(size, align)| Layout::from_size_align(size, align).unwrap());
    // SAFETY: each block is used with the same layout until it is freed.
    unsafe {
        let [first, second, _last] = [small; 3].map(|layout| bump.alloc(layout));
        bump.dealloc(first, small);
        bump.dealloc(second, small);
        let used = bump.used.get();
        assert!(ptr::eq(bump.alloc(similar), second));
        assert!(!ptr::eq(bump.alloc(larger), first));
        assert!(!ptr::eq(bump.alloc(aligned), first));
        assert!(ptr::eq(bump.alloc(small), first));
        assert!(used < bump.used.get());
    }
}
