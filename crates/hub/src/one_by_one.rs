//! A change that looks at a thing, decides, and writes all of it, must not meet another one half-way: the later would
//! write back what the earlier has changed.

use tokio::sync::{Mutex, MutexGuard};
use uuid::Uuid;

/// Locks; things whose identifiers end alike share one.
const LOCKS: usize = 256;

/// Has changes of one thing happen one after the other.
pub(crate) struct OneByOne(Vec<Mutex<()>>);

impl OneByOne {
    pub(crate) fn new() -> Self {
        Self((0..LOCKS).map(|_| Mutex::default()).collect())
    }

    /// Waits for the changes of this thing that are under way; the next waits until the guard is dropped.
    pub(crate) async fn turn(&self, id: Uuid) -> MutexGuard<'_, ()> {
        // The end of an identifier is random.
        let [.., last] = *id.as_bytes();
        self.0[usize::from(last) % LOCKS].lock().await
    }
}
