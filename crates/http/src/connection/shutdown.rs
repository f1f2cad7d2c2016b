//! How connections end when the server stops: each finishes the response under way and takes no further request.

use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;
use tokio::sync::watch;

use super::slots::Slots;

/// Between two looks for connections that have become idle, once all are to end.
const ENDING_CHECK_EVERY: Duration = Duration::from_millis(10);

/// Tells connections that the server stops, and knows when the last one has ended.
///
/// Those on the fast path do not listen while they wait for an event, which would cost each event three lines of cache: the idle
/// ones are closed from here.
pub(super) struct Shutdown {
    requested: watch::Sender<bool>,
    slots: Arc<Slots>,
    clock: Clock,
}

impl Shutdown {
    pub fn new(slots: &Arc<Slots>, clock: Clock) -> Self {
        Self { requested: watch::Sender::new(false), slots: Arc::clone(slots), clock }
    }

    /// What a connection holds until it has ended.
    pub fn signal(&self) -> ShutdownSignal {
        ShutdownSignal(self.requested.subscribe())
    }

    /// Tells all connections, and waits until they have ended.
    pub async fn end_all(&self) {
        self.requested.send_replace(true);
        loop {
            self.slots.close_all_idle();
            tokio::select! {
                () = self.requested.closed() => return,
                // One that was being answered may not have heard of the stop before it became idle.
                () = self.clock.sleep(ENDING_CHECK_EVERY) => {}
            }
        }
    }
}

impl Drop for Shutdown {
    fn drop(&mut self) {
        self.requested.send_replace(true);
        self.slots.close_all_idle();
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
