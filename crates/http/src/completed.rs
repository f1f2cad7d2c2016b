//! What has begun to change something is finished, even when its client hangs up: a change, and telling those who
//! wait for it or hold something older, belong together.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use tokio::runtime::Handle;

/// A future that goes on by itself when nobody waits for it any more.
pub struct Completed<T: Send + 'static>(Option<BoxFuture<'static, T>>);

impl<T: Send + 'static> Completed<T> {
    pub(crate) fn new(future: BoxFuture<'static, T>) -> Self {
        Self(Some(future))
    }
}

impl<T: Send + 'static> Future for Completed<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let output = ready!(future.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(output)
    }
}

impl<T: Send + 'static> Drop for Completed<T> {
    fn drop(&mut self) {
        if let Some(rest) = self.0.take()
            && !std::thread::panicking()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(rest);
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
