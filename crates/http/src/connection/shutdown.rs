//! How connections end when the server stops: each finishes the response under way and takes no further request.

use tokio::sync::watch;

/// Tells connections that the server stops, and knows when the last one has ended.
pub(super) struct Shutdown(watch::Sender<bool>);

impl Shutdown {
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// What a connection holds until it has ended.
    pub fn signal(&self) -> ShutdownSignal {
        ShutdownSignal(self.0.subscribe())
    }

    /// Tells all connections, and waits until they have ended.
    pub async fn end_all(&self) {
        self.0.send_replace(true);
        self.0.closed().await;
    }
}

impl Drop for Shutdown {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// What a connection holds until it has ended: the server waits for it, and tells it when to end.
#[derive(Clone)]
pub(super) struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    /// Whether the connection is to end after the response under way.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Is done when the connection is to end.
    pub async fn requested(mut self) {
        // An error means that the server is gone, and so a stop.
        let _ = self.0.wait_for(|requested| *requested).await;
    }
}
