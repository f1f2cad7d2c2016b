//! Limits the number of connections, and closes idle ones when there are too many.
//!
//! A connection is idle if it has never sent a request or is between two; part of a request's head makes no difference.
//! A request, response, long poll or stream in flight makes it busy, with time limits of its own
//! ([`super::time_limits`], [`crate::request`]). A connection marks itself idle with one atomic store; as long as slots
//! are free, that is its only cost.

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

/// Longest idle time in milliseconds while nearly all slots are taken.
const IDLE_MILLIS_MAX: u64 = 60_000;
/// Shortest idle time in milliseconds before a connection is closed for another: a client that sends one request after
/// another is not idle in between.
const IDLE_MILLIS_MIN: u64 = 1_000;
/// Factor by which the idle time of a connection without any request counts.
const UNUSED_WEIGHT: u64 = 16;
/// Divisor of all slots: an eighth is kept free by closing connections that are idle for long.
const SLOTS_KEPT_FREE: usize = 8;
/// Most connections closed at once to make room for a new one.
const CLOSED_FOR_ONE: usize = 64;
/// Divisor of all slots: a scan of all connections selects an eighth, those idle longest, to be closed one after the
/// other. So not each new connection causes a scan.
const FOUND_AT_ONCE: usize = 8;
/// Milliseconds for which the result of a scan is used: later, others may have been idle for longer.
const FOUND_MILLIS_MAX: u64 = 1_000;
/// Connections closed before the thread serves other tasks: closing them takes the kernel some hundred microseconds.
const CLOSED_AT_ONCE: usize = 16;
/// Pause between batches of closed connections while no new connection waits for their slots.
const CLOSING_PAUSE: Duration = Duration::from_millis(1);
/// Interval of checks for idle connections while all slots are taken.
const IDLE_CHECK_EVERY: Duration = Duration::from_millis(100);
/// Shortest time between two log lines about the same event.
const LOG_EVERY: Duration = Duration::from_secs(1);

/// Values of [`Slot::idle`] of a busy and of a closed connection; any other number is idle.
const BUSY: u64 = u64::MAX;
const CLOSED: u64 = u64::MAX - 1;

/// Phases of a connection that hyper serves. [`HEAD_BEGUN_EARLY`]: the next head has begun before the response is
/// completely sent.
const WAITING: u8 = 0;
const HEAD_BEGUN: u8 = 1;
const ANSWERING: u8 = 2;
const ANSWERED: u8 = 3;
const HEAD_BEGUN_EARLY: u8 = 4;

/// State of a connection, as other connections see it.
#[derive(Debug)]
pub(super) struct Slot {
    /// [`BUSY`], [`CLOSED`], or the time since when it is idle in milliseconds, shifted left by a bit that says if it
    /// has ever sent a request.
    idle: AtomicU64,
    /// Phase of a connection that hyper serves.
    phase: AtomicU8,
}

impl Slot {
    fn new(now: Timestamp) -> Self {
        Self { idle: AtomicU64::new(millis(now) << 1), phase: AtomicU8::new(WAITING) }
    }

    /// Begins a request. Returns false if the connection was closed and must not begin it.
    pub fn begin(&self) -> bool {
        let before = self.idle.swap(BUSY, Ordering::Relaxed);
        if before == CLOSED {
            self.idle.store(CLOSED, Ordering::Relaxed);
        }
        before != CLOSED
    }

    /// Marks the connection idle after a request is answered in full.
    pub fn becomes_idle(&self, now: Timestamp) {
        self.idle.store(millis(now) << 1 | 1, Ordering::Relaxed);
    }

    /// Notes that bytes arrived. Returns `None` if they belong to a request that is known, true if they begin a head,
    /// and false if the connection was closed. It becomes busy only when the head is complete: a partial head must not
    /// keep a slot that others need.
    pub fn bytes_came(&self) -> Option<bool> {
        let begun = match self.phase.load(Ordering::Relaxed) {
            WAITING => HEAD_BEGUN,
            ANSWERED => HEAD_BEGUN_EARLY,
            _ => return None,
        };
        self.phase.store(begun, Ordering::Relaxed);
        Some(self.idle.load(Ordering::Relaxed) != CLOSED)
    }

    /// Notes that a head is complete. Returns false if the connection was closed and must not answer it.
    pub fn head_complete(&self) -> bool {
        self.phase.store(ANSWERING, Ordering::Relaxed);
        // The head may have arrived with the previous one, so that its first byte was not noted.
        self.begin()
    }

    /// Notes that the response is complete.
    pub fn response_made(&self) {
        self.phase.store(ANSWERED, Ordering::Relaxed);
    }

    /// Notes that all data is sent.
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
            // The head began on the fast path, which counted it as a whole request.
            HEAD_BEGUN if self.idle.load(Ordering::Relaxed) == BUSY => self.becomes_idle(now()),
            _ => {}
        }
    }

    /// Returns true if a head has begun and is not complete.
    pub fn awaits_head(&self) -> bool {
        matches!(self.phase.load(Ordering::Relaxed), HEAD_BEGUN | HEAD_BEGUN_EARLY)
    }

    /// Returns true if a request is being answered, or its response is not completely sent.
    pub fn is_answering(&self) -> bool {
        matches!(self.phase.load(Ordering::Relaxed), ANSWERING | ANSWERED | HEAD_BEGUN_EARLY)
    }

    /// Returns its weighted idle time, in which one without any request counts more, and the state that it is based on.
    /// `None` if it is not idle for long enough.
    fn idle_weight(&self, now: u64, at_least: u64) -> Option<(u64, u64)> {
        let seen = self.idle.load(Ordering::Relaxed);
        if seen >= CLOSED {
            return None;
        }
        // A clock that was set back restarts every idle time.
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

    /// Closes the connection unless its state has changed since `seen`. Returns true if it was closed.
    fn close(&self, seen: u64) -> bool {
        self.idle.compare_exchange(seen, CLOSED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

fn millis(now: Timestamp) -> u64 {
    u64::try_from(now.millis()).unwrap_or_default()
}

/// Slots of all connections.
pub(super) struct Slots {
    most: usize,
    taken: Mutex<TakenSlots>,
    /// Connections that were closed here and have not ended yet.
    ending: AtomicUsize,
    /// Notified when a connection has ended.
    freed: Notify,
    meters: ConnectionMeters,
    log: Mutex<SlotLog>,
    /// Clock of waits.
    clock: Clock,
}

#[derive(Default)]
struct TakenSlots {
    /// Slots by connection number, which grows: the oldest is first.
    by_number: BTreeMap<u64, TakenSlot>,
    next: u64,
    found: FoundIdle,
}

/// Connection that was idle in a scan: its number and the state of its slot.
type SeenIdle = (u64, u64);

/// Idle connections that a scan has found and that are still to be closed. Those that are used meanwhile stay open.
#[derive(Default)]
struct FoundIdle {
    /// Ordered by idle time, the longest last.
    left: Vec<SeenIdle>,
    at: u64,
}

impl FoundIdle {
    /// Takes the next `count`, longest idle first; `None` if too few are left or the scan is too old.
    fn next(&mut self, count: usize, now: u64) -> Option<Vec<SeenIdle>> {
        let is_fresh = now.checked_sub(self.at).is_some_and(|age| age <= FOUND_MILLIS_MAX);
        let rest = self.left.len().checked_sub(count).filter(|_| is_fresh)?;
        Some(self.left.drain(rest..).rev().collect())
    }
}

#[derive(Clone)]
struct TakenSlot {
    slot: Arc<Slot>,
    /// Handle that ends the connection's task.
    task: AbortHandle,
}

impl Slots {
    /// Makes slots for at most `most` connections.
    pub fn new(most: usize, clock: Clock) -> Arc<Self> {
        let meters = ConnectionMeters::new();
        meters.most.set(most.max(1) as f64);
        Self::with(most, clock, meters)
    }

    /// Makes slots for at most `most` connections, without metrics.
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
        // The slot is registered even if the connection ends at once: giving it back needs this lock.
        let task = serve(SlotGuard { slots: Arc::clone(self), number, slot: Arc::clone(&slot) });
        taken.by_number.insert(number, TakenSlot { slot, task });
    }

    /// Waits for a free slot. Closes the connections that are idle longest, more than one at a time, and no others
    /// until those have ended: on a busy thread they wait for their turn, and each new connection would close as many
    /// again.
    pub async fn free(&self, now: impl Fn() -> Timestamp) {
        while self.count() >= self.most {
            if self.ending.load(Ordering::Relaxed) == 0 && self.close_idle(now()).await == 0 {
                self.log.lock().all_busy.count(1);
            }
            // With a timeout: a connection may become idle without one ending.
            let _ = self.clock.timeout(IDLE_CHECK_EVERY, self.freed.notified()).await;
            self.write_log();
        }
    }

    /// Closes connections that are idle for long while nearly all slots are taken, a few at a time, and writes pending
    /// log lines. Scans all connections once: a scan for every few would block the thread longer than closing does.
    pub async fn keep_some_free(&self, now: Timestamp) {
        let most = self.most - self.most / SLOTS_KEPT_FREE;
        if self.count() > most {
            // Connections that are closed but have not ended count as closed.
            let idle = self.idle_longest(now, |open| open.saturating_sub(most), IDLE_MILLIS_MAX);
            for some in idle.chunks(CLOSED_AT_ONCE) {
                self.close(some);
                self.clock.sleep(CLOSING_PAUSE).await;
            }
        }
        self.write_log();
    }

    /// Closes all idle connections. Leaves one with a partial head to hyper.
    pub fn close_all_idle(&self) {
        for connection in self.taken.lock().by_number.values() {
            let seen = connection.slot.idle.load(Ordering::Relaxed);
            if seen < CLOSED && !connection.slot.awaits_head() {
                self.close_one(seen, connection);
            }
        }
    }

    /// Counts a connection that could not be accepted for want of files or memory, and closes idle ones.
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

    /// Returns how many connections are closed for a new one: fewer if the limit is low.
    fn closed_for_one(&self) -> usize {
        (self.most / CLOSED_FOR_ONE + 1).min(CLOSED_FOR_ONE)
    }

    fn count(&self) -> usize {
        self.taken.lock().by_number.len()
    }

    /// Closes some idle connections, longest idle first. Returns how many.
    async fn close_idle(&self, now: Timestamp) -> usize {
        let known = self.taken.lock().found.next(self.closed_for_one(), millis(now)).unwrap_or_default();
        match self.close_in_turns(&known).await {
            0 => self.close_in_turns(&self.find_idle(now)).await,
            closed => closed,
        }
    }

    /// Scans all connections, returns those to be closed now and keeps the following ones for later.
    fn find_idle(&self, now: Timestamp) -> Vec<SeenIdle> {
        let count = self.closed_for_one();
        let mut left = self.idle_longest(now, |_| count.max(self.most / FOUND_AT_ONCE), IDLE_MILLIS_MIN);
        let next = left.drain(..count.min(left.len())).collect();
        left.reverse();
        self.taken.lock().found = FoundIdle { left, at: millis(now) };
        next
    }

    /// Closes those that are still idle, in batches. Returns how many.
    async fn close_in_turns(&self, idle: &[SeenIdle]) -> usize {
        let mut closed = 0;
        for some in idle.chunks(CLOSED_AT_ONCE) {
            closed += self.close(some);
            tokio::task::yield_now().await;
        }
        closed
    }

    /// Finds connections that have been idle for at least `at_least` milliseconds, longest first; `wanted` maps the
    /// number of open connections to how many are wanted.
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

    /// Closes those that are still there and idle. Returns how many.
    fn close(&self, idle: &[SeenIdle]) -> usize {
        let taken = self.taken.lock();
        let there = idle.iter().filter_map(|(number, seen)| Some((taken.by_number.get(number)?, *seen)));
        let closed = there.filter(|(connection, seen)| self.close_one(*seen, connection)).count();
        drop(taken);
        self.meters.ended.increment(closed as u64);
        self.log.lock().closed.count(closed as u64);
        closed
    }

    /// Closes a connection, unless it has been used since it was seen. Returns true if it was closed.
    fn close_one(&self, seen: u64, connection: &TakenSlot) -> bool {
        // Counted before it can end.
        self.ending.fetch_add(1, Ordering::Relaxed);
        let closed = connection.slot.close(seen);
        match closed {
            true => connection.task.abort(),
            false => drop(self.ending.fetch_sub(1, Ordering::Relaxed)),
        }
        closed
    }

    /// Writes at most one log line a second of each kind, with its count.
    fn write_log(&self) {
        let (mut log, now) = (self.log.lock(), self.clock.instant());
        if let Some(count) = log.closed.due(now) {
            let most = self.most;
            tracing::warn!(count, most, "connections are near their limit: idle ones were closed");
        }
        if log.all_busy.due(now).is_some() {
            tracing::warn!(most = self.most, "connections reached their limit and all are busy: new ones wait");
        }
        if let Some(count) = log.failed.due(now) {
            let error = log.error.as_ref().map(ToString::to_string);
            tracing::error!(count, error, "cannot accept connections");
        }
    }
}

/// Events that are not logged yet.
#[derive(Default)]
struct SlotLog {
    closed: LogThrottle,
    all_busy: LogThrottle,
    failed: LogThrottle,
    /// Newest failure.
    error: Option<io::Error>,
}

/// Counter of a frequent event that is logged at most once a second.
#[derive(Default)]
struct LogThrottle {
    count: u64,
    logged: Option<Instant>,
}

impl LogThrottle {
    fn count(&mut self, more: u64) {
        self.count += more;
    }

    /// Returns the count of events if a log line is due now.
    fn due(&mut self, now: Instant) -> Option<u64> {
        if self.count == 0 || self.logged.is_some_and(|logged| now < logged + LOG_EVERY) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

/// Guard of a connection's slot, held until the connection has ended.
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
