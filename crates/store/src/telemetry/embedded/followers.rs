//! Sends events to followers as they become durable. Events wait here for the disk, like the commits; without
//! followers, a commit costs one check of a flag.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::positions::BatchPositions;
use crate::telemetry::recent_events::{FOLLOWER_LAG_EVENTS, RecentEvents};
use crate::telemetry::{Following, StreamMessage, StreamPosition, StreamedEvents};

/// Events that wait for the disk: the ticket of their commit, and the events to stream, or `None` if they are unknown.
type PendingEvents = (u64, Option<Arc<StreamedEvents>>);

/// Progress of durability and of sending to followers.
#[derive(Debug)]
struct Reached {
    position: StreamPosition,
    ticket: u64,
    recent: RecentEvents,
}

/// Registry of all followers.
#[derive(Debug)]
pub struct Followers {
    is_any: AtomicBool,
    /// Progress. Locked before `waits`.
    reached: Mutex<Reached>,
    waits: Mutex<VecDeque<PendingEvents>>,
    messages: broadcast::Sender<StreamMessage>,
    /// Position that no late event exceeds.
    newest_late: Mutex<StreamPosition>,
}

impl Followers {
    /// Creates a registry without followers; everything up to this position is durable.
    pub fn new(position: StreamPosition) -> Self {
        Self {
            is_any: AtomicBool::new(false),
            reached: Mutex::new(Reached { position, ticket: 0, recent: RecentEvents::default() }),
            waits: Mutex::default(),
            messages: broadcast::Sender::new(FOLLOWER_LAG_EVENTS),
            // The position of an earlier process's last late event is not stored, only if there was one.
            newest_late: Mutex::new(if position.late == 0 { StreamPosition::first() } else { position }),
        }
    }

    /// Returns a position that no late event exceeds. A late event is registered here before its rows are readable.
    pub fn newest_late(&self) -> StreamPosition {
        *self.newest_late.lock()
    }

    /// Registers a batch, which may have late events, before it is written.
    pub fn come_late(&self, positions: &BatchPositions) {
        if let Some(last) = positions.newest_late() {
            *self.newest_late.lock() = last;
        }
    }

    /// Returns true if there are followers.
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Registers a follower from here on. `newest` is the newest ticket, and no other may be drawn meanwhile.
    pub fn follow(&self, newest: u64) -> Following {
        let reached = self.reached.lock();
        if !self.is_any.swap(true, Ordering::Relaxed) {
            let mut waits = self.waits.lock();
            waits.clear();
            // The events of these commits were not prepared.
            if reached.ticket < newest {
                waits.push_back((newest, None));
            }
        }
        Following { from: reached.position, messages: self.messages.subscribe() }
    }

    /// Registers a commit with events that was sent. Call it in the order of the tickets.
    pub fn expect(&self, ticket: u64, streamed: Option<Arc<StreamedEvents>>) {
        self.waits.lock().push_back((ticket, streamed));
    }

    /// Sends the events of a durable batch, up to this ticket. Call it in order.
    pub fn reach(&self, ticket: u64, positions: &BatchPositions) {
        let mut reached = self.reached.lock();
        (reached.position, reached.ticket) = (positions.end, ticket);
        if !self.is_any() {
            return;
        }
        if self.messages.receiver_count() == 0 {
            self.is_any.store(false, Ordering::Relaxed);
            *self.waits.lock() = VecDeque::new();
            reached.recent = RecentEvents::default();
            return;
        }
        reached.recent.keep_only(self.messages.len());
        let durable: Vec<PendingEvents> = {
            let mut waits = self.waits.lock();
            let count = waits.partition_point(|(waits, _)| *waits <= ticket);
            waits.drain(..count).collect()
        };
        let mut events = Vec::with_capacity(durable.len());
        for (_, streamed) in durable {
            let Some(streamed) = streamed else {
                // The channel may have no receiver.
                let _ = self.messages.send(StreamMessage::Gap);
                return;
            };
            let each = streamed.events.iter().map(|event| (positions.position(event.id), Arc::clone(event)));
            events.extend(each.map(|(position, event)| (position, event, Arc::clone(&streamed.lineage))));
        }
        events.sort_unstable_by_key(|(position, ..)| *position);
        for (position, event, lineage) in events {
            let (device, kept) = (event.device, Arc::downgrade(&event));
            reached.recent.keep(event);
            let _ = self.messages.send(StreamMessage::Event { position, device, lineage, event: kept });
        }
    }
}
