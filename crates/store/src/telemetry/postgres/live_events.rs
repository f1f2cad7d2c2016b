//! Sends events to followers, in the order (transaction, item): that in which the database has them, for all processes.
//!
//! An event has its place once every transaction before its own has ended. While somebody follows, the events behind the
//! last place are read every 100 ms, and after each group of this process at once. Those of this process are sent from
//! memory; what others have written is a gap, which followers read from history.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use isobar_model::access::Lineage;
use isobar_model::event::Event;
use isobar_model::ids::EventId;
use isobar_model::time::{Clock, Timestamp};
use parking_lot::Mutex;
use sqlx::postgres::PgPool;
use tokio::sync::{MutexGuard, broadcast};

use super::connections::{ReadColumn as _, failed};
use super::memory::DeviceWrites;
use super::stream_stall::StreamStall;
use crate::error::{Result, StoreError};
use crate::postgres::{AwayDatabase, WatchedPool};
use crate::telemetry::recent_events::{FOLLOWER_LAG_EVENTS, RecentEvents};
use crate::telemetry::time_order::{TimeOrder, id_of, moment, order_at};
use crate::telemetry::{Following, StreamMessage, StreamPosition};

/// Pause between two looks for events of other processes, while somebody follows; and (next constant) for the last place,
/// while nobody does.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const PLACE_EVERY: Duration = Duration::from_secs(1);
/// Time that a group waits until its events have their places, and (next constant) the pause between two looks.
const PLACED_WITHIN: Duration = Duration::from_secs(1);
const PLACED_LOOK_EVERY: Duration = Duration::from_millis(2);
/// Time for looks by who holds the turn.
const LOOKED_WITHIN: Duration = Duration::from_secs(3);
/// Events that are read at a time.
const EVENTS_A_LOOK: i64 = 4_096;
/// Milliseconds by which the position in time of an event may lie before that of one with an earlier place: the clocks of
/// processes differ, and runs overtake each other.
const OVERTAKEN_MILLIS: i64 = 86_400_000;

/// Bit that makes signed numbers of transactions order like unsigned ones. Those of moved events are negative: they are
/// before all of the database.
const SIGN: u64 = 1 << 63;

/// The events of a transaction of this process, by item; `None` if they were not prepared for followers.
type OwnEvents = Vec<Option<(Arc<Event>, Arc<Lineage>)>>;

/// Place of an event in the order of its database, or between two events.
#[derive(Clone, Copy, Debug)]
pub struct EventPlace {
    /// Transaction that wrote it.
    pub transaction: i64,
    /// Its number in the transaction.
    pub item: i32,
    /// Its position in time: where to look for it. Means nothing for the order.
    pub at: Timestamp,
}

impl Ord for EventPlace {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.transaction, self.item).cmp(&(other.transaction, other.item))
    }
}

impl PartialOrd for EventPlace {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for EventPlace {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for EventPlace {}

impl EventPlace {
    /// Returns the place behind all events of a transaction.
    pub fn end_of(transaction: i64, at: Timestamp) -> Self {
        Self { transaction, item: i32::MAX, at }
    }

    /// Returns the place as a position of streams. The position in time is told with it: two of one place are equal.
    pub fn position(self) -> StreamPosition {
        let transaction = u128::from(self.transaction as u64 ^ SIGN);
        let item = u128::from(self.item.max(0).unsigned_abs());
        let newest = id_of(transaction << 64 | item << 32);
        StreamPosition { mark: 0, newest, late: self.at.millis().max(0).unsigned_abs() }
    }

    /// Returns the place of a position.
    pub fn of(position: StreamPosition) -> Self {
        let bits = position.newest.0.as_u128();
        Self {
            transaction: ((bits >> 64) as u64 ^ SIGN) as i64,
            item: i32::try_from(bits >> 32 & u128::from(u32::MAX)).unwrap_or(i32::MAX),
            at: Timestamp::from_millis(i64::try_from(position.late).unwrap_or(i64::MAX)),
        }
    }

    /// Returns the position in time from which to look for events behind this place.
    pub fn look_from(self) -> [u8; 16] {
        order_at(Timestamp::from_millis(self.at.millis().saturating_sub(OVERTAKEN_MILLIS))).to_be_bytes()
    }
}

#[derive(Debug)]
struct SentEvents {
    place: EventPlace,
    /// The newest transaction of this process that wrote events.
    newest_own: i64,
    /// Moment at which the last look began that found the end.
    looked: Instant,
    own: BTreeMap<i64, OwnEvents>,
    recent: RecentEvents,
}

/// All followers, and how far they have got.
#[derive(Debug)]
pub struct LiveEvents {
    pool: Arc<WatchedPool>,
    /// Held while a group is written, and while events are sent.
    turn: tokio::sync::Mutex<()>,
    sent: Mutex<SentEvents>,
    stall: StreamStall,
    messages: broadcast::Sender<StreamMessage>,
    /// The newest position in time that this process has seen.
    newest: Mutex<TimeOrder>,
    /// Number that is added to those of the server's transactions.
    raised: i64,
}

/// The right to send events, and to write a group whose events are sent afterwards.
pub struct EventsHeld<'a> {
    live: &'a LiveEvents,
    _turn: MutexGuard<'a, ()>,
}

/// The first transaction that has not ended, of those that are not known to be elsewhere ($1).
macro_rules! horizon {
    () => {
        "SELECT coalesce((SELECT min(x::text::bigint) FROM pg_snapshot_xip(pg_current_snapshot()) AS x \
         WHERE x::text::bigint & 4294967295 <> ALL($1)), pg_snapshot_xmax(pg_current_snapshot())::text::bigint)"
    };
}

/// The first transaction that has not begun.
macro_rules! next_transaction {
    () => {
        "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
    };
}

/// Looks for the events behind a place that have their own.
const LOOK_FOR_EVENTS: &str = concat!(
    "WITH h AS MATERIALIZED (SELECT (",
    horizon!(),
    ") AS ends, ",
    next_transaction!(),
    " AS next) SELECT h.ends, e.xact, e.item, e.ord, h.next FROM h LEFT JOIN LATERAL (SELECT xact, item, ord \
     FROM telemetry.event WHERE (xact, item) > ($2, $3) AND xact < h.ends + $6 AND ord >= $4 ORDER BY xact, item LIMIT $5) e \
     ON true ORDER BY e.xact, e.item",
);

/// Transactions of other databases of the instance, and those that have not locked the history. Prepared ones belong to no
/// session.
const ELSEWHERE: &str = "SELECT a.backend_xid::text::bigint FROM pg_stat_activity a WHERE a.backend_xid IS NOT NULL \
    AND (a.datname IS DISTINCT FROM current_database() OR NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid \
        AND l.relation = 'telemetry.event'::regclass AND l.mode = 'RowExclusiveLock' AND l.database = \
            (SELECT oid FROM pg_database WHERE datname = current_database()))) \
    UNION ALL SELECT p.transaction::text::bigint FROM pg_prepared_xacts p WHERE p.database <> current_database() \
        OR EXISTS (SELECT FROM pg_locks t WHERE t.pid IS NULL AND t.transactionid = p.transaction AND t.granted \
            AND NOT EXISTS (SELECT FROM pg_locks l WHERE l.pid IS NULL AND l.virtualtransaction = t.virtualtransaction \
                AND l.relation = 'telemetry.event'::regclass AND l.mode = 'RowExclusiveLock' AND l.database = \
                    (SELECT oid FROM pg_database WHERE datname = current_database())))";

/// Returns the running transactions that write no events: no event waits for them. The list is older than the snapshot that
/// it is held against, and a statement that writes events locks the history before it has a transaction, so that none of
/// those is taken for another.
pub async fn transactions_elsewhere(pool: &PgPool) -> Result<Vec<i64>> {
    sqlx::query(ELSEWHERE).fetch_all(pool).await.map_err(failed)?.iter().map(|row| row.column(0)).collect()
}

/// Returns the first transaction that has not ended, of those that may write events, and the first that has not begun.
async fn horizon(pool: &PgPool) -> Result<(i64, i64)> {
    let elsewhere = transactions_elsewhere(pool).await?;
    let query = sqlx::query(concat!(horizon!(), ", ", next_transaction!())).bind(elsewhere);
    let row = query.fetch_one(pool).await.map_err(failed)?;
    Ok((row.column(0)?, row.column(1)?))
}

impl LiveEvents {
    /// Creates a registry without followers; everything so far is history.
    pub async fn open(watched: Arc<WatchedPool>, raised: i64) -> Result<Self> {
        let pool = &watched.get();
        let newest =
            sqlx::query("SELECT greatest(device_order, cloud_order) FROM telemetry.head ORDER BY 1 DESC LIMIT 1");
        let newest = newest.fetch_optional(pool).await.map_err(failed)?;
        let newest = newest.map_or(Ok(0), |row| row.order(0))?;
        // A move may have left devices behind that had newer ones.
        let moved = sqlx::query("SELECT millis FROM telemetry.moment WHERE name = 'newest'");
        let moved = moved.fetch_optional(pool).await.map_err(failed)?;
        let moved = moved.map_or(Ok(0), |row| row.column(0).map(|at| order_at(Timestamp::from_millis(at))))?;
        let newest: TimeOrder = moved.max(newest);
        let (ends, _) = horizon(pool).await?;
        let place = EventPlace::end_of(ends.saturating_add(raised) - 1, moment(newest));
        let sent = SentEvents {
            place,
            newest_own: i64::MIN,
            looked: Clock::System.instant(),
            own: BTreeMap::new(),
            recent: RecentEvents::default(),
        };
        Ok(Self {
            pool: watched,
            turn: tokio::sync::Mutex::default(),
            sent: Mutex::new(sent),
            stall: StreamStall::default(),
            messages: broadcast::Sender::new(FOLLOWER_LAG_EVENTS),
            newest: Mutex::new(newest),
            raised,
        })
    }

    /// Returns the first transaction that has not ended, of those that may write events.
    pub async fn horizon(&self) -> Result<i64> {
        let (ends, next) = horizon(&self.pool.get()).await?;
        self.stall.note(ends, next);
        Ok(ends.saturating_add(self.raised))
    }

    /// Returns for how long events have been waiting for a transaction that does not end, if that is long.
    pub fn stalled_for(&self) -> Option<Duration> {
        self.stall.lasts()
    }

    /// Tells if the database is away.
    pub fn away(&self) -> &AwayDatabase {
        self.pool.away()
    }

    /// Returns the number that is added to those of the server's transactions.
    pub fn raised(&self) -> i64 {
        self.raised
    }

    /// Returns true if there are followers.
    pub fn is_any(&self) -> bool {
        self.messages.receiver_count() > 0
    }

    /// Registers a follower from the last place on, which is up to a second old if there were none.
    pub fn follow(&self) -> Following {
        let sent = self.sent.lock();
        Following { from: sent.place.position(), messages: self.messages.subscribe() }
    }

    /// Registers a follower behind the events of this process, from this position on or a later one. Looks for events until
    /// it is there, as long as others before them may be under way: those are sent to it.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if the position is not reached in time.
    pub async fn follow_from(&self, position: StreamPosition) -> Result<Following> {
        let _follows = self.messages.subscribe();
        let (begun, own) = (Clock::System.instant(), self.sent.lock().newest_own);
        // One behind all events that there will be is never reached.
        let reached = if EventPlace::of(position).transaction == i64::MAX { StreamPosition::first() } else { position };
        match Clock::System.timeout(PLACED_WITHIN, self.reaches(begun, own, reached)).await {
            Ok(there) => there?,
            Err(_) if self.follow().from < reached => return Err(StoreError::Busy),
            // A commit hangs. Some of what is before the follower may be sent to it.
            Err(_) => {}
        }
        Ok(self.follow())
    }

    /// Waits until a look that began since a moment has come behind a transaction and to a position.
    async fn reaches(&self, begun: Instant, own: i64, position: StreamPosition) -> Result<()> {
        let is_there = |sent: &SentEvents| {
            sent.looked >= begun && sent.place.transaction >= own && sent.place.position() >= position
        };
        let mut since = begun;
        loop {
            let held = self.hold().await;
            // One look is enough for all who wait for one.
            if self.sent.lock().looked < since {
                held.look(Some(transactions_elsewhere(&self.pool.get()).await?)).await?;
            }
            drop(held);
            let looked = self.sent.lock().looked;
            if is_there(&self.sent.lock()) {
                return Ok(());
            }
            // All that has its place was sent: something is under way.
            if looked >= since {
                Clock::System.sleep(LOOK_EVERY).await;
                since = Clock::System.instant();
            }
        }
    }

    /// Returns the newest identifier of an event.
    pub fn newest(&self) -> EventId {
        id_of(*self.newest.lock())
    }

    fn saw(&self, order: TimeOrder) {
        let mut newest = self.newest.lock();
        *newest = order.max(*newest);
    }

    /// Waits until nobody else sends events or writes a group.
    pub async fn hold(&self) -> EventsHeld<'_> {
        EventsHeld { live: self, _turn: self.turn.lock().await }
    }

    /// Looks for events of other processes, for ever.
    pub async fn run(&self) {
        loop {
            let pause = if self.is_any() { LOOK_EVERY } else { PLACE_EVERY };
            Clock::System.sleep(pause).await;
            if self.away().is_away() {
                continue;
            }
            let held = self.hold().await;
            let looked = async {
                if !self.is_any() {
                    return held.place().await;
                }
                let elsewhere = transactions_elsewhere(&self.pool.get()).await?;
                held.look(Some(elsewhere)).await.map(drop)
            };
            // A group waits for this.
            in_time(self.away().unless_away(looked)).await;
        }
    }
}

/// Looks for events, for a while: commits wait for it.
async fn in_time(looks: impl Future<Output = Result<()>>) {
    let looked = Clock::System.timeout(LOOKED_WITHIN, looks).await;
    if let Err(error) = looked.unwrap_or(Err(StoreError::Busy)) {
        tracing::warn!(%error, "cannot look for events, will retry");
    }
}

impl EventsHeld<'_> {
    /// Takes the events of a group that was written, and sends them to followers if there are any. `is_first` is true for
    /// those of its commits that were written.
    pub async fn committed<'w>(self, transaction: i64, group: impl Iterator<Item = (&'w DeviceWrites, bool)>) {
        let (mut own, mut newest) = (OwnEvents::new(), 0);
        for (writes, is_first) in group {
            let streamed = writes.streamed.as_deref();
            for (index, row) in writes.events.iter().enumerate() {
                let event = streamed.and_then(|streamed| streamed.events.get(index));
                own.push(event.map(|event| (Arc::clone(event), streamed_lineage(writes))));
                if is_first {
                    newest = row.order.max(newest);
                }
            }
        }
        if newest == 0 {
            return;
        }
        self.live.saw(newest);
        if !self.keep(transaction, own) {
            return;
        }
        in_time(self.live.away().unless_away(self.wait_for_places(transaction))).await;
    }

    /// Sends events until those of a transaction are sent, or it takes too long.
    async fn wait_for_places(&self, transaction: i64) -> Result<()> {
        let begun = Clock::System.instant();
        let mut place = self.look(None).await?;
        while place.transaction < transaction && Clock::System.elapsed(begun) < PLACED_WITHIN {
            Clock::System.sleep(PLACED_LOOK_EVERY).await;
            place = self.look(Some(transactions_elsewhere(&self.live.pool.get()).await?)).await?;
        }
        Ok(())
    }

    /// Keeps events until they have their places; returns false if nobody follows.
    fn keep(&self, transaction: i64, own: OwnEvents) -> bool {
        let mut sent = self.live.sent.lock();
        sent.newest_own = sent.newest_own.max(transaction);
        if self.live.is_any() {
            sent.own.insert(transaction, own);
            return true;
        }
        sent.own.clear();
        sent.recent = RecentEvents::default();
        false
    }

    /// Moves the last place to the present, while nobody follows.
    async fn place(&self) -> Result<()> {
        let ended = self.live.horizon().await? - 1;
        let mut sent = self.live.sent.lock();
        if ended > sent.place.transaction && !self.live.is_any() {
            sent.place = EventPlace::end_of(ended, moment(*self.live.newest.lock()));
        }
        Ok(())
    }

    /// Sends the events that have their places by now: none waits for a transaction `elsewhere`, if these are known. Returns the
    /// last place.
    async fn look(&self, elsewhere: Option<Vec<i64>>) -> Result<EventPlace> {
        let looked = Clock::System.instant();
        let from = self.live.sent.lock().place;
        let query = sqlx::query(LOOK_FOR_EVENTS)
            .bind(elsewhere.as_deref().unwrap_or_default())
            .bind(from.transaction)
            .bind(from.item);
        let query = query.bind(from.look_from()).bind(EVENTS_A_LOOK).bind(self.live.raised);
        let rows = query.fetch_all(&self.live.pool.get()).await.map_err(failed)?;
        let (mut found, mut ended) = (Vec::with_capacity(rows.len()), from.transaction);
        if let Some(row) = rows.first()
            && elsewhere.is_some()
        {
            self.live.stall.note(row.column(0)?, row.column(4)?);
        }
        for row in &rows {
            ended = row.column::<i64>(0)?.saturating_add(self.live.raised) - 1;
            if let Some(transaction) = row.column::<Option<i64>>(1)? {
                let order = row.order(3)?;
                self.live.saw(order);
                found.push(EventPlace { transaction, item: row.column(2)?, at: moment(order) });
            }
        }
        let at = found.iter().map(|place| place.at).max().unwrap_or(from.at).max(from.at);
        let last = match found.last() {
            Some(last) if found.len() as i64 == EVENTS_A_LOOK => *last,
            _ if ended > from.transaction => EventPlace::end_of(ended, at),
            _ => from,
        };
        self.send(&found, last);
        if (found.len() as i64) < EVENTS_A_LOOK {
            self.live.sent.lock().looked = looked;
        }
        Ok(last)
    }

    fn send(&self, found: &[EventPlace], last: EventPlace) {
        let mut sent = self.live.sent.lock();
        sent.place = last;
        let kept = self.live.messages.len();
        sent.recent.keep_only(kept);
        for place in found {
            let own =
                sent.own.get(&place.transaction).and_then(|own| own.get(usize::try_from(place.item).ok()?)?.clone());
            let Some((event, lineage)) = own else {
                // The channel may have no receiver.
                let _ = self.live.messages.send(StreamMessage::Gap);
                break;
            };
            let (position, device, kept) = (place.position(), event.device, Arc::downgrade(&event));
            sent.recent.keep(event);
            let _ = self.live.messages.send(StreamMessage::Event { position, device, lineage, event: kept });
        }
        sent.own = sent.own.split_off(&last.transaction.saturating_add(i64::from(last.item == i32::MAX)));
    }
}

fn streamed_lineage(writes: &DeviceWrites) -> Arc<Lineage> {
    writes
        .streamed
        .as_ref()
        .map_or_else(|| Arc::new(Lineage::new([], isobar_quota::NOBODY)), |it| Arc::clone(&it.lineage))
}
