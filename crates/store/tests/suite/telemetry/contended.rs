//! A telemetry store of which some commits fail: with [`StoreError::Conflict`], as if another process had written first, or
//! with [`StoreError::Busy`], as if there were no room.

#![allow(dead_code, reason = "not each test that has this module uses it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use isobar_model::access::{CanRead, CanWrite};
use isobar_model::event::{Event, LastValues, StoredValue};
use isobar_model::ids::{DeviceKey, DeviceRef, EventId};
use isobar_model::page::{Page, TimeRange};
use isobar_model::retention::Kept;
use isobar_model::time::Timestamp;
use parking_lot::Mutex;

use isobar_quota::Claim;
use isobar_store::error::{Result, StoreError};
use isobar_store::telemetry::{
    Buckets, Commit, Committed, DeviceTurn, EventWriter, Followed, Following, HistoryQuery, Locked, Memory,
    OutboxChange, OutboxEntry, PositionOrder, QueueQuery, Series, SharedTelemetry, StreamCursor, StreamPiece,
    StreamPosition, Telemetry, Turn, ValueChunk, ValueCursor, ValueQuery,
};

/// Number of commits of which a share conflicts.
const COMMITS: u64 = 100;

/// A store of which some commits conflict.
pub struct Contended {
    store: Arc<dyn Telemetry>,
    chance: Arc<Chance>,
    /// Number of the next call of [`Telemetry::sync`], and of the one that fails; 0: none.
    syncs: AtomicU64,
    failing_sync: AtomicU64,
}

/// Decides which commits conflict.
struct Chance {
    seed: u64,
    /// Conflicts in [`COMMITS`] commits.
    share: AtomicU64,
    commits: AtomicU64,
    conflicts: AtomicU64,
    /// Text in payloads or work of commits that have no room; empty: none.
    refused: Mutex<String>,
}

impl Contended {
    /// Wraps a store. Of a hundred commits `share` conflict; the seed chooses them.
    pub fn new(store: Arc<dyn Telemetry>, seed: u64, share: u64) -> Self {
        let (share, commits, conflicts) = (AtomicU64::new(share), AtomicU64::new(0), AtomicU64::new(0));
        let chance = Chance { seed, share, commits, conflicts, refused: Mutex::default() };
        Self { store, chance: Arc::new(chance), syncs: AtomicU64::new(1), failing_sync: AtomicU64::new(0) }
    }

    /// Makes commits fail as if there were no room, if a payload of their history or their work has this text; none, if it
    /// is empty.
    pub fn refuse(&self, text: &str) {
        text.clone_into(&mut self.chance.refused.lock());
    }

    /// Makes one call of [`Telemetry::sync`] fail, after so many that succeed.
    pub fn fail_sync_after(&self, successes: u64) {
        self.failing_sync.store(self.syncs.load(Ordering::Relaxed) + successes, Ordering::Relaxed);
    }

    /// Changes the share of conflicts, in a hundred commits.
    pub fn set_share(&self, share: u64) {
        self.chance.share.store(share, Ordering::Relaxed);
    }

    /// Returns the number of conflicts so far.
    pub fn conflicts(&self) -> u64 {
        self.chance.conflicts.load(Ordering::Relaxed)
    }

    fn turn(&self, turn: Turn) -> Turn {
        Turn::new(ContendedTurn { turn, chance: Arc::clone(&self.chance) })
    }
}

impl Chance {
    /// Returns true if the next commit conflicts.
    fn conflicts_now(&self) -> bool {
        let commit = self.commits.fetch_add(1, Ordering::Relaxed);
        // SplitMix64: every commit has a number that looks like chance.
        let mut mixed = (self.seed ^ commit).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let conflicts = (mixed ^ mixed >> 31) % COMMITS < self.share.load(Ordering::Relaxed);
        self.conflicts.fetch_add(u64::from(conflicts), Ordering::Relaxed);
        conflicts
    }
}

impl Chance {
    /// Returns true if the commit has the text of those that are refused.
    fn refuses(&self, commit: &Commit) -> bool {
        let refused = self.refused.lock();
        let has = |bytes: &[u8]| bytes.windows(refused.len()).any(|part| part == refused.as_bytes());
        !refused.is_empty()
            && (commit.history.iter().any(|event| has(event.payload.bytes()))
                || commit.outbox.iter().any(|change| matches!(change, OutboxChange::Put { work, .. } if has(work))))
    }
}

struct ContendedTurn {
    turn: Turn,
    chance: Arc<Chance>,
}

impl DeviceTurn for ContendedTurn {
    fn memory(&self) -> &dyn Memory {
        self.turn.memory()
    }

    fn commit(&mut self, commit: Commit) -> Result<Committed> {
        match self.chance.refuses(&commit) {
            true => Err(StoreError::Busy),
            false if self.chance.conflicts_now() => Err(StoreError::Conflict),
            false => self.turn.commit(commit),
        }
    }

    fn forget(&mut self) {
        self.turn.forget();
    }
}

#[async_trait]
impl Telemetry for Contended {
    async fn lock(&self, device: &CanWrite<DeviceRef>) -> Result<Turn> {
        self.store.lock(device).await.map(|turn| self.turn(turn))
    }

    fn lock_now(&self, device: &CanWrite<DeviceRef>) -> Result<Option<Turn>> {
        Ok(self.store.lock_now(device)?.map(|turn| self.turn(turn)))
    }

    async fn lock_unless_repeated(
        &self,
        device: &CanWrite<DeviceRef>,
        idempotency_key: &str,
        now: Timestamp,
    ) -> Result<Locked> {
        Ok(match self.store.lock_unless_repeated(device, idempotency_key, now).await? {
            Locked::Turn(turn) => Locked::Turn(self.turn(turn)),
            repeated @ Locked::Repeated(_) => repeated,
        })
    }

    async fn values(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: ValueQuery,
        claim: Claim,
    ) -> Result<Option<Page<StoredValue>>> {
        self.store.values(device, element, query, claim).await
    }

    async fn values_chunk(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        query: &ValueQuery,
        cursor: Option<ValueCursor>,
        claim: Claim,
    ) -> Result<Option<ValueChunk>> {
        self.store.values_chunk(device, element, query, cursor, claim).await
    }

    async fn buckets(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        kept: &Kept,
        buckets: Buckets,
        claim: Claim,
    ) -> Result<(Buckets, bool)> {
        self.store.buckets(device, element, kept, buckets, claim).await
    }

    async fn extent(
        &self,
        device: &CanRead<DeviceRef>,
        element: &str,
        kept: &Kept,
        range: TimeRange,
        claim: Claim,
    ) -> Result<Option<(Timestamp, Timestamp)>> {
        self.store.extent(device, element, kept, range, claim).await
    }

    async fn last(&self, device: &CanRead<DeviceRef>, element: &str) -> Result<Option<LastValues>> {
        self.store.last(device, element).await
    }

    async fn series(&self, device: &CanRead<DeviceRef>) -> Result<Vec<Series>> {
        self.store.series(device).await
    }

    async fn visible_bytes(&self, device: &CanRead<DeviceRef>, kept: Vec<(Arc<str>, Kept)>) -> Result<u64> {
        self.store.visible_bytes(device, kept).await
    }

    async fn series_delete(&self, device: &CanWrite<DeviceRef>, element: Option<&str>) -> Result<bool> {
        self.store.series_delete(device, element).await
    }

    async fn series_retain(
        &self,
        device: &CanWrite<DeviceRef>,
        kept: Vec<(Arc<str>, Kept)>,
        exactly: bool,
    ) -> Result<bool> {
        self.store.series_retain(device, kept, exactly).await
    }

    async fn history(&self, device: &CanRead<DeviceRef>, query: HistoryQuery, claim: Claim) -> Result<Page<Event>> {
        self.store.history(device, query, claim).await
    }

    async fn history_event(&self, device: &CanRead<DeviceRef>, id: EventId) -> Result<Option<Event>> {
        self.store.history_event(device, id).await
    }

    async fn history_position(&self, id: EventId) -> Result<StreamPosition> {
        self.store.history_position(id).await
    }

    fn position_order(&self) -> PositionOrder {
        self.store.position_order()
    }

    async fn history_between(
        &self,
        devices: &Followed,
        after: StreamPosition,
        until: StreamPosition,
        limit: usize,
        claim: Claim,
    ) -> Result<StreamCursor> {
        self.store.history_between(devices, after, until, limit, claim).await
    }

    async fn history_next(
        &self,
        cursor: &mut StreamCursor,
        written: (usize, EventWriter),
        claim: Claim,
    ) -> Result<StreamPiece> {
        self.store.history_next(cursor, written, claim).await
    }

    fn is_followed(&self) -> bool {
        self.store.is_followed()
    }

    fn follow(&self) -> Following {
        self.store.follow()
    }

    async fn follow_from(&self, position: StreamPosition) -> Result<Following> {
        self.store.follow_from(position).await
    }

    fn newest_event(&self) -> EventId {
        self.store.newest_event()
    }

    async fn queue_peek(&self, device: &CanRead<DeviceRef>, query: QueueQuery) -> Result<Vec<Event>> {
        self.store.queue_peek(device, query).await
    }

    async fn queue_take_while(
        &self,
        device: &CanWrite<DeviceRef>,
        query: QueueQuery,
        may: Box<dyn Fn(usize) -> bool + Send>,
    ) -> Result<Option<Vec<Event>>> {
        self.store.queue_take_while(device, query, may).await
    }

    async fn queue_delete(&self, device: &CanWrite<DeviceRef>, id: EventId) -> Result<bool> {
        self.store.queue_delete(device, id).await
    }

    fn shared(&self) -> Option<&dyn SharedTelemetry> {
        self.store.shared()
    }

    fn must_reach(&self, device: DeviceKey) -> Result<()> {
        self.store.must_reach(device)
    }

    fn databases(&self) -> Vec<(u16, Arc<str>)> {
        self.store.databases()
    }

    async fn database_healthy(&self, number: u16) -> Result<()> {
        self.store.database_healthy(number).await
    }

    async fn forget(&self, device: &CanWrite<DeviceRef>) -> Result<()> {
        self.store.forget(device).await
    }

    async fn retain(&self, now: Timestamp, running: Duration, history_seconds: i64) -> Result<Timestamp> {
        self.store.retain(now, running, history_seconds).await
    }

    fn outbox_number(&self) -> u64 {
        self.store.outbox_number()
    }

    async fn outbox(&self, after: u64, limit: usize) -> Result<Vec<OutboxEntry>> {
        self.store.outbox(after, limit).await
    }

    async fn outbox_done(&self, done: &[(DeviceKey, u64)]) -> Result<Vec<(DeviceKey, u64)>> {
        self.store.outbox_done(done).await
    }

    async fn outbox_park(&self, device: DeviceKey, number: u64, why: &str) -> Result<()> {
        self.store.outbox_park(device, number, why).await
    }

    async fn sync(&self) -> Result<()> {
        if self.syncs.fetch_add(1, Ordering::Relaxed) == self.failing_sync.load(Ordering::Relaxed) {
            return Err(StoreError::Busy);
        }
        self.store.sync().await
    }

    fn stalled_streams(&self) -> Vec<(u16, Duration)> {
        self.store.stalled_streams()
    }

    async fn healthy(&self) -> Result<()> {
        self.store.healthy().await
    }

    async fn failed(&self) -> StoreError {
        self.store.failed().await
    }

    async fn close(&self) -> Result<()> {
        self.store.close().await
    }
}
