//! How many connections there are, and which of them are closed when there are too many.
//!
//! Only idle connections are closed: those that have never sent a request, or are between two; a part of a request's head
//! makes no difference. A request, a response, a long poll or a stream under way is not idle; each has limits of its own
//! ([`super::time_limits`], [`crate::request`]). A connection notes with one store that it is idle; nothing else is asked of it
//! as long as there are free slots.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use isobar_model::time::{Clock, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::meters::ConnectionMeters;

/// Longest time that a connection may be idle while there are nearly as many as there may be.
const IDLE_MILLIS_MAX: u64 = 60_000;
/// Shortest time after which an idle connection is closed for another: a client that asks again and again is not idle in
/// between.
const IDLE_MILLIS_MIN: u64 = 1_000;
/// A connection that has never sent a request counts as if it had been idle so many times as long.
const UNUSED_WEIGHT: u64 = 16;
/// This part of all slots is kept free by closing connections that are idle for long: an eighth.
const SLOTS_KEPT_FREE: usize = 8;
/// Connections that are closed for a new one, so that they are closed together.
const CLOSED_FOR_ONE: usize = 64;
/// A look at all connections finds this part of them, an eighth: those that have been idle longest, to be closed one after the
/// other. So not each new one has all others looked at.
const FOUND_AT_ONCE: usize = 8;
/// What a look has found is not used for longer: others may have been idle for longer by then, as they count.
const FOUND_MILLIS_MAX: u64 = 1_000;
/// Connections that are closed before others have their turn on the thread: some hundred microseconds' work, for the system has
/// each end taken leave of.
const CLOSED_AT_ONCE: usize = 16;
/// Between closing some and more of them, where nobody waits for their slots.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);
/// Between two looks for an idle connection, while all slots are taken.
const IDLE_CHECK_EVERY: Duration = Duration::from_millis(100);
/// Between two lines in the log about the same thing.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// What [`Slot::idle`] holds for a connection that is busy, and for one that was closed; any other number is idle.
const BUSY: u64 = u64::MAX;
const CLOSED: u64 = u64::MAX - 1;

/// The phases of a connection that hyper serves. [`HEAD_BEGUN_EARLY`]: the next head has begun before all of a response has
/// gone out.
const WAITING: u8 = 0;
const HEAD_BEGUN: u8 = 1;
const ANSWERING: u8 = 2;
const ANSWERED: u8 = 3;
const HEAD_BEGUN_EARLY: u8 = 4;

/// What a connection is doing, as others may see it.
#[derive(Debug)]
pub(super) struct Slot {
    /// [`BUSY`], [`CLOSED`], or since when it is idle: milliseconds, and in the lowest bit whether it has ever sent a request.
    idle: AtomicU64,
    /// The phase of a connection that hyper serves.
    phase: AtomicU8,
}

impl Slot {
    fn new(now: Timestamp) -> Self {
        Self { idle: AtomicU64::new(millis(now) << 1), phase: AtomicU8::new(WAITING) }
    }

    /// A request begins. False: the connection was closed, and must not begin.
    pub fn begin(&self) -> bool {
        let before = self.idle.swap(BUSY, Ordering::Relaxed);
        if before == CLOSED {
            self.idle.store(CLOSED, Ordering::Relaxed);
        }
        before != CLOSED
    }

    /// A request was answered in full.
    pub fn becomes_idle(&self, now: Timestamp) {
        self.idle.store(millis(now) << 1 | 1, Ordering::Relaxed);
    }

    /// Bytes came. None: they belong to a request that is known. True: a head begins with them. False: it must not, since the
    /// connection was closed. The connection is busy only when the head is complete: a client that sends a part of one keeps no
    /// slot with it that others need.
    pub fn bytes_came(&self) -> Option<bool> {
        let begun = match self.phase.load(Ordering::Relaxed) {
            WAITING => HEAD_BEGUN,
            ANSWERED => HEAD_BEGUN_EARLY,
            _ => return None,
        };
        self.phase.store(begun, Ordering::Relaxed);
        Some(self.idle.load(Ordering::Relaxed) != CLOSED)
    }

    /// The head of a request is complete. False: the connection was closed, and must not answer it.
    pub fn head_complete(&self) -> bool {
        self.phase.store(ANSWERING, Ordering::Relaxed);
        // It may have come with the one before, so that no byte of it was seen to come.
        self.begin()
    }

    /// The response is made to its end.
    pub fn response_made(&self) {
        self.phase.store(ANSWERED, Ordering::Relaxed);
    }

    /// All that was made has gone out.
    pub fn all_sent(&self, now: impl FnOnce() -> Timestamp) {
        match self.phase.load(Ordering::Relaxed) {
            ANSWERED => {
                self.phase.store(WAITING, Ordering::Relaxed);
                self.becomes_idle(now());
            }
            HEAD_BEGUN_EARLY => {
                self.phase.store(HEAD_BEGUN, Ordering::Relaxed);
                self.becomes_idle(now());
            }
            // The head has begun on the fast path, which took it for a whole request.
            HEAD_BEGUN if self.idle.load(Ordering::Relaxed) == BUSY => self.becomes_idle(now()),
            _ => {}
        }
    }

    /// Whether the head of a request has begun and not ended.
    pub fn awaits_head(&self) -> bool {
        matches!(self.phase.load(Ordering::Relaxed), HEAD_BEGUN | HEAD_BEGUN_EARLY)
    }

    /// Whether a request is being answered, or its response has not gone out.
    pub fn is_answering(&self) -> bool {
        matches!(self.phase.load(Ordering::Relaxed), ANSWERING | ANSWERED | HEAD_BEGUN_EARLY)
    }

    /// For how long it has been idle, where one that was never used weighs more, and the state that was seen. None: it is not
    /// idle for long enough.
    fn idle_weight(&self, now: u64, at_least: u64) -> Option<(u64, u64)> {
        let seen = self.idle.load(Ordering::Relaxed);
        if seen >= CLOSED {
            return None;
        }
        // A clock that was set back makes every idle time begin anew.
        if seen >> 1 > now {
            let anew = now << 1 | seen & 1;
            let _ = self.idle.compare_exchange(seen, anew, Ordering::Relaxed, Ordering::Relaxed);
            return None;
        }
        let (idle, weight) = (now - (seen >> 1), if seen & 1 == 0 { UNUSED_WEIGHT } else { 1 });
        let weighted = idle.saturating_mul(weight);
        (idle >= IDLE_MILLIS_MIN && weighted >= at_least).then_some((weighted, seen))
    }

    fn is_closed(&self) -> bool {
        self.idle.load(Ordering::Relaxed) == CLOSED
    }

    /// Closes it, unless it has begun something since it was seen.
    fn close(&self, seen: u64) -> bool {
        self.idle.compare_exchange(seen, CLOSED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

fn millis(now: Timestamp) -> u64 {
    u64::try_from(now.millis()).unwrap_or_default()
}

/// The slots of all connections.
pub(super) struct Slots {
    most: usize,
    taken: Mutex<TakenSlots>,
    /// Connections that were closed here and have not ended yet.
    ending: AtomicUsize,
    /// A connection has ended.
    freed: Notify,
    meters: ConnectionMeters,
    log: Mutex<SlotLog>,
    /// Measures what is waited for.
    clock: Clock,
}

#[derive(Default)]
struct TakenSlots {
    /// By numbers that grow: the oldest connection is first.
    by_number: BTreeMap<u64, TakenSlot>,
    next: u64,
    found: FoundIdle,
}

/// A connection that was idle when it was looked at: its number, and what its slot held.
type SeenIdle = (u64, u64);

/// Connections that a look has found idle and that are still to be closed. Those that have begun something since are not.
#[derive(Default)]
struct FoundIdle {
    /// The longest idle last.
    left: Vec<SeenIdle>,
    at: u64,
}

impl FoundIdle {
    /// The next ones, longest idle first; none where too few are left, or they were found too long ago.
    fn next(&mut self, count: usize, now: u64) -> Option<Vec<SeenIdle>> {
        let is_fresh = now.checked_sub(self.at).is_some_and(|age| age <= FOUND_MILLIS_MAX);
        let rest = self.left.len().checked_sub(count).filter(|_| is_fresh)?;
        Some(self.left.drain(rest..).rev().collect())
    }
}

#[derive(Clone)]
struct TakenSlot {
    slot: Arc<Slot>,
    /// Ends the connection's task.
    task: AbortHandle,
}

impl Slots {
    /// For so many connections.
    pub fn new(most: usize, clock: Clock) -> Arc<Self> {
        let meters = ConnectionMeters::new();
        meters.most.set(most.max(1) as f64);
        Self::with(most, clock, meters)
    }

    /// For so many connections that no meter counts.
    pub fn unmeasured(most: usize, clock: Clock) -> Arc<Self> {
        Self::with(most, clock, ConnectionMeters::none())
    }

    fn with(most: usize, clock: Clock, meters: ConnectionMeters) -> Arc<Self> {
        let most = most.max(1);
        let (taken, ending, freed, log) = Default::default();
        Arc::new(Self { most, taken, ending, freed, meters, log, clock })
    }

    /// Gives a new connection a slot; `serve` begins to serve it.
    pub fn take(self: &Arc<Self>, now: Timestamp, serve: impl FnOnce(SlotGuard) -> AbortHandle) {
        let mut taken = self.taken.lock();
        let number = taken.next;
        taken.next += 1;
        let slot = Arc::new(Slot::new(now));
        self.meters.open.increment(1.0);
        // However soon it ends: it gives the slot back when this lock is free again, and is known by then.
        let task = serve(SlotGuard { slots: Arc::clone(self), number, slot: Arc::clone(&slot) });
        taken.by_number.insert(number, TakenSlot { slot, task });
    }

    /// Waits until there is a free slot. Connections that are idle longest are closed for it and for some more, and no others
    /// until those have ended: on a thread that has much to do they wait for their turn, and each new connection would have
    /// as many closed again.
    pub async fn free(&self, now: impl Fn() -> Timestamp) {
        while self.count() >= self.most {
            if self.ending.load(Ordering::Relaxed) == 0 && self.close_idle(now()).await == 0 {
                self.log.lock().all_busy.count(1);
            }
            // Also when no connection ends: one may become idle meanwhile.
            let _ = self.clock.timeout(IDLE_CHECK_EVERY, self.freed.notified()).await;
            self.write_log();
        }
    }

    /// Closes connections that are idle for long while there are nearly as many as there may be, a few at a time, and writes what
    /// the log has not heard yet. All of them are looked at once: a look at each for every few would keep everybody else on the
    /// thread waiting longer than the closing does.
    pub async fn keep_some_free(&self, now: Timestamp) {
        let most = self.most - self.most / SLOTS_KEPT_FREE;
        if self.count() > most {
            // Those that were closed and have not ended yet are not closed again, nor others for them.
            let idle = self.idle_longest(now, |open| open.saturating_sub(most), IDLE_MILLIS_MAX);
            for some in idle.chunks(CLOSED_AT_ONCE) {
                self.close(some);
                self.clock.sleep(CLOSING_PAUSE).await;
            }
        }
        self.write_log();
    }

    /// Closes all idle connections. A connection that hyper serves and that has sent a part of a head is hyper's to end.
    pub fn close_all_idle(&self) {
        for connection in self.taken.lock().by_number.values() {
            let seen = connection.slot.idle.load(Ordering::Relaxed);
            if seen < CLOSED && !connection.slot.awaits_head() {
                self.close_one(seen, connection);
            }
        }
    }

    /// A connection could not be accepted for want of files or memory: idle connections are closed.
    pub async fn accept_failed(&self, error: io::Error, now: Timestamp) {
        self.meters.failed.increment(1);
        {
            let mut log = self.log.lock();
            log.failed.count(1);
            log.error = Some(error);
        }
        if self.ending.load(Ordering::Relaxed) == 0 {
            self.close_idle(now).await;
        }
        self.write_log();
    }

    /// Where there may be few connections, fewer.
    fn closed_for_one(&self) -> usize {
        (self.most / CLOSED_FOR_ONE + 1).min(CLOSED_FOR_ONE)
    }

    fn count(&self) -> usize {
        self.taken.lock().by_number.len()
    }

    /// Closes some connections that have been idle, longest first. Returns how many it were.
    async fn close_idle(&self, now: Timestamp) -> usize {
        let known = self.taken.lock().found.next(self.closed_for_one(), millis(now)).unwrap_or_default();
        match self.close_in_turns(&known).await {
            0 => self.close_in_turns(&self.find_idle(now)).await,
            closed => closed,
        }
    }

    /// The next ones to be closed, by a look at all connections that finds those after them, too.
    fn find_idle(&self, now: Timestamp) -> Vec<SeenIdle> {
        let count = self.closed_for_one();
        let mut left = self.idle_longest(now, |_| count.max(self.most / FOUND_AT_ONCE), IDLE_MILLIS_MIN);
        let next = left.drain(..count.min(left.len())).collect();
        left.reverse();
        self.taken.lock().found = FoundIdle { left, at: millis(now) };
        next
    }

    /// Closes those that have begun nothing since they were seen, a few at a time. Returns how many it were.
    async fn close_in_turns(&self, idle: &[SeenIdle]) -> usize {
        let mut closed = 0;
        for some in idle.chunks(CLOSED_AT_ONCE) {
            closed += self.close(some);
            super::others_first().await;
        }
        closed
    }

    /// Those that have been idle for at least so long, longest first; `wanted` says how many of them, told how many connections
    /// are open.
    fn idle_longest(&self, now: Timestamp, wanted: impl FnOnce(usize) -> usize, at_least: u64) -> Vec<SeenIdle> {
        let (now, mut open, mut idle) = (millis(now), 0, Vec::new());
        for (number, connection) in &self.taken.lock().by_number {
            open += usize::from(!connection.slot.is_closed());
            if let Some((weight, seen)) = connection.slot.idle_weight(now, at_least) {
                idle.push((weight, *number, seen));
            }
        }
        let wanted = wanted(open);
        if idle.len() > wanted {
            idle.select_nth_unstable_by_key(wanted, |(weight, ..)| Reverse(*weight));
            idle.truncate(wanted);
        }
        idle.sort_unstable_by_key(|(weight, ..)| Reverse(*weight));
        idle.into_iter().map(|(_, number, seen)| (number, seen)).collect()
    }

    /// Closes those that are still there and have begun nothing since they were seen. Returns how many it were.
    fn close(&self, idle: &[SeenIdle]) -> usize {
        let taken = self.taken.lock();
        let there = idle.iter().filter_map(|(number, seen)| Some((taken.by_number.get(number)?, *seen)));
        let closed = there.filter(|(connection, seen)| self.close_one(*seen, connection)).count();
        drop(taken);
        self.meters.ended.increment(closed as u64);
        self.log.lock().closed.count(closed as u64);
        closed
    }

    /// Closes one, unless it has begun something since it was seen.
    fn close_one(&self, seen: u64, connection: &TakenSlot) -> bool {
        // Before it can end.
        self.ending.fetch_add(1, Ordering::Relaxed);
        let closed = connection.slot.close(seen);
        match closed {
            true => connection.task.abort(),
            false => drop(self.ending.fetch_sub(1, Ordering::Relaxed)),
        }
        closed
    }

    /// Writes one line a second of each kind, with how many it were.
    fn write_log(&self) {
        let (mut log, now) = (self.log.lock(), self.clock.instant());
        if let Some(count) = log.closed.due(now) {
            let most = self.most;
            tracing::warn!(
                count,
                most,
                "there are (nearly) as many connections as there may be: idle ones were closed"
            );
        }
        if log.all_busy.due(now).is_some() {
            tracing::warn!(
                most = self.most,
                "there are as many connections as there may be, and all are busy: new ones wait"
            );
        }
        if let Some(count) = log.failed.due(now) {
            let error = log.error.as_ref().map(ToString::to_string);
            tracing::error!(count, error, "connections could not be accepted");
        }
    }
}

/// What the log has not heard yet.
#[derive(Default)]
struct SlotLog {
    closed: LogThrottle,
    all_busy: LogThrottle,
    failed: LogThrottle,
    /// The newest failure.
    error: Option<io::Error>,
}

/// Something that happens often, and is logged every second at most.
#[derive(Default)]
struct LogThrottle {
    count: u64,
    logged: Option<Instant>,
}

impl LogThrottle {
    fn count(&mut self, more: u64) {
        self.count += more;
    }

    /// How many times it has happened, if that is to be logged now.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.count == 0 || self.logged.is_some_and(|logged| now < logged + LOG_EVERY) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

/// The slot of a connection, until the connection has ended.
pub(super) struct SlotGuard {
    slots: Arc<Slots>,
    number: u64,
    pub slot: Arc<Slot>,
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.slots.taken.lock().by_number.remove(&self.number);
        if self.slot.is_closed() {
            self.slots.ending.fetch_sub(1, Ordering::Relaxed);
        }
        self.slots.meters.open.decrement(1.0);
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests;
