//! Keeps the events that followers may still have to receive, in bounded memory.

use std::collections::VecDeque;
use std::sync::Arc;

use isobar_model::event::Event;

/// Events by which a follower may lag before it has to catch up from history, and (next constant) the bytes of their
/// payloads.
pub(crate) const FOLLOWER_LAG_EVENTS: usize = 4_096;
const FOLLOWER_LAG_BYTES: usize = 32 << 20;

/// Events that were sent last, for followers that have not received them yet; followers read missing ones in history.
#[derive(Debug, Default)]
pub(crate) struct RecentEvents {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
}

impl RecentEvents {
    /// Keeps an event, and drops the oldest beyond the bytes of a lag.
    pub fn keep(&mut self, event: Arc<Event>) {
        self.bytes += weight(&event);
        self.events.push_back(event);
        while self.bytes > FOLLOWER_LAG_BYTES && self.forget_oldest() {}
    }

    /// Drops the oldest events beyond this number.
    pub fn keep_only(&mut self, count: usize) {
        while self.events.len() > count && self.forget_oldest() {}
    }

    fn forget_oldest(&mut self) -> bool {
        let oldest = self.events.pop_front();
        self.bytes -= oldest.as_deref().map_or(0, weight);
        oldest.is_some()
    }
}

/// Returns the approximate memory of an event.
fn weight(event: &Event) -> usize {
    size_of::<Event>()
        + event.payload.bytes().len()
        + event.errors.iter().map(|error| error.message.len()).sum::<usize>()
}
