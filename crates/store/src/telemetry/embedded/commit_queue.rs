//! The queue of commits between those who send them and the one writer, and what all of them know of its progress: which
//! tickets can be read, which are durable, and whether the store has failed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::followers::Followers;
use super::gathered::{BYTES_FOR_ALL, Gathered, Tenant};
use super::rows::Rows;
use crate::error::{Result, StoreError};
use crate::telemetry::durable::Tickets;
use crate::telemetry::{Durable, Following, StreamPosition};

/// Commits that may wait; more are refused.
pub const WAITING_COMMITS_MAX: usize = 16_384;
/// Commits after which a writer that rests is woken at once; for fewer it is woken when those who serve have dealt with
/// everything that came at the same time.
const COMMITS_WAKE: usize = 32;

/// What waits for the writer.
#[derive(Default)]
struct CommitQueue {
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
struct WriteFailure(Arc<str>);

/// What callers, the writer and the syncer share.
pub struct Shared {
    waiting: Mutex<CommitQueue>,
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
    failure: watch::Sender<Option<WriteFailure>>,
    /// The thread that shall panic next.
    #[cfg(test)]
    pub panics: Mutex<Option<&'static str>>,
}

/// Room for one commit in the queue.
pub struct Reservation<'a> {
    shared: &'a Arc<Shared>,
    tenant: Tenant,
}

/// A commit on its way.
pub struct Sent {
    /// Its ticket.
    pub ticket: u64,
    /// Bytes of its rows.
    pub bytes: usize,
    /// Done when it is durable.
    pub durable: Durable,
}

impl Shared {
    /// A writer's shared part, with the counters as the database has them.
    pub fn new(series: u64, position: StreamPosition) -> Self {
        Self {
            waiting: Mutex::default(),
            wake: Condvar::new(),
            reserved: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
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

    /// Whether writes are taken.
    pub fn healthy(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let failure = self.failure.borrow().clone();
        Err(StoreError::unavailable(failure.unwrap_or_else(|| WriteFailure("the store is closed".into()))))
    }

    /// Done when the store has failed: why. A store that is closed has not.
    pub async fn failed(&self) -> StoreError {
        let mut failure = self.failure.subscribe();
        // Its sender is ours, and is there as long as we are.
        let failure = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
        StoreError::unavailable(failure.unwrap_or_else(|| WriteFailure("the store is gone".into())))
    }

    /// Where a test makes a thread panic.
    #[cfg(test)]
    pub fn may_panic(&self, thread: &'static str) {
        let asked = self.panics.lock().take_if(|panics| *panics == thread);
        assert!(asked.is_none(), "{thread} panics, as the test asked for");
    }

    /// Room for one commit of a tenant in the queue, before anything is changed in memory. [`StoreError::Busy`] where too many
    /// commits wait, or too many bytes of this tenant's.
    pub fn reserve(self: &Arc<Self>, tenant: Tenant) -> Result<Reservation<'_>> {
        self.healthy()?;
        let waiting = self.reserved.fetch_add(1, Ordering::AcqRel);
        let reservation = Reservation { shared: self, tenant };
        let has_room =
            || self.bytes.load(Ordering::Relaxed) <= BYTES_FOR_ALL || self.waiting.lock().gathered.has_room(tenant);
        if waiting < WAITING_COMMITS_MAX && has_room() {
            return Ok(reservation);
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
        self.tickets.wait(newest)
    }

    /// Waits on this thread for commits and takes them all; `gathered` must be empty. False: there will be none any more.
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
        true
    }

    /// So many commits have left the queue.
    pub fn release(&self, commits: usize) {
        self.reserved.fetch_sub(commits, Ordering::AcqRel);
    }

    /// The rows of all commits up to that ticket can be read.
    pub fn set_applied(&self, ticket: u64) {
        *self.applied.lock() = ticket;
        self.applied_more.notify_all();
    }

    /// The rows of all commits up to that ticket are durable: wakes whoever waits for one of them.
    pub fn set_durable(&self, ticket: u64) {
        self.tickets.reached(ticket);
    }

    /// The number of the next new series: above all that were given out.
    pub fn next_series(&self) -> u64 {
        self.series.load(Ordering::Acquire)
    }

    /// A number for a new series.
    pub fn new_series(&self) -> u64 {
        self.series.fetch_add(1, Ordering::AcqRel)
    }

    /// Somebody follows events as they become durable.
    pub fn follow(&self) -> Following {
        // No commit is sent meanwhile: each is either sent to the follower or known to be missing.
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
    fn wake_soon(self: &Arc<Self>, mut waiting: MutexGuard<'_, CommitQueue>) {
        let Ok(runtime) = Handle::try_current() else { return self.wake_now(waiting) };
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
            failure.get_or_insert_with(|| WriteFailure(cause.into()));
            is_first
        });
        self.stop();
    }

    /// Ends everything that waits; nothing is acknowledged afterwards.
    pub fn stop(&self) {
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

impl Reservation<'_> {
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
                shared.followers.expect(ticket, rows.streamed.clone());
            }
            // The writer takes over the reservation.
            std::mem::forget(self);
            if waiting.gathered.commits().len() >= COMMITS_WAKE {
                shared.wake_now(waiting);
            } else if waiting.rest == Rest::Resting {
                shared.wake_soon(waiting);
            }
        }
        Sent { ticket, bytes: rows.bytes().len(), durable: shared.tickets.wait(ticket) }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.shared.reserved.fetch_sub(1, Ordering::AcqRel);
    }
}
