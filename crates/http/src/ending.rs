//! How connections end when the server stops: each finishes the answer under way and takes no further request.
//!
//! A connection is looked at twice for each request, so that what it asks then is one flag; the bell that wakes the
//! idle ones is only listened to once.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::task::unconstrained;

/// Tells connections that the server stops, and knows when the last one has ended.
pub(crate) struct Stop {
    told: Arc<AtomicBool>,
    bell: watch::Sender<()>,
}

impl Stop {
    pub fn new() -> Self {
        Self { told: Arc::default(), bell: watch::Sender::new(()) }
    }

    /// What a connection has until it has ended.
    pub fn stake(&self) -> Stake {
        let mut bell = self.bell.subscribe();
        // Unconstrained: asked when the task's share is used up, the bell would not learn whom to wake.
        let rung = unconstrained(async move {
            // One that is gone has rung.
            let _ = bell.changed().await;
            bell
        });
        Stake { told: Arc::clone(&self.told), bell: Box::pin(rung), heard: false, held: None }
    }

    /// Tells all connections, and waits until they have ended.
    pub async fn end_all(&self) {
        self.told.store(true, Ordering::Release);
        self.bell.send_replace(());
        self.bell.closed().await;
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.told.store(true, Ordering::Release);
    }
}

/// What a connection has until it has ended: the server waits for it, and tells it when to end.
pub(crate) struct Stake {
    told: Arc<AtomicBool>,
    bell: BoxFuture<'static, watch::Receiver<()>>,
    /// Whether the bell knows whom to wake.
    heard: bool,
    /// Once the bell has rung.
    held: Option<watch::Receiver<()>>,
}

impl Stake {
    /// Whether the connection is to end after the answer under way.
    pub fn is_told(&self) -> bool {
        self.told.load(Ordering::Acquire)
    }

    /// Whether the bell rings, now and for the first time; it wakes the task that asked first. All that ask must be one
    /// task.
    pub fn rings(&mut self, cx: &mut Context<'_>) -> bool {
        if self.held.is_some() || (self.heard && !self.is_told()) {
            return false;
        }
        self.heard = true;
        let Poll::Ready(held) = self.bell.as_mut().poll(cx) else { return false };
        self.held = Some(held);
        true
    }
}

/// A connection of hyper's that ends well.
pub(crate) struct Ending<C> {
    pub connection: C,
    pub stake: Stake,
    /// How the connection is told.
    pub tell: fn(Pin<&mut C>),
}

impl<C: Future + Unpin> Future for Ending<C> {
    type Output = C::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<C::Output> {
        let this = self.get_mut();
        // First what came before the bell: a connection that is told is closed at once if it has read nothing yet.
        let ended = Pin::new(&mut this.connection).poll(cx);
        if ended.is_ready() || !this.stake.rings(cx) {
            return ended;
        }
        (this.tell)(Pin::new(&mut this.connection));
        Pin::new(&mut this.connection).poll(cx)
    }
}
