//! Those who follow events as they become durable. What they are streamed waits here for the disk, beside the commits that
//! wait for it too; when nobody follows, a commit costs a look at one flag.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use isobar_model::event::Event;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::positions::BatchPositions;
use crate::telemetry::{Following, StreamMessage, StreamPosition, StreamedEvents};

/// Events that a follower may lag behind before it has to catch up from history, and bytes of their payloads.
const FOLLOWER_LAG_EVENTS: usize = 4_096;
const FOLLOWER_LAG_BYTES: usize = 32 << 20;

/// What waits for the disk: the ticket of its commit, and what is streamed of it; none if that is not known.
type PendingEvents = (u64, Option<Arc<StreamedEvents>>);

/// How far events are durable and were sent to those who follow.
#[derive(Debug)]
struct Reached {
    position: StreamPosition,
    ticket: u64,
    recent: RecentEvents,
}

/// The events that were sent last, for followers that have not received them yet; who finds one gone reads it in history.
#[derive(Debug, Default)]
struct RecentEvents {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
}

impl RecentEvents {
    fn keep(&mut self, event: Arc<Event>) {
        self.bytes += weight(&event);
        self.events.push_back(event);
        while self.bytes > FOLLOWER_LAG_BYTES && self.forget_oldest() {}
    }

    /// Only so many are still to be heard of.
    fn keep_only(&mut self, count: usize) {
        while self.events.len() > count && self.forget_oldest() {}
    }

    fn forget_oldest(&mut self) -> bool {
        let oldest = self.events.pop_front();
        self.bytes -= oldest.as_deref().map_or(0, weight);
        oldest.is_some()
    }
}

/// What an event takes of memory, about.
fn weight(event: &Event) -> usize {
    size_of::<Event>()
        + event.payload.bytes().len()
        + event.errors.iter().map(|error| error.message.len()).sum::<usize>()
}

/// All who follow.
#[derive(Debug)]
pub struct Followers {
    is_any: AtomicBool,
    /// Locked before `waits`.
    reached: Mutex<Reached>,
    waits: Mutex<VecDeque<PendingEvents>>,
    messages: broadcast::Sender<StreamMessage>,
    /// No late event has a later position than this one.
    newest_late: Mutex<StreamPosition>,
}

impl Followers {
    /// Nobody yet, and everything up to that position is durable.
    pub fn new(position: StreamPosition) -> Self {
        Self {
            is_any: AtomicBool::new(false),
            reached: Mutex::new(Reached { position, ticket: 0, recent: RecentEvents::default() }),
            waits: Mutex::default(),
            messages: broadcast::Sender::new(FOLLOWER_LAG_EVENTS),
            // Where the last one of an earlier process stands is written nowhere, only whether there was any.
            newest_late: Mutex::new(if position.late == 0 { StreamPosition::first() } else { position }),
        }
    }

    /// No late event has a later position. One whose rows can be read is known here.
    pub fn newest_late(&self) -> StreamPosition {
        *self.newest_late.lock()
    }

    /// A batch is about to be written, in which there may be late events.
    pub fn come_late(&self, positions: &BatchPositions) {
        if let Some(last) = positions.newest_late() {
            *self.newest_late.lock() = last;
        }
    }

    /// Whether anybody follows.
    pub fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Relaxed)
    }

    /// Somebody follows from here on. `newest` is the newest ticket, and no other may be drawn meanwhile.
    pub fn follow(&self, newest: u64) -> Following {
        let reached = self.reached.lock();
        if !self.is_any.swap(true, Ordering::Relaxed) {
            let mut waits = self.waits.lock();
            waits.clear();
            // Nobody knows what is streamed of these.
            if reached.ticket < newest {
                waits.push_back((newest, None));
            }
        }
        Following { from: reached.position, messages: self.messages.subscribe() }
    }

    /// A commit with events was sent. In the order of the tickets.
    pub fn expect(&self, ticket: u64, streamed: Option<Arc<StreamedEvents>>) {
        self.waits.lock().push_back((ticket, streamed));
    }

    /// All up to that ticket are durable: a batch, for each has positions of its own. In order.
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
                // Without a receiver there is nobody to send it to.
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
