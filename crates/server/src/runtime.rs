//! The process: its threads, its file descriptors, and how it is told to stop.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// Most threads for work that blocks: registry look-ups, scans, password hashing.
const BLOCKING_THREADS_MAX: usize = 64;
/// An idle blocking thread ends after this long.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_secs(10);

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

/// Waits for SIGTERM or Ctrl-C. A second one afterwards ends the process at once.
pub async fn told_to_stop() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "Ctrl-C",
    };
    tracing::info!("{name}: stops accepting, finishes what is under way");
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("told to stop twice: ends now");
        std::process::exit(130);
    });
    Ok(())
}
