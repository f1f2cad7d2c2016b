//! The runs of one project's code: one at a time, the others queue. The next one begins without waking another thread, and
//! the task that waits for a run is woken once: when there is nothing left to wait for.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use isobar_model::error::{Error, Result};
use parking_lot::Mutex;
use tokio::runtime::Runtime;

use crate::supervisor::guarded;
use crate::support::tenant_shares::TenantShare;

/// Runs of one project that wait; beyond, callers hear 503.
const QUEUED_RUNS_MAX: usize = 256;
/// After so much time of one project, other projects have their turn on the thread.
const TURN: Duration = Duration::from_millis(1);

/// The queue of one project.
#[derive(Default)]
pub(crate) struct ProjectQueue(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Run>,
    /// Whether a task is there that takes one after the other.
    has_worker: bool,
}

type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Whether what a run gave has to wait for something itself; then it wakes the waker when that is over.
pub(crate) type StillPending<T> = fn(&mut T, &mut Context<'_>) -> bool;

impl ProjectQueue {
    /// Queues work; what it gives. [`Error::Busy`] when too many wait already. The share of what waiting work may hold is given
    /// back when the work has ended.
    pub(super) fn join<T: Send + 'static>(
        &self,
        runtime: &Runtime,
        share: TenantShare,
        work: impl Future<Output = T> + Send + 'static,
        still_pending: StillPending<T>,
    ) -> Result<RunOutcome<T>> {
        let (sender, outcome) = channel(still_pending);
        let run = Box::pin(async move {
            // Who waits hears of a panic from the sender, which is dropped; those behind in the queue have their turn.
            let outcome = guarded("code", work).await;
            drop(share);
            if let Some(outcome) = outcome {
                sender.send(outcome);
            }
        });
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
    let mut begin = Instant::now();
    while let Some(run) = worker.next() {
        run.await;
        if begin.elapsed() > TURN {
            tokio::task::yield_now().await;
            begin = Instant::now();
        }
    }
}

/// Who takes one run after the other. Where it ends before they do, nobody runs them any more.
struct Worker {
    runs: Arc<Mutex<Queue>>,
    /// It found none left. Whoever joins from then on brings a worker of its own.
    is_done: bool,
}

impl Worker {
    fn of(queue: &ProjectQueue) -> Self {
        Self { runs: Arc::clone(&queue.0), is_done: false }
    }

    fn next(&mut self) -> Option<Run> {
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

/// What a run gives, on its way to who waits for it.
struct OutcomeCell<T> {
    state: Mutex<OutcomeState<T>>,
    still_pending: StillPending<T>,
}

enum OutcomeState<T> {
    /// It runs, or will; and who waits.
    Running(Option<Waker>),
    Done(T),
    /// It will never be done, or what it gave was taken.
    Over,
}

fn channel<T>(still_pending: StillPending<T>) -> (OutcomeSender<T>, RunOutcome<T>) {
    let channel = Arc::new(OutcomeCell { state: Mutex::new(OutcomeState::Running(None)), still_pending });
    (OutcomeSender(Arc::clone(&channel)), RunOutcome(channel))
}

struct OutcomeSender<T>(Arc<OutcomeCell<T>>);

impl<T> OutcomeSender<T> {
    fn send(self, mut outcome: T) {
        let mut state = self.0.state.lock();
        let waker = match &mut *state {
            OutcomeState::Running(waker) => waker.take(),
            OutcomeState::Done(_) | OutcomeState::Over => None,
        };
        let waker = waker.filter(|waker| !(self.0.still_pending)(&mut outcome, &mut Context::from_waker(waker)));
        *state = OutcomeState::Done(outcome);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Drop for OutcomeSender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if let OutcomeState::Running(waker) = &mut *state {
            let waker = waker.take();
            *state = OutcomeState::Over;
            drop(state);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// What a run gives, when it has.
pub(super) struct RunOutcome<T>(Arc<OutcomeCell<T>>);

impl<T> Future for RunOutcome<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = self.0.state.lock();
        if let OutcomeState::Running(waker) = &mut *state {
            match waker {
                Some(present) => present.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, OutcomeState::Over) {
            OutcomeState::Done(outcome) => Poll::Ready(Ok(outcome)),
            OutcomeState::Over | OutcomeState::Running(_) => {
                Poll::Ready(Err(Error::internal("a run of code has ended before its time")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::poll;
    use tokio::runtime::Builder;
    use tokio::sync::oneshot;

    use super::*;
    use crate::support::bounded_jobs::NOBODY;
    use crate::support::tenant_shares::TenantShares;

    /// Queues work that holds nothing.
    fn join<T: Send + 'static>(
        queue: &ProjectQueue,
        runtime: &Runtime,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<RunOutcome<T>> {
        queue.join(runtime, TenantShares::fair(0).take(NOBODY, 0).unwrap(), work, never)
    }

    fn threads() -> Runtime {
        Builder::new_multi_thread().worker_threads(2).build().unwrap()
    }

    /// At once.
    fn never<T>(_: &mut T, _: &mut Context<'_>) -> bool {
        false
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
        assert!(matches!(threads.block_on(lost), Err(Error::Internal(_))));
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

    #[tokio::test]
    async fn who_waits_is_told_when_what_the_run_gave_waits_no_longer() {
        fn still_pending(rest: &mut oneshot::Receiver<u8>, cx: &mut Context<'_>) -> bool {
            Pin::new(rest).poll(cx).is_pending()
        }
        struct Woken(AtomicUsize);
        impl std::task::Wake for Woken {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let (done, rest) = oneshot::channel();
        let (sender, mut outcome) = channel(still_pending);
        let woken = Arc::new(Woken(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(Pin::new(&mut outcome).poll(&mut Context::from_waker(&waker)).is_pending());
        sender.send(rest);
        assert_eq!(woken.0.load(Ordering::SeqCst), 0);
        done.send(7).unwrap();
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert_eq!(outcome.await.unwrap().await.unwrap(), 7);
        let (sender, mut outcome) = channel::<u8>(never);
        assert!(poll!(&mut outcome).is_pending());
        drop(sender);
        assert!(outcome.await.is_err());
    }
}
