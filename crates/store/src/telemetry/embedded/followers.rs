//! Those who follow events as they become durable. What they are shown waits here for the disk, beside the commits that
//! wait for it too; when nobody follows, a commit costs a look at one flag.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use isobar_model::event::Event;
use parking_lot::Mutex;
use tokio::sync::broadcast;

use super::places::Placed;
use crate::telemetry::{Following, Place, Shown, Told};

/// Events that a follower may lag behind before it has to catch up from history, and bytes of their payloads.
const FOLLOWER_LAG_EVENTS: usize = 4_096;
const FOLLOWER_LAG_BYTES: usize = 32 << 20;

/// What waits for the disk: the ticket of its commit, and what is shown of it; none if that is not known.
type Waits = (u64, Option<Arc<Shown>>);

/// How far everything is durable, and was told.
#[derive(Debug)]
struct Reached {
    place: Place,
    ticket: u64,
    kept: Kept,
}

/// The events that were told last, for those who have not heard of them yet; who finds one gone reads it in history.
#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
}

impl Kept {
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
    waits: Mutex<VecDeque<Waits>>,
    told: broadcast::Sender<Told>,
    /// No late event has a later place than this one.
    newest_late: Mutex<Place>,
}

impl Followers {
    /// Nobody yet, and everything up to that place is durable.
    pub fn new(place: Place) -> Self {
        Self {
            is_any: AtomicBool::new(false),
            reached: Mutex::new(Reached { place, ticket: 0, kept: Kept::default() }),
            waits: Mutex::default(),
            told: broadcast::Sender::new(FOLLOWER_LAG_EVENTS),
            // Where the last one of an earlier process stands is written nowhere, only whether there was any.
            newest_late: Mutex::new(if place.late == 0 { Place::first() } else { place }),
        }
    }

    /// No late event has a later place. One whose rows can be read is known here.
    pub fn newest_late(&self) -> Place {
        *self.newest_late.lock()
    }

    /// A batch is about to be written, in which there may be late events.
    pub fn come_late(&self, placed: &Placed) {
        if let Some(last) = placed.newest_late() {
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
            // Nobody knows what is shown of these.
            if reached.ticket < newest {
                waits.push_back((newest, None));
            }
        }
        Following { from: reached.place, told: self.told.subscribe() }
    }

    /// A commit with events was sent. In the order of the tickets.
    pub fn expect(&self, ticket: u64, shown: Option<Arc<Shown>>) {
        self.waits.lock().push_back((ticket, shown));
    }

    /// All up to that ticket are durable: a batch, for each has places of its own. In order.
    pub fn reach(&self, ticket: u64, placed: &Placed) {
        let mut reached = self.reached.lock();
        (reached.place, reached.ticket) = (placed.end, ticket);
        if !self.is_any() {
            return;
        }
        if self.told.receiver_count() == 0 {
            self.is_any.store(false, Ordering::Relaxed);
            *self.waits.lock() = VecDeque::new();
            reached.kept = Kept::default();
            return;
        }
        reached.kept.keep_only(self.told.len());
        let durable: Vec<Waits> = {
            let mut waits = self.waits.lock();
            let count = waits.partition_point(|(waits, _)| *waits <= ticket);
            waits.drain(..count).collect()
        };
        let mut told = Vec::with_capacity(durable.len());
        for (_, shown) in durable {
            let Some(shown) = shown else {
                // Without a receiver there is nobody to tell.
                let _ = self.told.send(Told::Gap);
                return;
            };
            let places = shown.events.iter().map(|event| (placed.place(event.id), Arc::clone(event)));
            told.extend(places.map(|(place, event)| (place, event, Arc::clone(&shown.lineage))));
        }
        told.sort_unstable_by_key(|(place, ..)| *place);
        for (place, event, lineage) in told {
            let (device, kept) = (event.device, Arc::downgrade(&event));
            reached.kept.keep(event);
            let _ = self.told.send(Told::Event { place, device, lineage, event: kept });
        }
    }
}
