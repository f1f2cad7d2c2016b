//! The lock that the sources take for that of `parking_lot`.

use std::fmt::{self, Debug};
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

/// A lock, at which shuttle chooses the thread that runs next.
#[derive(Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

/// A lock that is taken, until it is dropped.
pub struct MutexGuard<'a, T> {
    inner: shuttle::sync::MutexGuard<'a, T>,
    /// Dropped when the lock is free again.
    _switch: Switch,
}

/// Lets another thread run when it is dropped. Shuttle switches before an unlock, and then not until the next lock:
/// what a thread does between them, such as dropping the last reference but one, would never come too late.
struct Switch;

impl<T> Mutex<T> {
    /// Makes a free lock.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        // As with `parking_lot`, a panic of the thread that had it is none of the next one's.
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard { inner, _switch: Switch }
    }
}

impl<T: Debug> Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            shuttle::thread::yield_now();
        }
    }
}
