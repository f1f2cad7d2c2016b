//! The memory of an engine. The engine looks at its clock after every 10,000 loops and calls only, and one operation on
//! something large can take seconds: so it is looked at with every large block too.

#![allow(unsafe_code, reason = "an allocator has no safe interface")]

use std::cell::Cell;
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rquickjs::allocator::{Allocator, RustAllocator};
use rustix::time::{ClockId, clock_gettime};

/// The processor time that this thread has taken: only a limit of time is measured with it.
pub(super) fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// How long code may still run, and how large its blocks may be.
pub(super) struct Watch {
    /// On the clock of this thread's processor time.
    until: Cell<Duration>,
    /// The same on the clock that costs no call of the system: processor time is at most as much as elapsed time.
    not_before: Cell<Option<Instant>>,
    block_bytes_max: Cell<usize>,
    expired: Cell<bool>,
    wants_more: Cell<bool>,
}

impl Watch {
    /// Without bounds.
    pub(super) fn new() -> Self {
        Self {
            until: Cell::new(Duration::MAX),
            not_before: Cell::new(None),
            block_bytes_max: Cell::new(usize::MAX),
            expired: Cell::new(false),
            wants_more: Cell::new(false),
        }
    }

    /// From here on there are bounds: of processor time from `begin` on, and of a block.
    pub(super) fn bound(&self, begin: Duration, time: Duration, block_bytes_max: usize) {
        self.expired.set(false);
        self.wants_more.set(false);
        self.until.set(begin.saturating_add(time));
        let spent = processor_time().saturating_sub(begin);
        self.not_before.set(Instant::now().checked_add(time.saturating_sub(spent)));
        self.block_bytes_max.set(block_bytes_max);
    }

    /// From here on there are none.
    pub(super) fn free(&self) {
        self.until.set(Duration::MAX);
        self.not_before.set(None);
        self.block_bytes_max.set(usize::MAX);
    }

    /// Whether the time was over at some look.
    pub(super) fn has_expired(&self) -> bool {
        self.expired.get()
    }

    /// Whether a block was beyond its bound.
    pub(super) fn wants_more(&self) -> bool {
        self.wants_more.get()
    }

    /// Whether the code must end.
    pub(super) fn is_over(&self) -> bool {
        if self.until.get() == Duration::MAX {
            return false;
        }
        let is_late = || self.not_before.get().is_none_or(|it| Instant::now() >= it) && processor_time() >= self.until.get();
        if !self.expired.get() && is_late() {
            self.expired.set(true);
        }
        self.expired.get() || self.wants_more.get()
    }

    /// Whether a block of that size is not given.
    fn refuses(&self, bytes: usize) -> bool {
        if bytes > self.block_bytes_max.get() {
            self.wants_more.set(true);
        }
        self.is_over()
    }
}

/// Gives the engine its blocks. Small ones it cuts out of blocks of 4 KiB by itself, so what comes here is worth a look;
/// how much it holds in all it counts by itself too (`set_memory_limit`).
pub(super) struct Memory(pub(super) Rc<Watch>);

// SAFETY: every block is one of `RustAllocator`, which keeps the contract, or null, which the contract allows; all blocks
// are resized, measured and freed by it alone.
unsafe impl Allocator for Memory {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if self.0.refuses(size) { null_mut() } else { RustAllocator.alloc(size) }
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        if self.0.refuses(count.saturating_mul(size)) { null_mut() } else { RustAllocator.calloc(count, size) }
    }

    unsafe fn dealloc(&mut self, block: *mut u8) {
        unsafe { RustAllocator.dealloc(block) };
    }

    unsafe fn realloc(&mut self, block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: the block is one of this allocator, as the contract demands of the caller.
        let is_growing = size > unsafe { RustAllocator::usable_size(block) };
        if is_growing && self.0.refuses(size) {
            return null_mut();
        }
        unsafe { RustAllocator.realloc(block, size) }
    }

    unsafe fn usable_size(block: *mut u8) -> usize {
        unsafe { RustAllocator::usable_size(block) }
    }
}
