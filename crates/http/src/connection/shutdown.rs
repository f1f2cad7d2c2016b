//! Ends connections when the server stops: each finishes the response in flight and takes no further request.

use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;
use tokio::sync::watch;

use super::slots::Slots;

/// Interval of checks for connections that have become idle during a stop.
const ENDING_CHECK_EVERY: Duration = Duration::from_millis(10);

/// Tells connections that the server stops, and waits for the last one to end.
///
/// Connections on the fast path do not watch for the stop while they wait for an event, which would cost each event
/// three cache lines: the idle ones are closed from here.
pub(super) struct Shutdown {
    requested: watch::Sender<bool>,
    slots: Arc<Slots>,
    clock: Clock,
}

impl Shutdown {
    pub fn new(slots: &Arc<Slots>, clock: Clock) -> Self {
        Self { requested: watch::Sender::new(false), slots: Arc::clone(slots), clock }
    }

    /// Returns a signal that a connection holds until it has ended.
    pub fn signal(&self) -> ShutdownSignal {
        ShutdownSignal(self.requested.subscribe())
    }

    /// Tells all connections to end, and waits until they have.
    pub async fn end_all(&self) {
        self.requested.send_replace(true);
        loop {
            self.slots.close_all_idle();
            tokio::select! {
                () = self.requested.closed() => return,
                // A busy connection may have missed the stop before it became idle.
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

/// Signal of the stop, which a connection holds until it has ended: the server waits until all are dropped.
#[derive(Clone)]
pub(super) struct ShutdownSignal(watch::Receiver<bool>);

impl ShutdownSignal {
    /// Returns true if the connection must end after the response in flight.
    pub fn is_requested(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when the connection must end.
    pub async fn requested(mut self) {
        // An error means that the server is gone, which is a stop too.
        let _ = self.0.wait_for(|requested| *requested).await;
    }
}
