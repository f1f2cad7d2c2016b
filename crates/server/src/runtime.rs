//! The process: threads, file descriptors, and signals.

use std::io;
use std::time::Duration;

use isobar_hub::{Shift, spawn_guarded};
use isobar_store::FILES_MAX;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Name of the runtime's threads, in the log after a panic and for the system's tools.
const THREAD: &str = "isobar";
/// Most threads for blocking work: registry look-ups, scans, password hashing.
const BLOCKING_THREADS_MAX: usize = 64;
/// Idle time after which a blocking thread ends.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_secs(10);

/// File descriptors reserved for the stores, outgoing calls and e-mails. With few descriptors it is half of all, but
/// never less than the stores may need.
const FILES_KEPT: u64 = 1_024;
/// Fewest connections with which the server starts.
const CONNECTIONS_MIN: u64 = 64;

/// Interval at which freed memory is returned.
const TIDY_EVERY: Duration = Duration::from_secs(10);
/// Exit code after a second stop signal.
const EXIT_WHEN_TOLD_TWICE: i32 = 130;

/// Makes a runtime with `threads` threads that serve requests, and up to [`BLOCKING_THREADS_MAX`] for blocking work.
pub fn start(threads: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(BLOCKING_THREAD_IDLE)
        .thread_name(THREAD)
        .enable_all()
        .build()
}

/// Raises the limit of open files to the system's maximum. Returns it, or `None` if there is none.
pub fn raise_file_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let before = limit.current;
        limit.current = limit.maximum;
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::warn!(%error, "cannot raise the limit of open files: the number of connections stays bounded by it");
            limit.current = before;
        }
    }
    limit.current
}

/// Returns the number of connections for the wanted number and the limit of open files. Some files are reserved, as a
/// store that cannot open a file accepts no writes. Fails if too few would remain.
pub fn connections(wanted: usize, files: Option<u64>) -> Result<usize, String> {
    let Some(files) = files else { return Ok(wanted) };
    let left = files.saturating_sub((files / 2).clamp(FILES_MAX, FILES_KEPT));
    if left < CONNECTIONS_MIN {
        let least = FILES_MAX + CONNECTIONS_MIN;
        return Err(format!(
            "the system lets this process open {files} files, and it needs {least} at least (ulimit -n)"
        ));
    }
    let most = usize::try_from(left).unwrap_or(wanted).min(wanted);
    tracing::info!(most, wanted, files, "connections that may be open at a time");
    Ok(most)
}

/// Disables transparent huge pages: one with a single used block counts in full, and the kernel joins small pages even
/// where most were never touched. With them an idle server takes half as much memory again.
pub fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "memory may come in huge pages: an idle server may take more of it");
    }
}

/// Returns freed memory to the system periodically. The allocator only does so on allocations, so an idle process would
/// keep the memory of its busiest moment.
pub async fn tidy_memory(mut shift: Shift) {
    loop {
        #[cfg(test)]
        crate::faults::reached("memory");
        crate::allocator::tidy();
        shift.well();
        if shift.pause(TIDY_EVERY).await {
            return;
        }
    }
}

/// Handlers of SIGTERM and Ctrl-C, from the moment this is made.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Installs the handlers: neither signal ends the process by itself afterwards.
    pub fn catch() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for either signal. A second one afterwards ends the process at once.
    pub async fn wait(mut self) {
        let name = self.next().await;
        tracing::info!("{name}: stops accepting, finishes what is under way");
        spawn_guarded("signal", async move {
            let name = self.next().await;
            tracing::warn!("{name} again: ends now");
            std::process::exit(EXIT_WHEN_TOLD_TWICE);
        });
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "Ctrl-C",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_reserved_for_the_stores() {
        assert_eq!(connections(20_000, None), Ok(20_000));
        assert_eq!(connections(20_000, Some(1 << 20)), Ok(20_000));
        assert_eq!(connections(20_000, Some(20_000)), Ok(18_976));
        assert_eq!(connections(20_000, Some(1_024)), Ok(512));
        assert_eq!(connections(32, Some(1_024)), Ok(32));
        assert_eq!(connections(20_000, Some(FILES_MAX + 64)), Ok(64));
        let refused = connections(20_000, Some(FILES_MAX + 63)).unwrap_err();
        assert!(refused.contains(&format!("needs {} at least", FILES_MAX + 64)), "{refused}");
        assert!(connections(32, Some(0)).is_err());
    }
}
