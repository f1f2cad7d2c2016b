//! Memory limits of an engine. The engine checks its time only after every 10,000 loops and calls, and one operation on
//! a large structure can take seconds, so each large allocation checks it too.

#![allow(unsafe_code, reason = "an allocator has no safe interface")]

use std::cell::Cell;
use std::ptr::null_mut;
use std::rc::Rc;
use std::time::{Duration, Instant};

use isobar_model::time::Clock;
use rquickjs::allocator::{Allocator, RustAllocator};
use rquickjs::{Ctx, qjs};
use rustix::time::{ClockId, clock_gettime};

/// Returns the processor time of this thread; used for time limits only.
pub(super) fn processor_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Most bytes of the engine's stack.
const STACK_BYTES_MAX: qjs::size_t = 256 << 10;
/// Most bytes of memory of one engine.
pub(super) const MEMORY_BYTES_MAX: usize = 8 << 20;
/// Largest block in bytes that an engine gets for its final exception.
const LAST_BLOCK_BYTES_MAX: usize = 64 << 10;

/// Limits of running code in time and memory.
pub(super) struct Watch {
    /// Deadline in processor time of this thread; `None` without limits.
    until: Cell<Option<Duration>>,
    /// Earliest time at which the deadline can be reached, on a clock that needs no system call: processor time is at
    /// most elapsed time.
    not_before: Cell<Option<Instant>>,
    over: Cell<Option<Over>>,
    /// True while the engine throws an exception that code cannot catch.
    is_ending: Cell<bool>,
    runtime: Cell<*mut qjs::JSRuntime>,
}

/// Reason why code was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// Time limit.
    Late,
    /// Memory limit.
    Full,
}

impl Watch {
    /// Makes a watch without limits.
    pub(super) fn new() -> Self {
        Self {
            until: Cell::new(None),
            not_before: Cell::new(None),
            over: Cell::new(None),
            is_ending: Cell::new(false),
            runtime: Cell::new(null_mut()),
        }
    }

    /// Sets the engine that it watches, from a context: the engine whose allocator holds this watch.
    pub(super) fn watches(&self, ctx: &Ctx<'_>) {
        // SAFETY: the context is alive.
        self.runtime.set(unsafe { qjs::JS_GetRuntime(ctx.as_raw().as_ptr()) });
        self.forbid_calls(false);
    }

    /// Sets a limit of processor time from `begin`, which is now.
    pub(super) fn bound(&self, begin: Duration, time: Duration) {
        self.over.set(None);
        self.until.set(Some(begin.saturating_add(time)));
        self.not_before.set(Clock::System.instant().checked_add(time));
    }

    /// Removes the limit. Returns the reason if code was ended.
    pub(super) fn free(&self) -> Option<Over> {
        self.until.set(None);
        if self.is_ending.replace(false) {
            self.forbid_calls(false);
        }
        if self.over.get().is_some() {
            self.starve(false);
        }
        self.over.get()
    }

    /// Returns true if code must end, and then lets the engine throw an exception that code cannot catch, which needs
    /// memory. Some functions of the engine do catch it (in promises and iterators); to stop code that calls them
    /// repeatedly, all further calls fail.
    pub(super) fn interrupts(&self) -> bool {
        let is_over = self.is_over();
        if is_over {
            self.is_ending.set(true);
            self.starve(false);
            self.forbid_calls(true);
        }
        is_over
    }

    /// Returns true if code must end.
    pub(super) fn is_over(&self) -> bool {
        let Some(until) = self.until.get() else { return false };
        let may_be_late = || self.not_before.get().is_none_or(|it| Clock::System.instant() >= it);
        let is_late = || may_be_late() && processor_time() >= until;
        if self.over.get().is_none() && is_late() {
            self.over.set(Some(Over::Late));
        }
        self.over.get().is_some()
    }

    /// Returns true if a block of that size must not be allocated, given the bytes in use.
    fn refuses(&self, bytes: usize, used: usize) -> bool {
        if self.is_ending.get() {
            return bytes > LAST_BLOCK_BYTES_MAX;
        }
        let is_full = used.saturating_add(bytes) > MEMORY_BYTES_MAX;
        if is_full && self.until.get().is_some() && self.over.get().is_none() {
            self.over.set(Some(Over::Full));
        }
        let is_over = self.is_over();
        if is_over {
            self.starve(true);
        }
        is_full || is_over
    }

    /// Makes all further allocations of the engine fail, even small ones. Some operations ignore that a text cannot
    /// grow and continue with a structure that may be endless; a failed small allocation ends them.
    fn starve(&self, starves: bool) {
        let runtime = self.runtime.get();
        if !runtime.is_null() {
            // SAFETY: the allocator, the interrupt handler and the engine call this, all of which are there only as long
            // as the runtime is; and it sets a number, of which 0 means none.
            unsafe { qjs::JS_SetMemoryLimit(runtime, qjs::size_t::from(starves)) };
        }
    }

    /// Forbids calls, by a stack limit without room for one.
    fn forbid_calls(&self, forbids: bool) {
        let runtime = self.runtime.get();
        if !runtime.is_null() {
            // SAFETY: as above; the engine measures its stack against it with the next call.
            unsafe { qjs::JS_SetMaxStackSize(runtime, if forbids { 1 } else { STACK_BYTES_MAX }) };
        }
    }
}

/// Allocator of the engine, which counts bytes. The engine divides blocks of 4 KiB into small ones itself, so each call
/// is worth a check.
pub(super) struct EngineAllocator {
    watch: Rc<Watch>,
    /// Bytes allocated.
    used: usize,
}

impl EngineAllocator {
    pub(super) fn new(watch: Rc<Watch>) -> Self {
        Self { watch, used: 0 }
    }

    /// Counts an allocated block.
    fn gave(&mut self, block: *mut u8) -> *mut u8 {
        if !block.is_null() {
            // SAFETY: the block was given by the same allocator just now.
            self.used = self.used.saturating_add(unsafe { RustAllocator::usable_size(block) });
        }
        block
    }
}

// SAFETY: every block is one of `RustAllocator`, which keeps the contract, or null, which the contract allows; all blocks
// are resized, measured and freed by it alone.
unsafe impl Allocator for EngineAllocator {
    fn alloc(&mut self, size: usize) -> *mut u8 {
        if self.watch.refuses(size, self.used) {
            return null_mut();
        }
        let block = RustAllocator.alloc(size);
        self.gave(block)
    }

    fn calloc(&mut self, count: usize, size: usize) -> *mut u8 {
        if self.watch.refuses(count.saturating_mul(size), self.used) {
            return null_mut();
        }
        let block = RustAllocator.calloc(count, size);
        self.gave(block)
    }

    unsafe fn dealloc(&mut self, block: *mut u8) {
        // SAFETY: the block is one of this allocator, as the contract demands of the caller.
        unsafe {
            self.used = self.used.saturating_sub(RustAllocator::usable_size(block));
            RustAllocator.dealloc(block);
        }
    }

    unsafe fn realloc(&mut self, block: *mut u8, size: usize) -> *mut u8 {
        // SAFETY: as above; a block that is refused stays as it was, as with `realloc` of C.
        unsafe {
            let before = RustAllocator::usable_size(block);
            let others = self.used.saturating_sub(before);
            if size > before && self.watch.refuses(size, others) {
                return null_mut();
            }
            let resized = RustAllocator.realloc(block, size);
            if !resized.is_null() {
                self.used = others;
            }
            self.gave(resized)
        }
    }

    unsafe fn usable_size(block: *mut u8) -> usize {
        // SAFETY: as above.
        unsafe { RustAllocator::usable_size(block) }
    }
}
