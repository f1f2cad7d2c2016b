//! The allocator: mimalloc, by its functions without an alignment where these suffice.
//!
//! The crate's own wrapper passes an alignment with every allocation, which costs 3 % of the thread that serves
//! requests, for what the plain functions guarantee anyway.

#![allow(unsafe_code, reason = "an allocator has no safe interface")]

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_collect, mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc, mi_zalloc_aligned,
};

/// Alignment of every block of the plain functions, in bytes (mimalloc, `MI_MAX_ALIGN_SIZE`: 16 for blocks of 16 bytes
/// and more, else the word).
const PLAIN_ALIGNMENT: usize = size_of::<usize>();

/// The allocator of the process.
pub struct Mimalloc;

// SAFETY: each method calls the function of mimalloc with the same contract; blocks of both kinds are freed and resized
// by the same functions, and the plain ones are used only where their alignment suffices.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = match layout.align() <= PLAIN_ALIGNMENT {
            true => unsafe { mi_malloc(layout.size()) },
            false => unsafe { mi_malloc_aligned(layout.size(), layout.align()) },
        };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = match layout.align() <= PLAIN_ALIGNMENT {
            true => unsafe { mi_zalloc(layout.size()) },
            false => unsafe { mi_zalloc_aligned(layout.size(), layout.align()) },
        };
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        unsafe { mi_free(block.cast()) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let block = match layout.align() <= PLAIN_ALIGNMENT {
            true => unsafe { mi_realloc(block.cast(), size) },
            false => unsafe { mi_realloc_aligned(block.cast(), size, layout.align()) },
        };
        block.cast()
    }
}

/// Returns freed memory to the system.
pub fn tidy() {
    // SAFETY: it has no preconditions; any thread may call it at any time.
    unsafe { mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_as_asked() {
        for align in [1, 2, 4, 8, 16, 32, 64, 128, 4096] {
            for size in [1, 7, 8, 15, 16, 24, 40, 100, 1_000, 5_000, 100_000] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the layout has a size; the block is written within it and freed once, with its last layout.
                unsafe {
                    let block = Mimalloc.alloc(layout);
                    assert!(!block.is_null() && (block as usize).is_multiple_of(align), "{layout:?}");
                    block.write_bytes(7, size);
                    let larger = Mimalloc.realloc(block, layout, 2 * size);
                    assert!(!larger.is_null() && (larger as usize).is_multiple_of(align), "{layout:?}");
                    assert_eq!(larger.add(size - 1).read(), 7);
                    Mimalloc.dealloc(larger, Layout::from_size_align(2 * size, align).unwrap());
                }
            }
        }
    }
}
