//! Threads of their own for what takes long.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// How nice they are to those that serve calls and write (nice(2)): where both want a processor, they get about one part in
/// ten.
const NICENESS: i32 = 10;

/// A few threads that give way to all others: work that took all processors would keep everybody else waiting.
pub struct GivingThreads {
    spawner: Handle,
    runtime: Option<Runtime>,
}

impl GivingThreads {
    /// So many at most, of this name; each is started when it is needed.
    ///
    /// # Errors
    /// The system gives no more resources.
    pub fn new(name: &str, at_once: usize) -> io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        builder.max_blocking_threads(at_once).thread_name(name);
        let runtime = builder.on_thread_start(|| crate::give_way(NICENESS)).build()?;
        Ok(Self { spawner: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Does work on one of them, which may block.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.spawner.spawn_blocking(work)
    }
}

impl Drop for GivingThreads {
    fn drop(&mut self) {
        // The last holder may be a task: there a runtime must not wait for its threads.
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
        // Whoever is nicer already, as what `nice` has started, stays so.
        assert!(told.recv().unwrap() >= NICENESS);
    }
}
