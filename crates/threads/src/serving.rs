//! Marks the threads of a runtime that serve.

use std::cell::Cell;
use std::ffi::CStr;

use crate::{come_in_turn, come_soon, policy};

/// Name of a thread while it serves, and (next constant) of any other thread of the runtime.
const SERVING: &CStr = c"isobar-serve";
const BLOCKING: &CStr = c"isobar-block";

thread_local! {
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as serving until [`serve_no_more`]: callers wait for it, and it is scheduled soon. Repeated calls
/// cost almost nothing. A runtime gives its work to any of its threads, and takes it from one that blocks: each thread
/// that has waited for work serves.
pub fn serve() {
    if !SERVES.replace(true) {
        come_soon();
        policy::call_this_thread(SERVING);
    }
}

/// Returns true if this thread serves: then it must not block.
pub fn serves() -> bool {
    SERVES.get()
}

/// Marks this thread as busy with long work, while others serve.
pub fn serve_no_more() {
    if SERVES.replace(false) {
        come_in_turn();
        policy::call_this_thread(BLOCKING);
    }
}

/// Schedules a new thread of a serving runtime as usual, regardless of the thread that started it.
pub fn begin() {
    come_in_turn();
    policy::call_this_thread(BLOCKING);
}
