//! Queues commits between their senders and the single writer, and shares the writer's progress: the readable tickets,
//! the durable tickets, and a failure of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use isobar_quota::{LimitMeter, limits};
use isobar_threads::gives_way;
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::followers::Followers;
use super::gathered::{BYTES_FOR_ALL, Gathered, Tenant};
use super::rows::Rows;
use crate::error::{Result, StoreError};
use crate::telemetry::durable::Tickets;
use crate::telemetry::{Durable, Following, StreamPosition};

/// Bounds the commits in the queue; more are refused.
pub const WAITING_COMMITS_MAX: usize = 16_384;
/// Number of commits at which a resting writer is woken at once; with fewer it is woken when the serving threads have
/// handled everything that arrived at the same time.
const COMMITS_WAKE: usize = 32;

/// Commits that wait for the writer.
#[derive(Default)]
struct CommitQueue {
    gathered: Gathered,
    /// Tickets assigned so far.
    tickets: u64,
    closed: bool,
    rest: Rest,
}

/// State of the writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    /// The writer looks for commits by itself.
    #[default]
    Awake,
    /// The writer must be woken.
    Resting,
    /// A task will wake the writer soon.
    WakesSoon,
}

/// Cause of the store's refusal of writes.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
struct WriteFailure(Arc<str>);

/// State that callers, the writer and the syncer share.
pub struct Shared {
    waiting: Mutex<CommitQueue>,
    wake: Condvar,
    reserved: AtomicUsize,
    /// Bytes of the queued rows, readable without the lock.
    bytes: AtomicUsize,
    meter: LimitMeter,
    /// Newest ticket whose rows are readable.
    applied: Mutex<u64>,
    applied_more: Condvar,
    /// Durability by tickets.
    tickets: Arc<Tickets>,
    /// Followers, who receive events once they are durable.
    pub followers: Followers,
    /// Next free series number.
    series: AtomicU64,
    failed: AtomicBool,
    /// Cause of a failure; `None` if the store was closed.
    failure: watch::Sender<Option<WriteFailure>>,
    /// Thread that a test makes panic next.
    #[cfg(test)]
    pub panics: Mutex<Option<&'static str>>,
}

/// Reserved place for one commit in the queue.
pub struct Reservation {
    shared: Arc<Shared>,
    tenant: Tenant,
    /// False once the writer gives the place back.
    holds_place: bool,
}

/// Commit that was sent.
pub struct Sent {
    /// Ticket.
    pub ticket: u64,
    /// Bytes of its rows.
    pub bytes: usize,
    /// Handle that completes when the commit is durable.
    pub durable: Durable,
}

impl Shared {
    /// Creates the shared state, with the counters in the database.
    pub fn new(series: u64, position: StreamPosition) -> Self {
        Self {
            waiting: Mutex::default(),
            wake: Condvar::new(),
            reserved: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            meter: LimitMeter::new(&limits::COMMIT_BYTES),
            applied: Mutex::new(0),
            applied_more: Condvar::new(),
            tickets: Arc::default(),
            followers: Followers::new(position),
            series: AtomicU64::new(series),
            failed: AtomicBool::new(false),
            failure: watch::Sender::new(None),
            #[cfg(test)]
            panics: Mutex::default(),
        }
    }

    /// Returns `Ok` if writes are accepted.
    pub fn healthy(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let failure = self.failure.borrow().clone();
        Err(StoreError::unavailable(failure.unwrap_or_else(|| WriteFailure("the store is closed".into()))))
    }

    /// Returns the cause when the store has failed. Never returns for a store that is closed.
    pub async fn failed(&self) -> StoreError {
        let mut failure = self.failure.subscribe();
        // The sender is part of `self` and lives as long.
        let failure = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        StoreError::unavailable(failure.unwrap_or_else(|| WriteFailure("the store is gone".into())))
    }

    /// Panics if a test has asked this thread to.
    #[cfg(test)]
    pub fn may_panic(&self, thread: &'static str) {
        let asked = self.panics.lock().take_if(|panics| *panics == thread);
        assert!(asked.is_none(), "{thread} panics, as the test asked for");
    }

    /// Reserves a place for one commit of a tenant, before anything is changed in memory. Answers [`StoreError::Busy`]
    /// if too many commits are queued, or too many bytes of this tenant.
    pub fn reserve(self: &Arc<Self>, tenant: Tenant) -> Result<Reservation> {
        self.healthy()?;
        let waiting = self.reserved.fetch_add(1, Ordering::AcqRel);
        let reservation = Reservation { shared: Arc::clone(self), tenant, holds_place: true };
        let has_room =
            || self.bytes.load(Ordering::Relaxed) <= BYTES_FOR_ALL || self.waiting.lock().gathered.has_room(tenant);
        let too_many = waiting >= WAITING_COMMITS_MAX;
        if !too_many && has_room() {
            return Ok(reservation);
        }
        metrics::counter!("isobar_telemetry_refused_total").increment(1);
        Err(if too_many { StoreError::Busy } else { self.meter.refuse().into() })
    }

    /// Returns the newest durable ticket.
    pub fn durable(&self) -> u64 {
        self.tickets.durable()
    }

    /// Returns a handle that completes when all commits sent so far are durable.
    pub fn everything_durable(&self) -> Durable {
        let newest = self.waiting.lock().tickets;
        self.tickets.wait(newest)
    }

    /// Blocks until commits are queued and takes them all; `gathered` must be empty. Returns false if there will be
    /// none any more.
    pub fn take_waiting(&self, gathered: &mut Gathered) -> bool {
        let mut waiting = self.waiting.lock();
        while waiting.gathered.commits().is_empty() {
            if waiting.closed {
                return false;
            }
            waiting.rest = Rest::Resting;
            self.wake.wait(&mut waiting);
        }
        waiting.rest = Rest::Awake;
        std::mem::swap(&mut waiting.gathered, gathered);
        self.bytes.store(0, Ordering::Relaxed);
        drop(waiting);
        self.meter.set_used(gathered.bytes());
        true
    }

    /// Releases the places of commits that have left the queue.
    pub fn release(&self, commits: usize) {
        self.reserved.fetch_sub(commits, Ordering::AcqRel);
    }

    /// Records that the rows of all commits up to this ticket are readable.
    pub fn set_applied(&self, ticket: u64) {
        *self.applied.lock() = ticket;
        self.applied_more.notify_all();
    }

    /// Records that the rows of all commits up to this ticket are durable, and wakes the waiters.
    pub fn set_durable(&self, ticket: u64) {
        self.tickets.reached(ticket);
    }

    /// Returns the next series number, which is above all assigned ones.
    pub fn next_series(&self) -> u64 {
        self.series.load(Ordering::Acquire)
    }

    /// Assigns a number to a new series.
    pub fn new_series(&self) -> u64 {
        self.series.fetch_add(1, Ordering::AcqRel)
    }

    /// Registers a follower of events that become durable.
    pub fn follow(&self) -> Following {
        // The lock keeps commits from being sent meanwhile: each is either sent to the follower or known to be missing.
        let waiting = self.waiting.lock();
        self.followers.follow(waiting.tickets)
    }

    /// Blocks until the rows of a ticket are readable.
    pub fn wait_applied(&self, ticket: u64) -> Result<()> {
        let mut applied = self.applied.lock();
        while *applied < ticket {
            self.healthy()?;
            self.applied_more.wait(&mut applied);
        }
        Ok(())
    }

    /// Wakes the writer when this thread's runtime has run everything that is ready now: its commits then make one
    /// batch, and the writer does not interrupt it after each. A thread for long work wakes it at once: the commits of
    /// others would wait until that thread has done what it has in hand.
    fn wake_soon(self: &Arc<Self>, mut waiting: MutexGuard<'_, CommitQueue>) {
        let runtime = Handle::try_current().ok().filter(|_| !gives_way());
        let Some(runtime) = runtime else { return self.wake_now(waiting) };
        waiting.rest = Rest::WakesSoon;
        drop(waiting);
        let shared = Arc::clone(self);
        runtime.spawn(async move {
            tokio::task::yield_now().await;
            shared.wake_now(shared.waiting.lock());
        });
    }

    fn wake_now(&self, mut waiting: MutexGuard<'_, CommitQueue>) {
        if waiting.rest != Rest::Awake && !waiting.gathered.commits().is_empty() {
            waiting.rest = Rest::Awake;
            drop(waiting);
            self.wake.notify_one();
        }
    }

    /// Closes the queue: further commits are refused; queued ones are still written.
    pub fn close(&self) {
        self.waiting.lock().closed = true;
        self.wake.notify_all();
    }

    /// Records a failure: no more writes are accepted, because it is unknown if the last ones are on disk.
    pub fn fail(&self, cause: &str) {
        tracing::error!(cause, "the telemetry store failed and takes no more writes");
        self.failed.store(true, Ordering::Release);
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            failure.get_or_insert_with(|| WriteFailure(cause.into()));
            is_first
        });
        self.stop();
    }

    /// Ends all waiters; nothing is acknowledged afterwards.
    pub fn stop(&self) {
        self.failed.store(true, Ordering::Release);
        let mut waiting = self.waiting.lock();
        waiting.closed = true;
        waiting.gathered.clear();
        self.bytes.store(0, Ordering::Relaxed);
        drop(waiting);
        self.tickets.end();
        // Notify under the lock, so that no waiter misses it between checking and waiting.
        let _applied = self.applied.lock();
        self.applied_more.notify_all();
        self.wake.notify_all();
    }
}

impl Reservation {
    /// Sends a commit. Commits are applied in the order in which they are sent.
    pub fn send(mut self, rows: &Rows) -> Sent {
        let shared = &self.shared;
        let mut waiting = shared.waiting.lock();
        waiting.tickets += 1;
        let ticket = waiting.tickets;
        if !waiting.closed {
            waiting.gathered.push(rows, self.tenant);
            shared.bytes.store(waiting.gathered.bytes(), Ordering::Relaxed);
            if rows.has_events && shared.followers.is_any() {
                shared.followers.expect(ticket, rows.streamed.clone());
            }
            // The writer takes over the reservation.
            self.holds_place = false;
            if waiting.gathered.commits().len() >= COMMITS_WAKE {
                shared.wake_now(waiting);
            } else if waiting.rest == Rest::Resting {
                shared.wake_soon(waiting);
            }
        }
        Sent { ticket, bytes: rows.bytes().len(), durable: shared.tickets.wait(ticket) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.holds_place {
            self.shared.reserved.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use isobar_threads::{NICENESS, give_way};

    use crate::given::{at, device, id, storing};
    use crate::telemetry::embedded::{Embedded, Options};
    use crate::telemetry::{Locked, Telemetry};

    #[tokio::test]
    async fn commit_of_a_thread_for_long_work_is_durable_while_that_thread_is_busy() {
        let (folder, device) = (tempfile::tempdir().unwrap(), device());
        let store = std::sync::Arc::new(Embedded::open(folder.path(), Options::default()).unwrap());
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let pool = builder.worker_threads(1).on_thread_start(|| give_way(NICENESS)).build().unwrap();
        for n in 0..20 {
            let (tell, told) = tokio::sync::oneshot::channel();
            let (end_work, work) = std::sync::mpsc::channel::<()>();
            let (store, device) = (std::sync::Arc::clone(&store), device.clone());
            let run = pool.spawn(async move {
                let store: &dyn Telemetry = &*store;
                let locked = store.turn_unless_repeated(&device, None, at(0)).await.unwrap();
                let Locked::Turn(mut turn) = locked else { return };
                let committed = turn.commit(storing(id(n), &[("log", "1")])).unwrap();
                tell.send(committed.durable).unwrap();
                // The next run of the thread.
                work.recv().unwrap();
            });
            told.await.unwrap().wait().await.unwrap();
            end_work.send(()).unwrap();
            run.await.unwrap();
        }
        pool.shutdown_background();
        store.close().await.unwrap();
    }
}
