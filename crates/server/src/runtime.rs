//! The process: its threads, its file descriptors, and how it is told to stop.

use std::io;
use std::time::Duration;

use isobar_hub::{Shift, spawn_guarded};
use isobar_store::FILES_MAX;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a thread is called in the log when it panics; the system knows it by what it does.
const THREAD: &str = "isobar";
/// Most threads for work that blocks: registry look-ups, scans, password hashing.
const BLOCKING_THREADS_MAX: usize = 64;
/// An idle blocking thread ends after this long.
const BLOCKING_THREAD_IDLE: Duration = Duration::from_secs(10);

/// Files that no connection takes: those of the stores, of calls and e-mails that go out, and some to spare. Where there are
/// few it is half of all, but never less than what the stores may need.
const FILES_KEPT: u64 = 1_024;
/// With room for fewer connections than these it is not started.
const CONNECTIONS_MIN: u64 = 64;

/// Between two looks for freed memory.
const TIDY_EVERY: Duration = Duration::from_secs(10);
/// The exit code of a process that was told to stop twice.
const EXIT_WHEN_TOLD_TWICE: i32 = 130;

/// A runtime with so many threads that serve requests. Everybody waits for those, so they come soon; those for work that blocks
/// do not, nor does what they start, the stores' own threads among it.
pub fn start(threads: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .thread_keep_alive(BLOCKING_THREAD_IDLE)
        .thread_name(THREAD)
        .on_thread_start(isobar_threads::begin)
        // Only those that serve wait in this way. Which they are is not known before: they come out of the same pool.
        .on_thread_park(isobar_threads::serve)
        .enable_all()
        .build()
}

/// Raises the number of files and connections that the process may have open to the most that the system allows it. How
/// many it may then have; none: as many as it likes.
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

/// How many connections may be open at a time, where so many are wanted and so many files may be open. Some are kept aside:
/// a store that cannot open its next file can take nothing more. An error where hardly any would be left.
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use isobar_model::time::Clock;
    use tokio::runtime::Handle;

    use super::*;

    /// What the system calls this thread.
    #[cfg(target_os = "linux")]
    fn called() -> String {
        std::fs::read_to_string("/proc/thread-self/comm").unwrap().trim().to_owned()
    }

    /// Work that blocks comes at once, before the threads that serve have begun, and takes one of them away again and again.
    #[cfg(target_os = "linux")]
    #[test]
    fn who_serves_comes_soon_whichever_thread_it_is() {
        const PAUSE: Duration = Duration::from_millis(1);
        const PAUSES_MAX: usize = 50;
        for round in 0..10 {
            let runtime = start(1).unwrap();
            let all_at_once = Arc::new(Barrier::new(4));
            let blocking: Vec<_> = (0..4)
                .map(|_| {
                    let all_at_once = Arc::clone(&all_at_once);
                    runtime.spawn_blocking(move || {
                        all_at_once.wait();
                        called()
                    })
                })
                .collect();
            let serving = runtime.spawn(async {
                for _ in 0..3 {
                    // A pause that is over before anybody waits for it, on a slow machine, is none.
                    for _ in 0..PAUSES_MAX {
                        Clock::System.sleep(PAUSE).await;
                        if called() == "isobar-serve" {
                            break;
                        }
                    }
                    assert_eq!(called(), "isobar-serve");
                    tokio::task::block_in_place(|| {
                        isobar_threads::serve_no_more();
                        Handle::current().block_on(Clock::System.sleep(PAUSE));
                        assert_eq!(called(), "isobar-block");
                    });
                }
            });
            runtime.block_on(async {
                serving.await.unwrap_or_else(|error| panic!("round {round}: {error}"));
                for one in blocking {
                    assert_eq!(one.await.unwrap(), "isobar-block", "round {round}");
                }
            });
        }
    }

    #[test]
    fn files_are_kept_aside_for_the_stores() {
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
