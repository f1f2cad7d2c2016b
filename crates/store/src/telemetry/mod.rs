//! Telemetry: what devices said. The port; its promises are the suite's.
//!
//! Promises of every adapter:
//! - What a future returned `Ok` for is durable, and is there once after the process is killed at any moment.
//! - A commit is atomic: history, values, last values, queue, element state and outbox together or not at all.
//! - Runs of one device happen one after the other, each seeing what the one before it left.
//! - `createdAt` never runs backwards within a series, `totalDocs` is exact.

mod bounds;
mod buckets;
mod clock_trust;
mod commit;
mod dropping;
mod durable;
pub mod embedded;
mod examined;
mod follow;
mod known_stores;
pub mod marks;
pub mod moved;
mod page_budget;
pub mod postgres;
mod query;
mod ready_query;
mod recent_events;
mod scan;
mod shared;
mod sorted_page;
pub mod spread;
mod time_order;
mod turn;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use isobar_model::access::{CanRead, CanWrite};
use isobar_model::event::{Event, LastValues, StoredValue};
use isobar_model::ids::{DeviceKey, DeviceRef, EventId};
use isobar_model::json::LastKept;
use isobar_model::page::{Page, PageRequest, TimeRange};
use isobar_model::retention::Kept;
use isobar_model::time::Timestamp;
use parking_lot::Mutex;

pub use bounds::{DEVICE_LAST_BYTES_MAX, SERIES_MAX, last_room};
pub use buckets::{BUCKETS_BYTES_MAX, Bucket, BucketMemory, BucketQuery, BucketSeries, Buckets, PayloadTime};
pub use commit::{Commit, Idempotency, NewCloudEvent, NewEvent, NewValue, OutboxChange};
pub use durable::Durable;
pub use examined::{Examined, LostDevices};
pub use follow::{
    EventWriter, Followed, Following, PieceEvent, PositionOrder, StreamCursor, StreamMessage, StreamPiece,
    StreamPosition, StreamedEvents,
};
pub use known_stores::{ForeignStore, KnownStores, NamedStore, NotedStore};
pub use marks::{MarkedPlaces, StreamMark, StreamMarks};
pub use query::{
    Filter, FilterField, Operand, Operator, PAGE_BYTES_MAX, QUEUE_PAGE_BYTES_MAX, SORTED_MAX, ValueChunk, ValueCursor,
    ValueQuery, ValueSort,
};
pub(crate) use scan::Test as FilterTest;
pub use shared::{SharedTelemetry, Standing};
pub use turn::{Committed, DeviceTurn, Locked, TURNS_MAX, Turn};
pub use upkeep::Upkeep;

use crate::error::{Result, StoreError};
use isobar_quota::Claim;

/// State that earlier runs left for a device, as a run sees it.
pub trait Memory {
    /// Returns the last values of a storage element, as far as they are stored.
    fn last(&self, element: &str) -> Option<LastKept>;
    /// Returns the bytes of the last value; 0 before anything was stored.
    fn last_bytes(&self, element: &str) -> usize;
    /// Returns the bytes of the last values of all storage elements, and the number of elements that have stored anything.
    fn all_last_bytes(&self) -> (usize, usize);
    /// Returns the state of an element.
    fn state(&self, element: &str) -> Option<Bytes>;
    /// Returns the elements that have a state, with its bytes.
    fn states(&self) -> Vec<(Arc<str>, usize)>;
    /// Returns the bytes of all states, each with its name and [`isobar_model::event::STATE_BYTES_BESIDE`].
    fn states_bytes(&self) -> usize;
    /// Returns the newest identifier in the device's history and series, or one of the same position in time: those that the
    /// run makes are greater.
    fn newest(&self) -> EventId;
    /// Returns the number of changes of what the device's runs see outside of telemetry, in a store that processes share;
    /// else 0. A run needs what was read from the registry at this number: see [`SharedTelemetry::standings`].
    fn revision(&self) -> u64 {
        0
    }
    /// Returns the time of the newest device event in the history, if the store knows it here.
    fn heard(&self) -> Option<Timestamp> {
        None
    }
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// The run was committed and is durable.
    Committed {
        /// Queued cloud events that were dropped because the queue was full.
        dropped: u32,
    },
    /// The idempotency key is known: nothing was done, and this is the first answer.
    Repeated(EventId),
}

/// A storage element and its totals.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The element's name.
    pub element: Arc<str>,
    /// Time of its first value.
    pub created_at: Timestamp,
    /// Time of its newest value.
    pub updated_at: Timestamp,
    /// Values that were ever stored in it.
    pub count: u64,
    /// Bytes of the payloads in it; an estimate once values were dropped, see [`Telemetry::series_retain`].
    pub bytes: u64,
}

/// A query for events of a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryQuery {
    /// True to include device events.
    pub device_events: bool,
    /// True to include cloud events.
    pub cloud_events: bool,
    /// Range of the times of receipt.
    pub range: TimeRange,
    /// Events received before this time are hidden (retention).
    pub not_before: Timestamp,
    /// The page.
    pub page: PageRequest,
}

/// A query for events of a queue.
#[derive(Clone, Debug)]
pub struct QueueQuery {
    /// Only events of this element, if it is given.
    pub element: Option<String>,
    /// The page, counted before any event is taken.
    pub page: PageRequest,
    /// Events that have expired by this time are left out.
    pub now: Timestamp,
    /// Progress of the same reader's earlier looks.
    pub looked: Looked,
}

/// The part of a queue in which a waiting reader has found nothing, so that each look continues behind the previous one.
/// It is valid for looks of the same query, except for the time.
#[derive(Clone, Debug, Default)]
pub struct Looked(Arc<Mutex<(u64, u64)>>);

impl Looked {
    /// Returns the position from which to continue in the queue of this generation.
    pub(crate) fn until(&self, generation: u64) -> u64 {
        let (of, until) = *self.0.lock();
        if of == generation { until } else { 0 }
    }

    /// Records that the reader has nothing to find before this sequence.
    pub(crate) fn reach(&self, generation: u64, until: u64) {
        *self.0.lock() = (generation, until);
    }
}

/// The port to the telemetry store.
///
/// A method that touches a device's data takes a permit for that device: [`CanRead`] to read, [`CanWrite`] to change.
/// Methods without one (the outbox, `retain`, `sync` and the state of the store itself) serve the system, and return no
/// payload except the work that a run left in its outbox.
///
/// No method blocks the calling thread: disk access is done on threads that may block, and a long read ends soon after
/// its future is dropped. A change is durable when its future returns `Ok`, unless its method says otherwise.
///
/// # Errors
/// Any method may return [`StoreError::Unavailable`] if the store has failed or is closed, and [`StoreError::Damaged`]
/// if the data that it reads is damaged. Changes return [`StoreError::Busy`] if too many commits are queued, and reads
/// that take a [`Claim`] return it if too many reads of their tenant, or of all, wait for a slot. Then nothing was
/// done. Further errors are described at the methods.
#[async_trait]
pub trait Telemetry: Send + Sync + 'static {
    /// Locks the device. Waits while another run of the device is under way, and where the device is not in memory.
    async fn lock(&self, device: &CanWrite<DeviceRef>) -> Result<Turn>;
    /// Locks the device as [`Telemetry::lock`] does, without a future. `None` if something has to be waited for: the device is
    /// locked, or not in memory.
    fn lock_now(&self, device: &CanWrite<DeviceRef>) -> Result<Option<Turn>>;
    /// Locks the device as [`Telemetry::lock`] does, unless the idempotency key is known and not expired at `now`.
    async fn lock_unless_repeated(
        &self,
        device: &CanWrite<DeviceRef>,
        idempotency_key: &str,
        now: Timestamp,
    ) -> Result<Locked>;
    /// Runs `work` on what earlier runs left, commits what it returns, and waits until that is durable. With an idempotency key
    /// that is known, and not expired at `now`, `work` is not called. Where the commit conflicts with that of somebody else,
    /// `work` is called again, on a new turn.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] where the commits of [`TURNS_MAX`] turns conflicted.
    async fn run(
        &self,
        device: &CanWrite<DeviceRef>,
        idempotency_key: Option<&str>,
        now: Timestamp,
        work: &mut (dyn for<'m> FnMut(&'m dyn Memory) -> Commit + Send),
    ) -> Result<Ran> {
        turn::run(self, device, idempotency_key, now, work).await
    }

    /// Returns a page of stored values, or `None` if the device has no such series. A filter, an order by payload and a
    /// page of more than a thousand values are long reads: they wait for a slot (see [`isobar_quota`]), and yield it to
    /// others after a slice.
    ///
    /// # Errors
    /// [`StoreError::TooFar`] if an order by payload does not reach the page: see [`SORTED_MAX`].
    /// [`StoreError::TooMuch`] if its rows are too large together: see [`PAGE_BYTES_MAX`].
    async fn values(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: ValueQuery,
        claim: Claim,
    ) -> Result<Option<Page<StoredValue>>>;
    /// Returns a whole series in pieces, in the order of time that the query requests; the query's page is ignored. A
    /// read without a cursor begins at the first piece, and each piece has the cursor of the next. Returns `None` if
    /// the device has no such series. Values stored meanwhile are not included, and nothing is locked or held between
    /// two pieces. Each piece waits for a slot.
    ///
    /// # Errors
    /// [`StoreError::Gone`] if the series was deleted since the previous piece, [`StoreError::Unavailable`] if the
    /// query requests an order by payload.
    async fn values_chunk(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: &ValueQuery,
        cursor: Option<ValueCursor>,
        claim: Claim,
    ) -> Result<Option<ValueChunk>>;
    /// Adds the values of a series to buckets, which may contain those of other series already; returns false if the
    /// device has no such series. Reads every visible value of the range (`kept`): waits for a slot, and yields it to
    /// others after a slice.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] if there are too many buckets, or they need too much memory: see [`BUCKETS_BYTES_MAX`];
    /// [`StoreError::Busy`] if no more memory is granted to them, or too many reads wait for a slot.
    async fn buckets(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        kept: &Kept,
        buckets: Buckets,
        claim: Claim,
    ) -> Result<(Buckets, bool)>;
    /// Returns the times of the first and the last visible value (`kept`) of a range, if there is one. Costs a few seeks;
    /// waits for a slot.
    async fn extent(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        kept: &Kept,
        range: TimeRange,
        claim: Claim,
    ) -> Result<Option<(Timestamp, Timestamp)>>;
    /// Returns the last values of a series, or `None` if the device has no such series. They may include runs that are
    /// not durable yet.
    async fn last(&self, device: &CanRead<DeviceRef>, element: &str) -> Result<Option<LastValues>>;
    /// Returns the series of a device, by name.
    async fn series(&self, device: &CanRead<DeviceRef>) -> Result<Vec<Series>>;
    /// Returns the payload bytes of a device's visible values. `kept` names the elements of which some may be hidden. Of a
    /// series with hidden values it is their share of its bytes, as [`Telemetry::series_retain`] would leave it: no value is
    /// read.
    async fn visible_bytes(&self, device: &CanRead<DeviceRef>, kept: Vec<(Arc<str>, Kept)>) -> Result<u64>;
    /// Removes a series with its values, durably, or all series if no element is given; the space is reclaimed in the
    /// background. Returns false if there was none.
    async fn series_delete(&self, device: &CanWrite<DeviceRef>, element: Option<&str>) -> Result<bool>;

    /// Drops values past retention from series of a device, permanently and durably; the space is reclaimed in the
    /// background. Last values stay. Unless `exactly`, only ranges of at least 256 values are dropped, or the whole
    /// series. No value is read: the bytes of a series are reduced by the share of its dropped values. Returns false if
    /// nothing was dropped.
    async fn series_retain(
        &self,
        device: &CanWrite<DeviceRef>,
        kept: Vec<(Arc<str>, Kept)>,
        exactly: bool,
    ) -> Result<bool>;

    /// Returns a page of the device's history, newest first. A page of more than a thousand events waits for a slot.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] if its rows are too large together: see [`PAGE_BYTES_MAX`].
    async fn history(&self, device: &CanRead<DeviceRef>, query: HistoryQuery, claim: Claim) -> Result<Page<Event>>;
    /// Returns one event of the device's history, or `None` if there is no event with this identifier.
    async fn history_event(&self, device: &CanRead<DeviceRef>, id: EventId) -> Result<Option<Event>>;
    /// Returns the position of an event in the order of streams, or the position that it would have if it existed: see
    /// [`StreamPosition`].
    async fn history_position(&self, id: EventId) -> Result<StreamPosition>;
    /// Returns the order of its positions.
    fn position_order(&self) -> PositionOrder;
    /// Finds the first events, at most `limit`, of any of these devices that became durable after one position and up
    /// to another, in the order of their positions; the cursor ends where the next one begins. Takes slots, for any
    /// number of devices.
    async fn history_between(
        &self,
        devices: &Followed,
        after: StreamPosition,
        until: StreamPosition,
        limit: usize,
        claim: Claim,
    ) -> Result<StreamCursor>;
    /// Reads the next events of a cursor, of about this many bytes when encoded, and at least one if one is left;
    /// events that were deleted since they were found are omitted. Takes a slot and encodes the events there, because
    /// thousands at a time would block the thread that serves calls.
    async fn history_next(
        &self,
        cursor: &mut StreamCursor,
        written: (usize, EventWriter),
        claim: Claim,
    ) -> Result<StreamPiece>;
    /// Returns true if events are followed as they become durable. Reads one flag.
    fn is_followed(&self) -> bool;
    /// Follows again, beside a follower that has missed events: each event is sent once it is durable, in the order of
    /// positions; those before the position are in history.
    fn follow(&self) -> Following;
    /// Follows from a position behind all events that were acknowledged here before the call, and from this position on or
    /// a later one if the store has events up to there, which it looks for: another process may have committed them a
    /// moment ago.
    async fn follow_from(&self, _position: StreamPosition) -> Result<Following> {
        Ok(self.follow())
    }
    /// Returns the newest identifier of an event that the store knew when it was opened or has stored since, or a greater
    /// one.
    fn newest_event(&self) -> EventId {
        self.follow().from.newest
    }

    /// Returns queued cloud events, oldest first, and leaves them in the queue. A search of many waits for a slot.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] if they are too large together: see [`QUEUE_PAGE_BYTES_MAX`].
    async fn queue_peek(&self, device: &CanRead<DeviceRef>, query: QueueQuery) -> Result<Vec<Event>>;
    /// Takes queued cloud events, oldest first: they are removed, durably, before the answer. No two callers get the
    /// same event. Events beyond [`QUEUE_PAGE_BYTES_MAX`] bytes together are left in the queue. A search of many waits
    /// for a slot.
    async fn queue_take(&self, device: &CanWrite<DeviceRef>, query: QueueQuery) -> Result<Vec<Event>> {
        Ok(self.queue_take_while(device, query, Box::new(|_| true)).await?.unwrap_or_default())
    }
    /// Takes events like [`Telemetry::queue_take`] for a caller that may lose its right meanwhile, or has no room for them:
    /// `may` is called under the device's lock before the events are taken, with an upper bound of their bytes as JSON, and
    /// first with 0. If it returns false, nothing is taken and the result is `None`.
    async fn queue_take_while(
        &self,
        device: &CanWrite<DeviceRef>,
        query: QueueQuery,
        may: Box<dyn Fn(usize) -> bool + Send>,
    ) -> Result<Option<Vec<Event>>>;
    /// Removes one queued event, durably. Returns false if it is not queued. A search of many waits for a slot.
    async fn queue_delete(&self, device: &CanWrite<DeviceRef>, id: EventId) -> Result<bool>;

    /// Deletes all data of a device, durably; the space is reclaimed in the background.
    async fn forget(&self, device: &CanWrite<DeviceRef>) -> Result<()>;
    /// Deletes history that is older than `history_seconds` (whole files, never single rows), and expired idempotency
    /// keys. The clock is trusted unless it is more than a day ahead of its value at the last call plus the time since
    /// then, `running`: a clock that jumps deletes nothing. Returns the time as far as it is trusted.
    async fn retain(&self, now: Timestamp, running: Duration, history_seconds: i64) -> Result<Timestamp>;

    /// Returns a number for a new outbox entry, above the numbers of all existing entries. Numbers drawn within runs of
    /// a device increase from run to run.
    fn outbox_number(&self) -> u64;
    /// Returns at most `limit` outbox entries with a number above `after`, by number, with their device. They may not
    /// be durable yet: [`Telemetry::sync`] waits until they are.
    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>>;
    /// Removes entries whose work is done, each of a device; returns those whose database does not answer. Not durable when
    /// it returns: after a crash some may be listed again.
    async fn outbox_done(&self, done: &[(DeviceKey, u64)]) -> Result<Vec<(DeviceKey, u64)>>;
    /// Records, durably, the reason for which the work of an entry of a device cannot be done, until the entry is removed.
    async fn outbox_park(&self, device: DeviceKey, number: u64, why: &str) -> Result<()>;
    /// Waits until everything is durable that was committed before the call.
    async fn sync(&self) -> Result<()>;

    /// Returns what processes must know of each other, if several may share the store.
    fn shared(&self) -> Option<&dyn SharedTelemetry> {
        None
    }

    /// Fails if the database of a device is known to be away, and its calls would fail: at once, so that a caller can find
    /// out before it takes anything that others wait for.
    fn must_reach(&self, _device: DeviceKey) -> Result<()> {
        Ok(())
    }

    /// Returns the databases of the store: the number of each (see [`DeviceKey::database`]), with host, port and name. Empty
    /// for files of this process.
    fn databases(&self) -> Vec<(u16, Arc<str>)> {
        Vec::new()
    }

    /// Checks that one of several databases accepts writes.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] with the cause, if it has failed, is away or is closed.
    async fn database_healthy(&self, _number: u16) -> Result<()> {
        self.healthy().await
    }

    /// Checks that the store accepts writes; of one with several databases, that any of them does.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] with the cause, if it has failed or is closed.
    async fn healthy(&self) -> Result<()>;
    /// Returns the databases whose events do not reach streams because a transaction before them does not end, with the time
    /// for which that has been so: 10 s at least.
    fn stalled_streams(&self) -> Vec<(u16, Duration)> {
        Vec::new()
    }
    /// Waits until the store has failed and accepts no more writes, and returns the cause: only opening it again helps.
    /// All waiters of a commit have received its error by then. A closed store has not failed.
    async fn failed(&self) -> StoreError;
    /// Writes all queued commits, makes everything durable and closes the store; later calls fail. A second call does
    /// nothing.
    async fn close(&self) -> Result<()>;
}

/// Work that a commit left to be done later.
#[derive(Clone, Debug)]
pub struct OutboxEntry {
    /// Its number; numbers only increase.
    pub number: u64,
    /// The device whose run left it.
    pub device: DeviceKey,
    /// The work, opaque to the store.
    pub work: Bytes,
    /// The reason for which it is parked, if it is.
    pub parked: Option<Arc<str>>,
}
