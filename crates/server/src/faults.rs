//! Panics on demand. There is nothing of this in the program: only its tests are built with it.

use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    /// How many panics are still to come at each point. A test and what it starts are on one thread.
    static LEFT: RefCell<HashMap<&'static str, u32>> = RefCell::default();
}

/// From here on the point panics so many times.
pub fn panic_at(point: &'static str, times: u32) {
    LEFT.with_borrow_mut(|left| left.insert(point, times));
}

/// How many panics are still to come there.
pub fn left_at(point: &'static str) -> u32 {
    LEFT.with_borrow(|left| left.get(point).copied().unwrap_or_default())
}

/// Panics if a test wants this point to.
pub fn reached(point: &'static str) {
    let is_over = LEFT.with_borrow_mut(|left| match left.get_mut(point).filter(|left| **left > 0) {
        Some(left) => {
            *left -= 1;
            false
        }
        None => true,
    });
    assert!(is_over, "the test has {point} panic");
}
