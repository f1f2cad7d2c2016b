//! Panics on demand. There is nothing of this in the program: only the tests of this crate are built with it.

use std::collections::HashMap;

use parking_lot::Mutex;

/// How many panics are still to come at each point.
#[derive(Default)]
pub(crate) struct Faults(Mutex<HashMap<&'static str, u32>>);

impl Faults {
    /// From here on the point panics so many times.
    pub(crate) fn panic_at(&self, point: &'static str, times: u32) {
        self.0.lock().insert(point, times);
    }

    /// How many panics are still to come there.
    pub(crate) fn left_at(&self, point: &'static str) -> u32 {
        self.0.lock().get(point).copied().unwrap_or_default()
    }

    /// Panics if a test wants this point to.
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
