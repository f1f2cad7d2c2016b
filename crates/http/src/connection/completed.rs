//! Completes requests that change something even if the client hangs up: a change and its notifications and
//! invalidations belong together.

use std::pin::Pin;

use isobar_hub::spawn_guarded;
use tokio::runtime::Handle;

/// Runs a future to completion; if it is dropped before, it continues in a task of its own.
pub(super) fn completed<F>(future: Pin<Box<F>>) -> impl Future<Output = F::Output> + Send
where
    F: Future<Output: Send> + Send + ?Sized + 'static,
{
    let mut unfinished = Unfinished(Some(future));
    async move {
        let Some(running) = &mut unfinished.0 else { return std::future::pending().await };
        let output = running.await;
        drop(unfinished.0.take());
        output
    }
}

/// A future that is spawned if this is dropped before it completes.
struct Unfinished<F>(Option<Pin<Box<F>>>)
where
    F: Future<Output: Send> + Send + ?Sized + 'static;

impl<F> Drop for Unfinished<F>
where
    F: Future<Output: Send> + Send + ?Sized + 'static,
{
    fn drop(&mut self) {
        if let Some(rest) = self.0.take()
            && !std::thread::panicking()
            && Handle::try_current().is_ok()
        {
            spawn_guarded("change", rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn dropped_future_runs_to_completion() {
        let (go, gone) = oneshot::channel::<()>();
        let (done, outcome) = oneshot::channel();
        let mut work = Box::pin(completed(Box::pin(async move {
            gone.await.unwrap();
            done.send(1).unwrap();
        })));
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        go.send(()).unwrap();
        assert_eq!(outcome.await, Ok(1));
    }

    #[tokio::test]
    async fn completed_future_returns_its_output() {
        assert_eq!(completed(Box::pin(async { 1 })).await, 1);
    }
}
