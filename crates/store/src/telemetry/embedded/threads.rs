//! The store's threads by name, and what becomes of the store when one of them ends as it should not.

use super::commit_queue::Shared;

/// The names of the store's threads.
pub const WRITER: &str = "telemetry-write";
pub const SYNCER: &str = "telemetry-sync";
pub const RECLAIMER: &str = "telemetry-free";

/// Fails the store when the thread that holds it ends by a panic: whoever waits would wait for ever.
pub struct Watched<'a> {
    /// What it shares with those who wait.
    pub shared: &'a Shared,
    /// Its name.
    pub thread: &'static str,
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(&format!("the thread {} panicked", self.thread));
        }
    }
}
