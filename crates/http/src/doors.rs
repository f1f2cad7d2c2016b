//! How many connections there are, and which of them make room when there are too many.
//!
//! Only those make room that are idle: that have never sent a request, or are between two; a part of a request's head changes
//! nothing. A request, an answer, a long poll and a stream under way are none; what bounds these stands with each
//! ([`crate::pace`], [`crate::shares`]).
//! A connection says with one store that it rests; nothing else is asked of it as long as there is room.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isobar_model::time::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::meters::DoorMeters;

/// Longest rest of a connection while there are nearly as many as there may be.
const REST_MAX_MILLIS: u64 = 60_000;
/// Shortest rest after which a connection makes room for another: whoever asks again and again is not idle in between.
const REST_MIN_MILLIS: u64 = 1_000;
/// A connection that has never sent a request counts as if it had rested so many times as long.
const SILENCE_WEIGHS: u64 = 16;
/// So much of all seats is kept free by ending long rests: an eighth.
const KEPT_FREE: usize = 8;
/// So much of all seats is made free at once, so that not each newcomer has all connections looked at: a 64th.
const MADE_FREE: usize = 64;
/// Between two looks for somebody who rests, while all seats are taken.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between two lines in the log about the same thing.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// A connection that is busy, or one that was told to go; any other number is a rest.
const BUSY: u64 = u64::MAX;
const ENDED: u64 = u64::MAX - 1;

const IDLE: u8 = 0;
const HEAD_BEGUN: u8 = 1;
const ANSWERING: u8 = 2;
const ANSWERED: u8 = 3;

/// What a connection is doing, as others may see it.
#[derive(Debug)]
pub(crate) struct Seat {
    /// [`BUSY`], [`ENDED`], or since when it rests: milliseconds, and in the lowest bit whether it has ever sent a request.
    rest: AtomicU64,
    /// The same in more words, for a connection of hyper's.
    phase: AtomicU8,
}

impl Seat {
    fn new(now: Timestamp) -> Self {
        Self { rest: AtomicU64::new(millis(now) << 1), phase: AtomicU8::new(IDLE) }
    }

    /// The connection has something to do. False: it was told to go, and must not begin.
    pub fn begins(&self) -> bool {
        let before = self.rest.swap(BUSY, Ordering::Relaxed);
        if before == ENDED {
            self.rest.store(ENDED, Ordering::Relaxed);
        }
        before != ENDED
    }

    /// A request was answered in full.
    pub fn rests(&self, now: Timestamp) {
        self.rest.store(millis(now) << 1 | 1, Ordering::Relaxed);
    }

    /// Bytes came. None: they belong to a request that is known. Else a head begins with them; or it must not, since the
    /// connection was told to go. It is busy only when the head is complete: who sends a part of one takes no seat for it that
    /// others need.
    pub fn bytes_came(&self) -> Option<bool> {
        let phase = self.phase.load(Ordering::Relaxed);
        if !matches!(phase, IDLE | ANSWERED) {
            return None;
        }
        self.phase.store(HEAD_BEGUN, Ordering::Relaxed);
        Some(self.rest.load(Ordering::Relaxed) != ENDED)
    }

    /// A request's head is complete. False: the connection was told to go, and must not begin with it.
    pub fn answering(&self) -> bool {
        self.phase.store(ANSWERING, Ordering::Relaxed);
        // It may have come with the one before, so that no byte of it was seen to come.
        self.begins()
    }

    /// Its answer is made to the end.
    pub fn answered(&self) {
        self.phase.store(ANSWERED, Ordering::Relaxed);
    }

    /// All that was made has gone out.
    pub fn sent(&self, now: impl FnOnce() -> Timestamp) {
        match self.phase.load(Ordering::Relaxed) {
            ANSWERED => {
                self.phase.store(IDLE, Ordering::Relaxed);
                self.rests(now());
            }
            // Of the next request a part has come already.
            HEAD_BEGUN if self.rest.load(Ordering::Relaxed) == BUSY => self.rests(now()),
            _ => {}
        }
    }

    /// Whether a request's head has begun and not ended.
    pub fn awaits_head(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == HEAD_BEGUN
    }

    /// How long it has rested, where silence weighs more; and what it was found by. None: it does not rest long enough.
    fn rested(&self, now: u64, at_least: u64) -> Option<(u64, u64)> {
        let seen = self.rest.load(Ordering::Relaxed);
        if seen >= ENDED {
            return None;
        }
        // A clock that was set back makes everybody begin anew.
        if seen >> 1 > now {
            let anew = now << 1 | seen & 1;
            let _ = self.rest.compare_exchange(seen, anew, Ordering::Relaxed, Ordering::Relaxed);
            return None;
        }
        let (rest, weighs) = (now - (seen >> 1), if seen & 1 == 0 { SILENCE_WEIGHS } else { 1 });
        let weight = rest.saturating_mul(weighs);
        (rest >= REST_MIN_MILLIS && weight >= at_least).then_some((weight, seen))
    }

    /// Tells it to go, unless it has begun something since.
    fn end(&self, seen: u64) -> bool {
        self.rest.compare_exchange(seen, ENDED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

fn millis(now: Timestamp) -> u64 {
    u64::try_from(now.millis()).unwrap_or_default()
}

/// All connections.
pub(crate) struct Doors {
    most: usize,
    seats: Mutex<Seats>,
    /// Somebody has left.
    left: Notify,
    meters: DoorMeters,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Seats {
    /// By numbers that grow: whoever came first is first.
    taken: BTreeMap<u64, Taken>,
    next: u64,
}

struct Taken {
    seat: Arc<Seat>,
    /// Ends the connection's task.
    task: AbortHandle,
}

impl Doors {
    /// For so many connections.
    pub fn new(most: usize) -> Arc<Self> {
        let (most, meters) = (most.max(1), DoorMeters::new());
        meters.most.set(most as f64);
        Arc::new(Self { most, seats: Mutex::default(), left: Notify::new(), meters, told: Mutex::default() })
    }

    /// Gives a new connection a seat; `serve` begins to serve it.
    pub fn seat(self: &Arc<Self>, now: Timestamp, serve: impl FnOnce(Seated) -> AbortHandle) {
        let mut seats = self.seats.lock();
        let number = seats.next;
        seats.next += 1;
        let seat = Arc::new(Seat::new(now));
        self.meters.open.increment(1.0);
        // However soon it ends: it leaves when this lock is free again, and is known by then.
        let task = serve(Seated { doors: Arc::clone(self), number, seat: Arc::clone(&seat) });
        seats.taken.insert(number, Taken { seat, task });
    }

    /// Waits until there is a seat for one more. Whoever rests longest makes room for it.
    pub async fn room(&self, now: impl Fn() -> Timestamp) {
        while self.count() >= self.most {
            let ended = self.make_room(now(), self.most / MADE_FREE + 1, REST_MIN_MILLIS);
            if ended == 0 {
                self.told.lock().all_busy.count(1);
            }
            // Also when nobody leaves: somebody may begin to rest meanwhile.
            let _ = tokio::time::timeout(LOOK_EVERY, self.left.notified()).await;
            self.tell();
        }
    }

    /// Ends long rests while there are nearly as many connections as there may be; and tells what was not told yet.
    pub fn tidy(&self, now: Timestamp) {
        let (open, most) = (self.count(), self.most - self.most / KEPT_FREE);
        if open > most {
            self.make_room(now, open - most, REST_MAX_MILLIS);
        }
        self.tell();
    }

    /// A connection could not be accepted for want of files or memory: those that rest give theirs back.
    pub fn accept_failed(&self, error: io::Error, now: Timestamp) {
        self.meters.failed.increment(1);
        {
            let mut told = self.told.lock();
            told.failed.count(1);
            told.error = Some(error);
        }
        self.make_room(now, self.most / MADE_FREE + 1, REST_MIN_MILLIS);
        self.tell();
    }

    fn count(&self) -> usize {
        self.seats.lock().taken.len()
    }

    /// Ends so many connections at most, of those that have rested at least so long, longest first. How many it were.
    fn make_room(&self, now: Timestamp, wanted: usize, at_least: u64) -> usize {
        let seats = self.seats.lock();
        let now = millis(now);
        let resting = seats.taken.values().filter_map(|taken| {
            let (weight, seen) = taken.seat.rested(now, at_least)?;
            Some((weight, seen, taken))
        });
        let mut resting: Vec<_> = resting.collect();
        if resting.len() > wanted {
            resting.select_nth_unstable_by(wanted, |one, other| other.0.cmp(&one.0));
            resting.truncate(wanted);
        }
        let ends = |(_, seen, taken): &(u64, u64, &Taken)| {
            let ends = taken.seat.end(*seen);
            if ends {
                taken.task.abort();
            }
            ends
        };
        let ended = resting.iter().filter(|resting| ends(resting)).count();
        self.meters.ended.increment(ended as u64);
        self.told.lock().ended.count(ended as u64);
        ended
    }

    /// One line a second of each kind, with how many it were.
    fn tell(&self) {
        let mut told = self.told.lock();
        if let Some(count) = told.ended.due() {
            let most = self.most;
            tracing::warn!(
                count,
                most,
                "there are (nearly) as many connections as there may be: idle ones were closed"
            );
        }
        if told.all_busy.due().is_some() {
            tracing::warn!(
                most = self.most,
                "there are as many connections as there may be, and all are busy: new ones wait"
            );
        }
        if let Some(count) = told.failed.due() {
            let error = told.error.as_ref().map(ToString::to_string);
            tracing::error!(count, error, "connections could not be accepted");
        }
    }
}

/// What the log is to hear of.
#[derive(Default)]
struct Told {
    ended: Many,
    all_busy: Many,
    failed: Many,
    /// The newest failure.
    error: Option<io::Error>,
}

/// Something that happens often, and is told every second at most.
#[derive(Default)]
struct Many {
    count: u64,
    told: Option<Instant>,
}

impl Many {
    fn count(&mut self, more: u64) {
        self.count += more;
    }

    /// How many times it has happened, if that is to be told now.
    fn due(&mut self) -> Option<u64> {
        if self.count == 0 || self.told.is_some_and(|told| told.elapsed() < TOLD_EVERY) {
            return None;
        }
        self.told = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}

/// A connection's seat, until it leaves.
pub(crate) struct Seated {
    doors: Arc<Doors>,
    number: u64,
    pub seat: Arc<Seat>,
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.doors.seats.lock().taken.remove(&self.number);
        self.doors.meters.open.decrement(1.0);
        self.doors.left.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use isobar_hub::spawn_guarded;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    /// A connection that stays until it is told to go.
    fn comes(doors: &Arc<Doors>, now: Timestamp) -> Arc<Seat> {
        let mut seat = None;
        doors.seat(now, |seated| {
            seat = Some(Arc::clone(&seated.seat));
            spawn_guarded("connection", async move {
                let _seated = seated;
                std::future::pending::<()>().await;
            })
        });
        seat.unwrap()
    }

    fn has_ended(seat: &Seat) -> bool {
        seat.rest.load(Ordering::Relaxed) == ENDED
    }

    #[tokio::test]
    async fn the_longest_rests_make_room_and_silence_weighs_more() {
        let doors = Doors::new(5);
        let (slow, silent, busy) = (comes(&doors, at(0)), comes(&doors, at(7_000)), comes(&doors, at(0)));
        let (quick, new) = (comes(&doors, at(0)), comes(&doors, at(9_500)));
        slow.rests(at(0));
        quick.rests(at(8_500));
        assert!(busy.begins());
        let made = |count, at_least| doors.make_room(at(10_000), count, at_least);
        assert_eq!(made(1, 0), 1);
        assert!(has_ended(&silent) && !has_ended(&slow));
        assert_eq!(made(1, 10_001), 0);
        assert_eq!(made(2, 0), 2);
        assert!(has_ended(&slow) && has_ended(&quick) && !has_ended(&busy) && !has_ended(&new));
        // Neither who is busy nor who has hardly come makes room.
        assert_eq!(made(9, 0), 0);
        assert!(!silent.begins() && has_ended(&silent) && busy.begins());
    }

    #[tokio::test]
    async fn a_part_of_a_head_keeps_no_seat_and_a_whole_one_does() {
        let doors = Doors::new(3);
        let [begun, asks, new] = [0, 0, 9_500].map(|moment| comes(&doors, at(moment)));
        assert_eq!([&begun, &asks, &new].map(|seat| seat.bytes_came()), [Some(true); 3]);
        assert!(asks.answering());
        assert_eq!(doors.make_room(at(10_000), 9, 0), 1);
        assert!(has_ended(&begun) && !begun.answering() && new.answering());
    }

    #[tokio::test]
    async fn a_seat_is_free_again_when_its_connection_has_ended() {
        let doors = Doors::new(2);
        comes(&doors, at(0));
        let busy = comes(&doors, at(0));
        assert!(busy.begins());
        doors.room(|| at(5_000)).await;
        assert_eq!(doors.count(), 1);
        doors.room(|| at(5_000)).await;
        comes(&doors, at(5_000));
        // All are busy, until one is not any more.
        let room = doors.room(|| at(5_500));
        assert!(tokio::time::timeout(Duration::from_millis(1), room).await.is_err());
        busy.rests(at(4_000));
        doors.room(|| at(5_500)).await;
        assert_eq!(doors.count(), 1);
    }

    #[tokio::test]
    async fn long_rests_end_only_when_there_are_many_connections() {
        let doors = Doors::new(16);
        let seats: Vec<_> = (0..14).map(|number| comes(&doors, at(number))).collect();
        seats.iter().for_each(|seat| seat.rests(at(0)));
        doors.tidy(at(10_000_000));
        assert!(!seats.iter().any(|seat| has_ended(seat)));
        let more = [comes(&doors, at(10_000_000)), comes(&doors, at(10_000_000))];
        doors.tidy(at(10_000_000));
        assert_eq!(seats.iter().filter(|seat| has_ended(seat)).count(), 2);
        assert!(!more.iter().any(|seat| has_ended(seat)));
    }

    #[tokio::test]
    async fn a_clock_that_was_set_back_ends_nobody_at_once() {
        let doors = Doors::new(1);
        let seat = comes(&doors, at(1_000_000));
        assert_eq!(doors.make_room(at(0), 1, 0), 0);
        assert_eq!(doors.make_room(at(500), 1, 0), 0);
        assert_eq!(doors.make_room(at(1_000), 1, 0), 1);
        assert!(has_ended(&seat));
    }

    #[test]
    fn a_connection_rests_between_its_requests_alone() {
        let seat = Seat::new(at(0));
        let rests = || seat.rested(millis(at(5_000)), 0).is_some();
        assert!(rests());
        assert_eq!(seat.bytes_came(), Some(true));
        assert!(rests() && seat.awaits_head());
        assert_eq!(seat.bytes_came(), None);
        assert!(seat.answering() && !rests());
        assert_eq!(seat.bytes_came(), None);
        seat.sent(|| at(1));
        assert!(!rests() && !seat.awaits_head());
        seat.answered();
        assert!(!rests());
        seat.sent(|| at(1));
        assert!(rests());
        // The next may come before the answer has gone out.
        seat.bytes_came();
        seat.answering();
        seat.answered();
        assert_eq!(seat.bytes_came(), Some(true));
        assert!(!rests());
        seat.sent(|| at(1));
        assert!(rests() && seat.awaits_head());
    }

    #[test]
    fn what_happens_often_is_told_once_a_second() {
        let mut many = Many::default();
        assert_eq!(many.due(), None);
        many.count(3);
        assert_eq!(many.due(), Some(3));
        many.count(2);
        many.count(2);
        assert_eq!(many.due(), None);
        many.told = many.told.map(|told| told - TOLD_EVERY);
        assert_eq!((many.due(), many.due()), (Some(4), None));
    }
}
