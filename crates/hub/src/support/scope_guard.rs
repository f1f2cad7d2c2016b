//! What is put right when work ends before its time: by a panic, or because nobody waits for it any more.

/// Does something when it is dropped, unless it was disarmed.
pub(crate) struct ScopeGuard<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> ScopeGuard<F> {
    pub(crate) fn new(remedy: F) -> Self {
        Self(Some(remedy))
    }

    /// Nothing has to be put right any more.
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
