//! Heavy work that takes its turn: a few at a time on threads that may block, a bounded number that waits.

use std::sync::Arc;

use isobar_model::error::{Error, Result};
use tokio::sync::Semaphore;

/// The turns of one kind of work.
pub(crate) struct Turns {
    at_once: Arc<Semaphore>,
    waiting: Semaphore,
}

impl Turns {
    /// So many at the same time, and so many that are under way or wait before the next is refused.
    pub(crate) fn new(at_once: usize, waiting: usize) -> Self {
        Self { at_once: Arc::new(Semaphore::new(at_once)), waiting: Semaphore::new(waiting) }
    }

    /// Does work when its turn comes. Work that has begun keeps its turn even when nobody waits for it any more.
    pub(crate) async fn take<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        let _place = self.waiting.try_acquire().map_err(|_| Error::Busy)?;
        let permit = Arc::clone(&self.at_once).acquire_owned().await.map_err(Error::internal)?;
        tokio::task::spawn_blocking(move || {
            let done = work();
            drop(permit);
            done
        })
        .await
        .map_err(Error::internal)
    }
}
