//! Telemetry: what devices said. The port; its promises are the suite's.
//!
//! Promises of every adapter:
//! - What a future returned `Ok` for is durable, and is there once after the process is killed at any moment.
//! - A commit is atomic: history, values, last values, queue, element state and outbox together or not at all.
//! - Runs of one device happen one after the other, each seeing what the one before it left.
//! - `createdAt` never runs backwards within a series, `totalDocs` is exact.

mod bounds;
mod buckets;
mod commit;
mod durable;
pub mod embedded;
mod examined;
mod follow;
mod query;
mod turn;

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
    EventWriter, Followed, Following, PieceEvent, StreamCursor, StreamMessage, StreamPiece, StreamPosition,
    StreamedEvents,
};
pub use query::{
    Filter, FilterField, Operand, Operator, PAGE_BYTES_MAX, QUEUE_PAGE_BYTES_MAX, SORTED_MAX, ValueChunk, ValueCursor,
    ValueQuery, ValueSort,
};
pub use turn::{Committed, DeviceTurn, Locked, TURNS_MAX, Turn};

use crate::error::{Result, StoreError};
use isobar_quota::Claim;

/// State that earlier runs left for a device, as a run sees it.
pub trait Memory {
    /// The last values of a storage element, as far as they are stored.
    fn last(&self, element: &str) -> Option<LastKept>;
    /// Returns the bytes of the last value; 0 before anything was stored.
    fn last_bytes(&self, element: &str) -> usize;
    /// Returns the bytes of the last values of all storage elements, and the number of elements that have stored anything.
    fn all_last_bytes(&self) -> (usize, usize);
    /// The state of an element.
    fn state(&self, element: &str) -> Option<Bytes>;
    /// Returns the elements that have a state, with its bytes.
    fn states(&self) -> Vec<(Arc<str>, usize)>;
    /// Returns the bytes of all states, each with its name and [`isobar_model::event::STATE_BYTES_BESIDE`].
    fn states_bytes(&self) -> usize;
    /// The newest identifier in the device's history and series, or what stands for it: those that the run makes are greater.
    fn newest(&self) -> EventId;
}

/// The outcome of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ran {
    /// The run was committed and is durable.
    Committed {
        /// Queued cloud events that were dropped because the queue was full.
        dropped: u32,
    },
    /// The idempotency key is known: nothing was done; this is the first answer.
    Repeated(EventId),
}

/// A storage element as the store knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The element's name.
    pub element: Arc<str>,
    /// Time of its first value.
    pub created_at: Timestamp,
    /// Time of its newest value.
    pub updated_at: Timestamp,
    /// Values that have come to it.
    pub count: u64,
    /// Bytes of the payloads in it. Of one of which values were dropped, about: see [`Telemetry::series_retain`].
    pub bytes: u64,
}

/// A query for events of a history.
#[derive(Clone, Copy, Debug, Default)]
pub struct HistoryQuery {
    /// With device events.
    pub device_events: bool,
    /// With cloud events.
    pub cloud_events: bool,
    /// Range of the time of receipt.
    pub range: TimeRange,
    /// Nothing received before this moment is shown: retention.
    pub not_before: Timestamp,
    /// The page.
    pub page: PageRequest,
}

/// A query for events of a queue.
#[derive(Clone, Debug)]
pub struct QueueQuery {
    /// Only those of this element.
    pub element: Option<String>,
    /// The page, before anything is taken.
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

    /// There is nothing for the reader before this sequence.
    pub(crate) fn reach(&self, generation: u64, until: u64) {
        *self.0.lock() = (generation, until);
    }
}

/// The port to the telemetry store.
///
/// A method that touches a device's data takes a permit for that device: [`CanRead`] to look, [`CanWrite`] to change. Those
/// without one (the outbox, `retain`, `sync` and the state of the store itself) serve the system, and hand out no payload
/// but what a run left in its outbox.
///
/// No method blocks the thread that calls it: what may touch the disk is done on threads that may wait, and a future
/// that is dropped ends a long read soon. A change is durable when its future returns `Ok`, unless its method says
/// otherwise.
///
/// # Errors
/// Any method may answer [`StoreError::Unavailable`] where the store has failed or is closed, and
/// [`StoreError::Damaged`] where what it reads makes no sense; changes answer [`StoreError::Busy`] where too many
/// commits wait, and reads that take a [`Claim`] where too many of their tenant, or of all, wait for a slot. Then
/// nothing was done. Further errors stand at the methods.
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

    /// A page of stored values; none when the device has no such series. A filter, an order by payload and a page of
    /// more than a thousand values read at length: they wait for a slot (see [`isobar_quota`]), and let others go first
    /// when it has lasted.
    ///
    /// # Errors
    /// [`StoreError::TooFar`] where an order by payload does not reach the page: see [`SORTED_MAX`].
    /// [`StoreError::TooMuch`] where its rows are too large together: see [`PAGE_BYTES_MAX`].
    async fn values(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: ValueQuery,
        claim: Claim,
    ) -> Result<Option<Page<StoredValue>>>;
    /// A whole series piece by piece, in the order of time that the query asks for; its page is ignored. Without a cursor
    /// it begins; each piece has the cursor of the next. None when the device has no such series. What is stored meanwhile
    /// does not come up, and nothing is held in between. Each piece waits for a slot.
    ///
    /// # Errors
    /// [`StoreError::Gone`] where the series was deleted since the piece before, [`StoreError::Unavailable`] where the
    /// query asks for an order by payload.
    async fn values_chunk(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: &ValueQuery,
        cursor: Option<ValueCursor>,
        claim: Claim,
    ) -> Result<Option<ValueChunk>>;
    /// Takes what a series says into buckets, in which that of others may be already; false: the device has no such series.
    /// Every value of the range that is shown, as `kept` says, is looked at: this waits for a slot, and lets others go first
    /// when it has lasted.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] where there are too many buckets, or they take too much: see [`BUCKETS_BYTES_MAX`];
    /// [`StoreError::Busy`] where no more memory is lent to them, or too much waits for a slot.
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
    /// The last values of a series; none when the device has no such series. They may be ahead of what is durable by
    /// the runs that are under way.
    async fn last(&self, device: &CanRead<DeviceRef>, element: &str) -> Result<Option<LastValues>>;
    /// The series of a device, by name.
    async fn series(&self, device: &CanRead<DeviceRef>) -> Result<Vec<Series>>;
    /// Removes a series (none: all of them) with its values, durably; the space comes back in the background. False:
    /// there was none.
    async fn series_delete(&self, device: &CanWrite<DeviceRef>, element: Option<&str>) -> Result<bool>;

    /// Drops, for good and durably, what is not kept of series of a device; the space comes back in the background. Last
    /// values stay. Not `exactly`: only stretches that are worth it, of 256 values or more, or all that there is. Nothing is
    /// read value by value: a series' bytes are less by the share of the values that went. False: nothing was dropped.
    async fn series_retain(
        &self,
        device: &CanWrite<DeviceRef>,
        kept: Vec<(Arc<str>, Kept)>,
        exactly: bool,
    ) -> Result<bool>;

    /// A page of the device's history, newest first. A page of more than a thousand events waits for a slot.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] where its rows are too large together: see [`PAGE_BYTES_MAX`].
    async fn history(&self, device: &CanRead<DeviceRef>, query: HistoryQuery, claim: Claim) -> Result<Page<Event>>;
    /// One event of the device's history; none: the device has none of this identifier.
    async fn history_event(&self, device: &CanRead<DeviceRef>, id: EventId) -> Result<Option<Event>>;
    /// The position that an event has in the order of streams, or would have if it were there: see [`StreamPosition`].
    async fn history_position(&self, id: EventId) -> Result<StreamPosition>;
    /// Finds the first events, at most `limit`, of any of these devices that became durable after one position and up
    /// to another, in the order of their positions; the cursor ends where the next one begins. It takes slots, however
    /// many devices there are.
    async fn history_between(
        &self,
        devices: &Followed,
        after: StreamPosition,
        until: StreamPosition,
        limit: usize,
        claim: Claim,
    ) -> Result<StreamCursor>;
    /// Reads the next events of a cursor, of about so many bytes as they are written, at least one if it has one left; what
    /// was forgotten since it was found is left out. It takes a slot, and they are written there: thousands at a time would
    /// hold up the thread that serves calls.
    async fn history_next(
        &self,
        cursor: &mut StreamCursor,
        written: (usize, EventWriter),
        claim: Claim,
    ) -> Result<StreamPiece>;
    /// Returns true if events are followed as they become durable. Reads one flag.
    fn is_followed(&self) -> bool;
    /// Follows what becomes durable from now on. Each event is sent once it is, in the order of positions, whoever
    /// waits for it or does not; what came before is in history.
    fn follow(&self) -> Following;

    /// Queued cloud events, oldest first; they stay. A look at many waits for a slot.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`] where they are too large together: see [`QUEUE_PAGE_BYTES_MAX`].
    async fn queue_peek(&self, device: &CanRead<DeviceRef>, query: QueueQuery) -> Result<Vec<Event>>;
    /// Takes queued cloud events, oldest first: they are gone, durably, before the answer. No two callers get the same one.
    /// What would take more than [`QUEUE_PAGE_BYTES_MAX`] together is left in the queue. A look at many waits for a slot.
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
    /// Removes one queued event, durably. False: it is not there. A look at many waits for a slot.
    async fn queue_delete(&self, device: &CanWrite<DeviceRef>, id: EventId) -> Result<bool>;

    /// Forgets everything of a device, durably; the space comes back in the background.
    async fn forget(&self, device: &CanWrite<DeviceRef>) -> Result<()>;
    /// Forgets history that is older than `history_seconds` (whole files, never rows one by one), and idempotency keys
    /// that have expired. The clock is believed unless it is more than a day ahead of what it said at the last call and
    /// of the time since then, `running`: a clock that jumps takes nothing away. Answers what the time is as far as
    /// that is believed.
    async fn retain(&self, now: Timestamp, running: Duration, history_seconds: i64) -> Result<Timestamp>;

    /// A number for a new outbox entry: above that of every entry there is. Drawn within a run they grow from run to run
    /// of a device.
    fn outbox_number(&self) -> u64;
    /// At most `limit` outbox entries with a number above `after`, by number, with their device. They may not be
    /// durable yet: [`Telemetry::sync`] waits for that.
    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>>;
    /// Removes entries whose work is done. Not durable when it returns: after a crash some may come again.
    async fn outbox_done(&self, numbers: &[u64]) -> Result<()>;
    /// Notes, durably, why the work of an entry cannot be done, for as long as the entry is there.
    async fn outbox_park(&self, number: u64, why: &str) -> Result<()>;
    /// Returns when everything is durable that was committed before the call.
    async fn sync(&self) -> Result<()>;

    /// Checks that the store accepts writes.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] with the cause, where it has failed or is closed.
    async fn healthy(&self) -> Result<()>;
    /// Returns when the store has failed and takes no more writes, with the cause: only opening it anew helps. Whoever
    /// waits for a commit has its error by then. A store that is closed has not failed.
    async fn failed(&self) -> StoreError;
    /// Writes what waits, makes everything durable and closes; later calls fail. A second call does nothing.
    async fn close(&self) -> Result<()>;
}

/// Work that a commit left for afterwards.
#[derive(Clone, Debug)]
pub struct OutboxEntry {
    /// Its number; they only grow.
    pub number: u64,
    /// The device whose run left it.
    pub device: DeviceKey,
    /// The work, opaque to the store.
    pub work: Bytes,
    /// The reason for which it is parked, if it is.
    pub parked: Option<Arc<str>>,
}
