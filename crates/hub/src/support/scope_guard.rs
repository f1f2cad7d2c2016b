//! Runs a remedy if work ends early: by a panic, or because its future is dropped.

/// Runs a function when it is dropped, unless it was disarmed.
pub(crate) struct ScopeGuard<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> ScopeGuard<F> {
    pub(crate) fn new(remedy: F) -> Self {
        Self(Some(remedy))
    }

    /// Disarms the guard after the work is complete.
    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for ScopeGuard<F> {
    fn drop(&mut self) {
        if let Some(remedy) = self.0.take() {
            remedy();
        }
    }
}
