//! The one writer: it drains what waits, puts it all in one batch and applies it; a second thread makes what was applied
//! durable while the next batch is applied, and only then are the waiting told.
//!
//! Commits are applied in the order in which they were sent, and get growing tickets in that order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use isobar_threads::let_others_finish;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rocksdb::{DB, WriteBatch, WriteOptions};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::durability::Note;
use super::engine;
use super::followers::Followers;
use super::gathered::{BYTES_FOR_ALL, CommitRows, Gathered, Tenant};
use super::keys::{self, Family};
use super::places::Placed;
use super::rows::{Change, Rows};
use super::threads::{SYNCER, WRITER, Watched};
use crate::error::{Result, StoreError};
use crate::telemetry::durable::Tickets;
use crate::telemetry::{Durable, Following, Place};

/// Commits that may wait; more are refused.
pub const WAITING_COMMITS_MAX: usize = 16_384;
/// Commits after which a writer that rests is woken at once; for fewer it is woken when those who serve have dealt with
/// everything that came at the same time.
const COMMITS_WAKE: usize = 32;
/// Commits of one batch.
const BATCH_COMMITS_MAX: usize = 1_024;
/// Bytes after which a batch takes no more commits.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Applied batches that may wait to be synced.
const UNSYNCED_BATCHES_MAX: usize = 2;
/// A write that takes longer counts as a stall.
const STALL: Duration = Duration::from_millis(50);

#[derive(Default)]
struct Waiting {
    gathered: Gathered,
    /// Tickets handed out so far.
    tickets: u64,
    closed: bool,
    rest: Rest,
}

/// Whether the writer waits for commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    /// It looks for more by itself.
    #[default]
    Awake,
    /// It must be woken.
    Resting,
    /// It will be woken soon.
    WakesSoon,
}

/// Why the store takes no more writes.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
struct Failure(Arc<str>);

/// What callers, the writer and the syncer share.
pub struct Shared {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    reserved: AtomicUsize,
    /// Bytes of the rows that wait, to be looked at without the lock.
    bytes: AtomicUsize,
    /// The newest ticket whose rows can be read.
    applied: Mutex<u64>,
    applied_more: Condvar,
    /// Which tickets' rows are durable.
    tickets: Arc<Tickets>,
    /// Who is shown events once they are durable.
    pub followers: Followers,
    /// The next free series number.
    series: AtomicU64,
    failed: AtomicBool,
    /// Why, if it failed and was not closed.
    failure: watch::Sender<Option<Failure>>,
    /// The thread that shall panic next.
    #[cfg(test)]
    pub panics: Mutex<Option<&'static str>>,
}

/// A place in the queue.
pub struct Permit<'a> {
    shared: &'a Arc<Shared>,
    tenant: Tenant,
}

/// A commit on its way.
pub struct Sent {
    /// Its ticket.
    pub ticket: u64,
    /// Done when it is durable.
    pub durable: Durable,
}

impl Shared {
    /// A writer's shared part, with the counters as the database has them.
    pub fn new(series: u64, place: Place) -> Self {
        Self {
            waiting: Mutex::default(),
            wake: Condvar::new(),
            reserved: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            applied: Mutex::new(0),
            applied_more: Condvar::new(),
            tickets: Arc::default(),
            followers: Followers::new(place),
            series: AtomicU64::new(series),
            failed: AtomicBool::new(false),
            failure: watch::Sender::new(None),
            #[cfg(test)]
            panics: Mutex::default(),
        }
    }

    /// Whether writes are taken.
    pub fn healthy(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let failure = self.failure.borrow().clone();
        Err(StoreError::unavailable(failure.unwrap_or_else(|| Failure("the store is closed".into()))))
    }

    /// Done when the store has failed: why. A store that is closed has not.
    pub async fn failed(&self) -> StoreError {
        let mut failure = self.failure.subscribe();
        // Its sender is ours, and is there as long as we are.
        let failure = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        StoreError::unavailable(failure.unwrap_or_else(|| Failure("the store is gone".into())))
    }

    /// Where a test makes a thread panic.
    #[cfg(test)]
    pub fn may_panic(&self, thread: &'static str) {
        let told = self.panics.lock().take_if(|panics| *panics == thread);
        assert!(told.is_none(), "{thread} panics, as the test asked for");
    }

    /// A place in the queue for a tenant, before anything is changed in memory. [`StoreError::Busy`] where too many commits
    /// wait, or too many bytes of this tenant's.
    pub fn reserve(self: &Arc<Self>, tenant: Tenant) -> Result<Permit<'_>> {
        self.healthy()?;
        let waiting = self.reserved.fetch_add(1, Ordering::AcqRel);
        let permit = Permit { shared: self, tenant };
        let has_room =
            || self.bytes.load(Ordering::Relaxed) <= BYTES_FOR_ALL || self.waiting.lock().gathered.has_room(tenant);
        if waiting < WAITING_COMMITS_MAX && has_room() {
            return Ok(permit);
        }
        metrics::counter!("isobar_telemetry_refused_total").increment(1);
        Err(StoreError::Busy)
    }

    /// The newest durable ticket.
    pub fn durable(&self) -> u64 {
        self.tickets.durable()
    }

    /// Done when all that was sent so far is durable.
    pub fn everything_durable(&self) -> Durable {
        let newest = self.waiting.lock().tickets;
        self.tickets.wait_beside(newest)
    }

    /// A number for a new series.
    pub fn new_series(&self) -> u64 {
        self.series.fetch_add(1, Ordering::AcqRel)
    }

    /// Somebody follows events as they become durable.
    pub fn follow(&self) -> Following {
        // No commit is sent meanwhile: each is told of or known to be missed.
        let waiting = self.waiting.lock();
        self.followers.follow(waiting.tickets)
    }

    /// Waits on this thread until the rows of a ticket can be read.
    pub fn wait_applied(&self, ticket: u64) -> Result<()> {
        let mut applied = self.applied.lock();
        while *applied < ticket {
            self.healthy()?;
            self.applied_more.wait(&mut applied);
        }
        Ok(())
    }

    /// Wakes the writer when this thread's runtime has gone through everything that is ready now: its commits then make
    /// one batch, and it is not interrupted by the writer after each.
    fn wake_soon(self: &Arc<Self>, mut waiting: MutexGuard<'_, Waiting>) {
        let Ok(runtime) = Handle::try_current() else { return self.wake_now(waiting) };
        waiting.rest = Rest::WakesSoon;
        drop(waiting);
        let shared = Arc::clone(self);
        runtime.spawn(async move {
            tokio::task::yield_now().await;
            shared.wake_now(shared.waiting.lock());
        });
    }

    fn wake_now(&self, mut waiting: MutexGuard<'_, Waiting>) {
        if waiting.rest != Rest::Awake && !waiting.gathered.commits().is_empty() {
            waiting.rest = Rest::Awake;
            drop(waiting);
            self.wake.notify_one();
        }
    }

    /// No more commits are taken; those that wait are still written.
    pub fn close(&self) {
        self.waiting.lock().closed = true;
        self.wake.notify_all();
    }

    /// The store takes no more writes: what was written last may be on the disk or not, and nobody can say which.
    pub fn fail(&self, cause: &str) {
        tracing::error!(cause, "the telemetry store failed and takes no more writes");
        self.failed.store(true, Ordering::Release);
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            failure.get_or_insert_with(|| Failure(cause.into()));
            is_first
        });
        self.stop();
    }

    /// Ends everything that waits; nothing is acknowledged afterwards.
    fn stop(&self) {
        self.failed.store(true, Ordering::Release);
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.gathered.clear();
        self.bytes.store(0, Ordering::Relaxed);
        drop(waiting);
        self.tickets.end();
        // Under the lock, so that nobody misses it between looking and waiting.
        let _applied = self.applied.lock();
        self.applied_more.notify_all();
        self.wake.notify_all();
    }
}

impl Permit<'_> {
    /// Sends a commit. In order: what is sent earlier is applied earlier.
    pub fn send(self, rows: &Rows) -> Sent {
        let shared = self.shared;
        let mut waiting = shared.waiting.lock();
        waiting.tickets += 1;
        let ticket = waiting.tickets;
        if !waiting.closed {
            waiting.gathered.push(rows, self.tenant);
            shared.bytes.store(waiting.gathered.bytes(), Ordering::Relaxed);
            if rows.has_events && shared.followers.is_any() {
                shared.followers.expect(ticket, rows.shown.clone());
            }
            // The writer takes over the reservation.
            std::mem::forget(self);
            if waiting.gathered.commits().len() >= COMMITS_WAKE {
                shared.wake_now(waiting);
            } else if waiting.rest == Rest::Resting {
                shared.wake_soon(waiting);
            }
        }
        Sent { ticket, durable: shared.tickets.wait(ticket) }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.shared.reserved.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A batch that was applied and waits to be synced.
struct Applied {
    ticket: u64,
    placed: Placed,
    /// The newest sequence number of the database right after it: what is synced then holds everything up to it.
    sequence: u64,
}

/// The two threads.
pub struct Writer {
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl Writer {
    /// Starts them. What they make durable is noted.
    pub fn start(db: &Arc<DB>, shared: &Arc<Shared>, note: &Arc<Note>, place: Place) -> Result<Self> {
        let (applied, to_sync) = sync_channel(UNSYNCED_BATCHES_MAX);
        let writing = Writing { db: db.clone(), shared: shared.clone(), applied, ticket: 0, place };
        let (db, syncing, note) = (db.clone(), shared.clone(), note.clone());
        let spawn = |thread: &'static str, work: Box<dyn FnOnce() + Send>| {
            let shared = shared.clone();
            let watched = move || {
                let _watched = Watched { shared: &shared, thread };
                work();
            };
            std::thread::Builder::new().name(thread.to_owned()).spawn(watched).map_err(StoreError::unavailable)
        };
        Ok(Self {
            threads: vec![
                spawn(WRITER, Box::new(move || writing.run()))?,
                spawn(SYNCER, Box::new(move || sync(&db, &syncing, &note, &to_sync)))?,
            ],
            shared: shared.clone(),
        })
    }

    /// Writes what waits and ends the threads.
    pub fn join(&mut self) {
        self.shared.close();
        // One that panicked has failed the store.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        self.shared.stop();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.join();
    }
}

struct Writing {
    db: Arc<DB>,
    shared: Arc<Shared>,
    applied: SyncSender<Applied>,
    ticket: u64,
    /// The place that the events written so far end at.
    place: Place,
}

/// A row of a batch: family, first bytes of the key, position among the batch's rows.
type Spot = (u8, u64, u32);

impl Writing {
    fn run(mut self) {
        let_others_finish();
        let options = WriteOptions::default();
        let mut gathered = Gathered::default();
        while self.next_commits(&mut gathered) {
            let mut rest = gathered.commits();
            while !rest.is_empty() {
                let (batch, later) = rest.split_at(batch_length(rest));
                rest = later;
                if let Err(cause) = self.write(&gathered, batch, &options) {
                    return self.shared.fail(&cause);
                }
            }
            gathered.clear();
        }
    }

    /// Waits for commits. False: there will be none.
    fn next_commits(&self, gathered: &mut Gathered) -> bool {
        let mut waiting = self.shared.waiting.lock();
        while waiting.gathered.commits().is_empty() {
            if waiting.closed {
                return false;
            }
            waiting.rest = Rest::Resting;
            self.shared.wake.wait(&mut waiting);
        }
        waiting.rest = Rest::Awake;
        std::mem::swap(&mut waiting.gathered, gathered);
        self.shared.bytes.store(0, Ordering::Relaxed);
        drop(waiting);
        metrics::gauge!("isobar_telemetry_waiting_commits").set(gathered.commits().len() as f64);
        true
    }

    fn write(
        &mut self,
        gathered: &Gathered,
        commits: &[CommitRows],
        options: &WriteOptions,
    ) -> std::result::Result<(), String> {
        self.shared.reserved.fetch_sub(commits.len(), Ordering::AcqRel);
        metrics::histogram!("isobar_telemetry_batch_commits").record(commits.len() as f64);
        #[cfg(test)]
        self.shared.may_panic(WRITER);
        let (batch, placed) = self.batch(gathered, commits).map_err(|error| error.to_string())?;
        let start = Instant::now();
        self.db.write_opt(batch, options).map_err(rocksdb::Error::into_string)?;
        if start.elapsed() > STALL {
            metrics::counter!("isobar_telemetry_stalls_total").increment(1);
        }
        self.ticket += commits.len() as u64;
        *self.shared.applied.lock() = self.ticket;
        self.shared.applied_more.notify_all();
        self.place = placed.end;
        // Others write beside us, but what has a number by now is in the log by now.
        let sequence = self.db.latest_sequence_number();
        let applied = Applied { ticket: self.ticket, sequence, placed };
        self.applied.send(applied).map_err(|_| "the syncing thread ended".to_owned())
    }

    /// One batch of all rows. Sorted: neighbours are then inserted next to each other, which is faster.
    fn batch(&mut self, gathered: &Gathered, commits: &[CommitRows]) -> Result<(WriteBatch, Placed)> {
        let mut rows = Vec::with_capacity(commits.len() * 4);
        rows.extend(commits.iter().flat_map(|commit| gathered.rows(commit)));
        let bytes: usize = commits.iter().map(CommitRows::size).sum();
        let mut batch = WriteBatch::with_capacity_bytes(bytes + rows.len() * 4 + 64);
        let families = engine::families(&self.db)?;
        let mut spots: Vec<Spot> = Vec::with_capacity(rows.len());
        let mut placed = Placed::after(self.place);
        let mut from = 0;
        // A range's removal stays where it is among the other rows.
        for part in rows.split_inclusive(|row| row.change == Change::DeleteRange) {
            spots.clear();
            spots.extend(part.iter().enumerate().map(|(at, row)| {
                let last = row.change == Change::DeleteRange;
                (if last { u8::MAX } else { row.family }, prefix(row.key), (from + at) as u32)
            }));
            spots.sort_unstable();
            // Before the rows of the part: a range's removal, which is its last, is for those of late events too.
            let events = spots.iter().map(|(.., at)| &rows[*at as usize]).filter(|row| row.is_event());
            placed.take(events, &families, &mut batch)?;
            for (_, _, at) in &spots {
                let row = &rows[*at as usize];
                let family = families[usize::from(row.family)];
                match row.change {
                    Change::Put => batch.put_cf(family, row.key, row.value),
                    Change::Delete => batch.delete_cf(family, row.key),
                    Change::DeleteRange => batch.delete_range_cf(family, row.key, row.value),
                }
            }
            from += part.len();
        }
        let meta = families[Family::Meta as usize];
        if commits.iter().any(|commit| commit.creates) {
            // At or above every number in this batch, for they were drawn before it was sent.
            batch.put_cf(meta, keys::META_SERIES, self.shared.series.load(Ordering::Acquire).to_be_bytes());
        }
        placed.finish(&families, &mut batch);
        self.shared.followers.come_late(&placed);
        Ok((batch, placed))
    }
}

/// How many of these commits make the next batch: at least one.
fn batch_length(commits: &[CommitRows]) -> usize {
    let sizes = commits.iter().take(BATCH_COMMITS_MAX).scan(0, |bytes, commit| {
        let before = *bytes;
        *bytes += commit.size();
        Some(before)
    });
    sizes.take_while(|before| *before < BATCH_BYTES_MAX).count()
}

/// The first bytes of a key as a number: enough to sort by.
fn prefix(key: &[u8]) -> u64 {
    key.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn sync(db: &DB, shared: &Shared, note: &Note, applied: &Receiver<Applied>) {
    let_others_finish();
    while let Ok(first) = applied.recv() {
        let mut batches = SmallVec::<[Applied; UNSYNCED_BATCHES_MAX + 1]>::new();
        batches.push(first);
        batches.extend(applied.try_iter());
        let start = Instant::now();
        #[cfg(test)]
        shared.may_panic(SYNCER);
        if let Err(error) = db.flush_wal(true) {
            return shared.fail(&error.into_string());
        }
        metrics::histogram!("isobar_telemetry_sync_seconds").record(start.elapsed().as_secs_f64());
        if shared.failed.load(Ordering::Acquire) {
            return;
        }
        // Before anybody is told: what is acknowledged is noted, whatever ends the process.
        if let Some(newest) = batches.last()
            && let Err(error) = note.is_durable(newest.sequence)
        {
            return shared.fail(&format!("what is durable cannot be noted: {error}"));
        }
        for batch in &batches {
            shared.followers.reach(batch.ticket, &batch.placed);
        }
        if let Some(newest) = batches.last() {
            shared.tickets.reached(newest.ticket);
        }
    }
}
