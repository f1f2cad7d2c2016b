//! Names the store's threads, and fails the store if one of them panics.

use super::commit_queue::Shared;

/// Name of the thread that writes; the next constants name those that sync and reclaim.
pub const WRITER: &str = "telemetry-write";
pub const SYNCER: &str = "telemetry-sync";
pub const RECLAIMER: &str = "telemetry-free";

/// Guard that fails the store when its thread panics: waiters would wait for ever.
pub struct Watched<'a> {
    /// State shared with the waiters.
    pub shared: &'a Shared,
    /// Name of the thread.
    pub thread: &'static str,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(&format!("the thread {} panicked", self.thread));
        }
    }
}
