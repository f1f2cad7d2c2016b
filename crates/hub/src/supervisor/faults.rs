//! Panics on demand. Only the tests of this crate are built with this module.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Number of panics left at each point.
#[derive(Default)]
pub(crate) struct Faults(Mutex<HashMap<&'static str, u32>>);

impl Faults {
    /// Makes the point panic this many times from now on.
    pub(crate) fn panic_at(&self, point: &'static str, times: u32) {
        self.0.lock().insert(point, times);
    }

    /// Returns the number of panics left at a point.
    pub(crate) fn left_at(&self, point: &'static str) -> u32 {
        self.0.lock().get(point).copied().unwrap_or_default()
    }

    /// Panics if a test has requested it for this point.
    pub(crate) fn reached(&self, point: &'static str) {
        let is_over = {
            let mut left = self.0.lock();
            match left.get_mut(point).filter(|left| **left > 0) {
                Some(left) => {
                    *left -= 1;
                    false
                }
                None => true,
            }
        };
        assert!(is_over, "the test has {point} panic");
    }
}
