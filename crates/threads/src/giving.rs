//! Runs long work on threads of its own.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Niceness of the threads relative to those that serve calls and write (nice(2)): if both want a processor, these
/// threads get about a tenth of it.
const NICENESS: i32 = 10;

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
        let runtime = builder.on_thread_start(|| crate::give_way(NICENESS)).build()?;
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
    use super::*;
    use crate::policy::linux::of_this_thread;

    #[test]
    fn work_is_at_least_as_nice_as_it_says() {
        let threads = GivingThreads::new("giving", 1).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        threads.spawn(move || tell.send(of_this_thread().unwrap().sched_nice).unwrap());
        // A thread that is nicer already, such as one of a program started by `nice`, stays so.
        assert!(told.recv().unwrap() >= NICENESS);
    }
}
