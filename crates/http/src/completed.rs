//! What has begun to change something is finished, even when its client hangs up: a change, and telling those who
//! wait for it or hold something older, belong together.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use isobar_hub::spawn_guarded;
use tokio::runtime::Handle;

/// A future that goes on by itself when nobody waits for it any more.
pub struct Completed<F>(Option<F>)
where
    F: Future<Output: Send> + Send + Unpin + 'static;

impl<F: Future<Output: Send> + Send + Unpin + 'static> Completed<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Some(future))
    }
}

impl<F: Future<Output: Send> + Send + Unpin + 'static> Future for Completed<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let output = ready!(Pin::new(future).poll(cx));
        self.0 = None;
        Poll::Ready(output)
    }
}

impl<F: Future<Output: Send> + Send + Unpin + 'static> Drop for Completed<F> {
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
    async fn it_goes_on_when_nobody_waits() {
        let (go, told) = oneshot::channel::<()>();
        let (done, outcome) = oneshot::channel();
        let mut work = Completed::new(Box::pin(async move {
            told.await.unwrap();
            done.send(1).unwrap();
        }));
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        go.send(()).unwrap();
        assert_eq!(outcome.await, Ok(1));
    }

    #[tokio::test]
    async fn it_answers_whoever_waits() {
        assert_eq!(Completed::new(Box::pin(async { 1 })).await, 1);
    }
}
