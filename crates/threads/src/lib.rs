//! Threads for long work, which yield to those that serve calls and write.

use std::cell::Cell;
use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Niceness of threads for long work relative to those that serve calls and write (nice(2)): if both want a processor,
/// these threads get about a tenth of it.
pub const NICENESS: i32 = 10;

thread_local! {
    static GIVES_WAY: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if this thread yields to less nice ones: it may not run for long, so others must not wait for it.
pub fn gives_way() -> bool {
    GIVES_WAY.get()
}

/// Makes this thread yield to less nice ones, by a niceness such as [`NICENESS`]. A thread that is nicer already stays
/// so. On Linux the niceness belongs to a thread; elsewhere nothing is changed.
pub fn give_way(niceness: i32) {
    GIVES_WAY.set(true);
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};

        // Without a process the calls mean the calling thread.
        let niced = match getpriority_process(None) {
            Ok(before) if before >= niceness => Ok(()),
            Ok(_) => setpriority_process(None, niceness),
            Err(error) => Err(error),
        };
        if let Err(error) = niced {
            tracing::debug!(%error, "a thread for long work runs at full priority");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}

/// Pool of a few threads that yield to all others: work on all processors would delay every other thread.
pub struct GivingThreads {
    spawner: Handle,
    runtime: Option<Runtime>,
}

impl GivingThreads {
    /// Creates a pool of at most `at_once` threads with this name; each is started when it is needed.
    ///
    /// # Errors
    /// The system has no more resources.
    pub fn new(name: &str, at_once: usize) -> io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        builder.max_blocking_threads(at_once).thread_name(name);
        let runtime = builder.on_thread_start(|| give_way(NICENESS)).build()?;
        Ok(Self { spawner: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Runs work, which may block, on a thread of the pool.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.spawner.spawn_blocking(work)
    }
}

impl Drop for GivingThreads {
    fn drop(&mut self) {
        // The last owner may be a task: there a runtime must not wait for its threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn thread_of_the_pool_is_nice_and_its_maker_is_not() {
        let before = getpriority_process(None).unwrap();
        let threads = GivingThreads::new("giving", 1).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        threads.spawn(move || tell.send((gives_way(), getpriority_process(None).unwrap())).unwrap());
        // A thread that is nicer already, such as one of a program started by `nice`, stays so.
        assert_eq!(told.recv().unwrap(), (true, before.max(NICENESS)));
        assert_eq!((gives_way(), getpriority_process(None).unwrap()), (false, before));
    }
}
