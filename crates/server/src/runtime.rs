//! The process: its threads, its file descriptors, and how it is told to stop.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use isobar_hub::{Shift, spawn_guarded};
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Most threads for work that blocks: registry look-ups, scans, password hashing.
const BLOCKING_THREADS_MAX: usize = 64;
/// An idle blocking thread ends after this long.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_secs(10);

/// Between two looks for freed memory.
const TIDY_EVERY: Duration = Duration::from_secs(10);
/// The exit code of a process that was told to stop twice.
const EXIT_WHEN_TOLD_TWICE: i32 = 130;

/// A runtime with so many threads that serve requests.
pub fn start(threads: usize) -> io::Result<Runtime> {
    let count = AtomicUsize::new(0);
    Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(BLOCKING_THREAD_IDLE)
        .thread_name_fn(move || format!("isobar-{}", count.fetch_add(1, Ordering::Relaxed)))
        .enable_all()
        .build()
}

/// Raises the number of files and connections that the process may have open to the most that the system allows it.
pub fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files: the number of connections stays bounded by it");
    }
}

/// Keeps huge pages out of the process's memory: one of which a single block is in use counts in full, and the kernel
/// joins small pages into huge ones even where most of them were never touched. With them an idle server takes half as
/// much again.
pub fn refuse_huge_pages() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::debug!(%error, "memory may come in huge pages: an idle server may take more of it");
    }
}

/// Gives freed memory back to the system every now and then. The allocator does it when more is asked for, which a
/// process that has become idle does not do: it would hold what its busiest moment took.
pub async fn tidy_memory(mut shift: Shift) {
    while !shift.pause(TIDY_EVERY).await {
        crate::allocator::tidy();
        shift.well();
    }
}

/// SIGTERM and Ctrl-C, caught from the moment this is made.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From here on neither signal ends the process by itself.
    pub fn catch() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for either. A second one afterwards ends the process at once.
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
