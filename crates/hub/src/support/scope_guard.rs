//! What is put right when work ends before its time: by a panic, or because nobody waits for it any more.

/// Does something when it is dropped, unless it was called off.
pub(crate) struct Otherwise<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Otherwise<F> {
    pub(crate) fn new(remedy: F) -> Self {
        Self(Some(remedy))
    }

    /// There is nothing to put right.
    pub(crate) fn call_off(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for Otherwise<F> {
    fn drop(&mut self) {
        if let Some(remedy) = self.0.take() {
            remedy();
        }
    }
}
