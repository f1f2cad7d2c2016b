//! What was applied, on its way to the disk.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::error::{Result, StoreError};

/// A commit that was applied: done when it is durable, an error when nobody can say any more whether it ever will be.
#[derive(Debug)]
#[must_use = "what is not durable must not be acknowledged"]
pub struct Durable(oneshot::Receiver<()>);

/// Nobody is left who could tell.
#[derive(Debug, thiserror::Error)]
#[error("the store has failed or is closing")]
struct Untold;

impl Durable {
    /// One that is done when it is told so.
    pub(crate) fn untold() -> (oneshot::Sender<()>, Self) {
        let (tell, told) = oneshot::channel();
        (tell, Self(told))
    }
}

impl Future for Durable {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.0).poll(cx).map_err(|_| StoreError::unavailable(Untold))
    }
}
