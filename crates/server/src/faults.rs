//! Panics on demand, compiled only into this program's tests.

use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    /// Number of panics to come at each point. A test and its tasks share one thread.
    static LEFT: RefCell<HashMap<&'static str, u32>> = RefCell::default();
}

/// Makes the point panic `times` times.
pub fn panic_at(point: &'static str, times: u32) {
    LEFT.with_borrow_mut(|left| left.insert(point, times));
}

/// Returns the number of panics to come at the point.
pub fn left_at(point: &'static str) -> u32 {
    LEFT.with_borrow(|left| left.get(point).copied().unwrap_or_default())
}

/// Panics if a test asked this point to.
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
