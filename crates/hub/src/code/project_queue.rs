//! The runs of one project's code: one at a time, the others queue. The next one begins without waking another thread.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use isobar_model::error::{Error, Result};
use isobar_model::time::Clock;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::supervisor::guarded;
use isobar_quota::TenantShare;

/// Runs of one project that wait; beyond, callers hear 503.
const QUEUED_RUNS_MAX: usize = 256;
/// After so much time of one project, others are served by the thread.
const PROJECT_SLICE: Duration = Duration::from_millis(1);

/// The queue of one project.
#[derive(Default)]
pub(crate) struct ProjectQueue(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<QueuedRun>,
    /// True if a task takes the runs one after the other.
    has_worker: bool,
}

type QueuedRun = Pin<Box<dyn Future<Output = ()> + Send>>;

impl ProjectQueue {
    /// Queues work; what it gives. [`Error::Busy`] when too many wait already. The share of what waiting work may hold is given
    /// back when the work has ended.
    pub(super) fn join<T: Send + 'static>(
        &self,
        runtime: &Runtime,
        share: TenantShare,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<oneshot::Receiver<T>> {
        let (sender, outcome) = oneshot::channel();
        let run: QueuedRun = Box::pin(async move {
            // Who waits hears of a panic from the sender, which is dropped; those behind in the queue come next.
            let outcome = guarded("code", work).await;
            drop(share);
            if let Some(outcome) = outcome {
                // Who no longer waits need not know.
                let _ = sender.send(outcome);
            }
        });
        let run = isobar_traces::carry(run);
        let has_worker = {
            let mut runs = self.0.lock();
            if runs.waiting.len() >= QUEUED_RUNS_MAX {
                return Err(Error::Busy);
            }
            runs.waiting.push_back(run);
            std::mem::replace(&mut runs.has_worker, true)
        };
        if !has_worker {
            go_on(runtime, run_all(Worker::of(self)));
        }
        Ok(outcome)
    }
}

#[expect(clippy::disallowed_methods, reason = "each run is guarded, and nothing else of it can panic")]
fn go_on(runtime: &Runtime, work: impl Future<Output = ()> + Send + 'static) {
    runtime.spawn(work);
}

async fn run_all(mut worker: Worker) {
    let mut begin = Clock::System.instant();
    while let Some(run) = worker.next() {
        run.await;
        if Clock::System.elapsed(begin) > PROJECT_SLICE {
            tokio::task::yield_now().await;
            begin = Clock::System.instant();
        }
    }
}

/// The task that takes one run after the other. If it ends early, its waiting runs are dropped.
struct Worker {
    runs: Arc<Mutex<Queue>>,
    /// True once it found none left. The next run to join starts another worker.
    is_done: bool,
}

impl Worker {
    fn of(queue: &ProjectQueue) -> Self {
        Self { runs: Arc::clone(&queue.0), is_done: false }
    }

    fn next(&mut self) -> Option<QueuedRun> {
        let mut runs = self.runs.lock();
        let next = runs.waiting.pop_front();
        if next.is_none() {
            runs.has_worker = false;
            self.is_done = true;
        }
        next
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.is_done {
            let left = std::mem::take(&mut *self.runs.lock());
            drop(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::runtime::Builder;

    use super::*;
    use isobar_quota::NOBODY;
    use isobar_quota::TenantShares;

    /// Queues work that holds nothing.
    fn join<T: Send + 'static>(
        queue: &ProjectQueue,
        runtime: &Runtime,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<oneshot::Receiver<T>> {
        queue.join(runtime, TenantShares::fair(0).take(NOBODY, 0).unwrap(), work)
    }

    fn threads() -> Runtime {
        Builder::new_multi_thread().worker_threads(2).build().unwrap()
    }

    #[test]
    fn runs_of_a_line_go_one_after_the_other_and_only_so_many_wait() {
        let (threads, queue) = (threads(), ProjectQueue::default());
        let (go, gone) = oneshot::channel::<()>();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let first = async move {
            begun.send(()).unwrap();
            gone.await.unwrap();
            0
        };
        let mut all = vec![join(&queue, &threads, first).unwrap()];
        has_begun.recv().unwrap();
        let at_once = Arc::new(AtomicUsize::new(0));
        for number in 1..=QUEUED_RUNS_MAX {
            let at_once = Arc::clone(&at_once);
            let run = async move {
                assert_eq!(at_once.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                at_once.fetch_sub(1, Ordering::SeqCst);
                number
            };
            all.push(join(&queue, &threads, run).unwrap());
        }
        assert!(matches!(join(&queue, &threads, async { 0 }), Err(Error::Busy)));
        go.send(()).unwrap();
        let done: Vec<usize> = threads.block_on(futures::future::try_join_all(all)).unwrap();
        assert_eq!(done, (0..=QUEUED_RUNS_MAX).collect::<Vec<_>>());
        let after = join(&queue, &threads, async { 7 }).unwrap();
        assert_eq!(threads.block_on(after).unwrap(), 7);
    }

    #[test]
    fn a_worker_that_found_nothing_leaves_what_came_after_to_the_next() {
        let (threads, queue) = (threads(), ProjectQueue::default());
        let mut first = Worker::of(&queue);
        assert!(first.next().is_none());
        let outcome = join(&queue, &threads, async { 7 }).unwrap();
        drop(first);
        assert_eq!(threads.block_on(outcome).unwrap(), 7);
    }

    #[test]
    fn a_run_that_panics_ends_for_itself() {
        let (threads, queue) = (threads(), ProjectQueue::default());
        let lost = join(&queue, &threads, async { assert_eq!(1, 2) }).unwrap();
        let next = join(&queue, &threads, async { 7 }).unwrap();
        assert!(threads.block_on(lost).is_err());
        assert_eq!(threads.block_on(next).unwrap(), 7);
    }

    #[test]
    fn who_waits_for_threads_that_are_gone_is_told() {
        let (threads, queue) = (threads(), ProjectQueue::default());
        let endless = join(&queue, &threads, futures::future::pending::<()>()).unwrap();
        let behind = join(&queue, &threads, async {}).unwrap();
        threads.shutdown_background();
        let here = Builder::new_current_thread().build().unwrap();
        assert!(here.block_on(endless).is_err());
        assert!(here.block_on(behind).is_err());
    }
}
