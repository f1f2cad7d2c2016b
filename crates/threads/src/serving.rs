//! Threads that serve, of those that a runtime has.

use std::cell::Cell;
use std::ffi::CStr;

use crate::{come_in_turn, come_soon, policy};

/// What a thread is called while it serves, and any other of the same runtime.
const SERVING: &CStr = c"isobar-serve";
const BLOCKING: &CStr = c"isobar-block";

thread_local! {
    static SERVES: Cell<bool> = const { Cell::new(false) };
}

/// This thread serves, until it says otherwise ([`serve_no_more`]): everybody waits for it, and it comes soon. Said again it
/// costs next to nothing. A runtime gives its work to any of its threads, whichever is there first, and takes it away from one
/// that blocks: each that has waited for work is one that serves.
pub fn serve() {
    if !SERVES.replace(true) {
        come_soon();
        policy::call_this_thread(SERVING);
    }
}

/// Whether this thread is one that serves: it must not block.
pub fn serves() -> bool {
    SERVES.get()
}

/// This thread does something that takes long, and others serve meanwhile.
pub fn serve_no_more() {
    if SERVES.replace(false) {
        come_in_turn();
        policy::call_this_thread(BLOCKING);
    }
}

/// A thread of a runtime that serves has begun, for whatever it will do. It comes in turn, however the one that started it does.
pub fn begin() {
    come_in_turn();
    policy::call_this_thread(BLOCKING);
}
