//! Work beside the calls, kept going whatever happens in it.
//!
//! A worker that panics is logged, counted and started again after a pause: it begins with what the stores say and with what
//! stands in the hub, where no panic leaves it half-changed. One that panics again before it has come through once is named
//! by readiness. A panic in one piece of work (a delivery, a timer, a connection) is the end of that piece alone.

#[cfg(test)]
pub(crate) mod faults;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use isobar_model::error::Fault;
use isobar_model::time::Clock;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// First pause before a worker that has panicked is started again; it doubles up to [`RESTART_PAUSE_MAX`].
const RESTART_PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest pause before it is started again.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(30);
/// After so many panics without one round in between, readiness tells of it.
const PANICS_TOLD: u32 = 3;
/// After so many tries of the same thing that have all ended in a panic, it is given up: with the pauses, after about two
/// minutes.
pub(crate) const TRIES_MAX: u32 = 12;

const RESTARTS: &str = "isobar_worker_restarts_total";
const PANICS: &str = "isobar_task_panics_total";

/// All the work beside the calls.
pub(crate) struct Supervisor {
    clock: Clock,
    workers: Mutex<JoinSet<()>>,
    standings: Mutex<Vec<Arc<Standing>>>,
    stop: watch::Sender<bool>,
}

/// How a worker stands.
struct Standing {
    worker: &'static str,
    /// Panics since it last came through.
    panics: AtomicU32,
}

/// What a worker is given each time it is started.
pub struct Shift {
    clock: Clock,
    stop: watch::Receiver<bool>,
    standing: Arc<Standing>,
}

impl Shift {
    /// The worker has come through: with a round of its work, or a piece of it.
    pub fn well(&self) {
        self.standing.panics.store(0, Ordering::Relaxed);
    }

    /// Whether the hub stops.
    pub fn ends(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the hub stops.
    pub async fn end(&mut self) {
        stopped(&mut self.stop).await;
    }

    /// Waits for so long, or less when the hub stops. True: it stops.
    pub async fn pause(&mut self, duration: Duration) -> bool {
        let clock = self.clock.clone();
        clock.timeout(duration, self.end()).await.is_ok()
    }
}

impl Supervisor {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, workers: Mutex::default(), standings: Mutex::default(), stop: watch::Sender::new(false) }
    }

    /// What is the matter with workers that do not come through.
    pub(crate) fn matters(&self) -> Vec<Fault> {
        let standings = self.standings.lock();
        let failing = standings.iter().filter(|standing| standing.panics.load(Ordering::Relaxed) >= PANICS_TOLD);
        failing.map(|standing| Fault::new(standing.worker, "fails again and again: the log tells why")).collect()
    }

    /// Becomes true when the hub stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Stops all workers and waits until they have ended. Pieces of their work end where they are: what they were about
    /// stands in a store, and is done after the next start.
    pub(crate) async fn stop(&self) {
        self.stop.send_replace(true);
        let mut workers = std::mem::take(&mut *self.workers.lock());
        while workers.join_next().await.is_some() {}
    }

    /// Has a worker work until the hub stops. It is started again whenever it panics, so it keeps nothing for itself that
    /// another one could not find in a store or in the hub; and says whenever it has come through.
    pub(crate) fn employ<F>(&self, worker: &'static str, work: impl Fn(Shift) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let kept = self.keep(worker, work);
        // Nothing of it is left that could panic unseen.
        spawn_guarded_in(&mut self.workers.lock(), worker, kept);
    }

    /// Has a worker work where this is awaited, until the hub stops; it is started again whenever it panics.
    pub(crate) fn keep<W, F>(&self, worker: &'static str, work: W) -> impl Future<Output = ()> + use<W, F>
    where
        W: Fn(Shift) -> F,
        F: Future<Output = ()>,
    {
        let standing = Arc::new(Standing { worker, panics: AtomicU32::new(0) });
        self.standings.lock().push(Arc::clone(&standing));
        let restarts = metrics::counter!(RESTARTS, "worker" => worker);
        let (clock, mut stop) = (self.clock.clone(), self.stopping());
        async move {
            loop {
                let shift = Shift { clock: clock.clone(), stop: stop.clone(), standing: Arc::clone(&standing) };
                let ended = AssertUnwindSafe(async { work(shift).await }).catch_unwind().await;
                let Err(panic) = ended else { return };
                let panics = standing.panics.fetch_add(1, Ordering::Relaxed) + 1;
                let pause = pause_after(panics);
                restarts.increment(1);
                tracing::error!(
                    worker,
                    panic = words(&*panic),
                    panics,
                    ?pause,
                    "a worker panicked and is started again"
                );
                if *stop.borrow() {
                    return;
                }
                // When the hub stops it is started once more, for what it does at the end.
                let _ = clock.timeout(pause, stopped(&mut stop)).await;
            }
        }
    }
}

/// How long to wait after so many panics.
fn pause_after(panics: u32) -> Duration {
    RESTART_PAUSE_FIRST.saturating_mul(1 << panics.saturating_sub(1).min(20)).min(RESTART_PAUSE_MAX)
}

/// Does work in which a panic is the end of nothing else: it is logged and counted. None: it panicked.
pub fn guarded<T>(task: &'static str, work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    // No `async fn`: that would keep room for the work twice, as its argument and as what it waits for.
    AssertUnwindSafe(work).catch_unwind().map(move |ended| ended.map_err(|panic| panicked(task, &*panic)).ok())
}

/// Begins work that goes on by itself. What this gives ends it where it is.
#[expect(clippy::disallowed_methods, reason = "one of the two places where a task begins")]
pub fn spawn_guarded(task: &'static str, work: impl Future<Output: Send> + Send + 'static) -> AbortHandle {
    tokio::spawn(guarded(task, work)).abort_handle()
}

/// Begins work that ends with the set.
#[expect(clippy::disallowed_methods, reason = "one of the two places where a task begins")]
pub(crate) fn spawn_guarded_in(
    tasks: &mut JoinSet<()>,
    task: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> AbortHandle {
    tasks.spawn(guarded(task, work).map(|_| ()))
}

/// A piece of work has panicked.
fn panicked(task: &'static str, panic: &(dyn Any + Send)) {
    metrics::counter!(PANICS, "task" => task).increment(1);
    tracing::error!(task, panic = words(panic), "a piece of work panicked");
}

/// Waits until `stop` becomes true.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A hub that is gone has stopped too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// What a panic says.
pub fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no text")
}

/// How often the same thing was begun and never ended, because each try panicked.
#[derive(Debug)]
pub(crate) struct Tries<K>(Mutex<Option<(K, u32)>>);

impl<K: Copy + PartialEq> Tries<K> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// A try begins; how many before it have not ended.
    pub(crate) fn begin(&self, thing: K) -> u32 {
        let mut tried = self.0.lock();
        let before = tried.filter(|(last, _)| *last == thing).map_or(0, |(_, times)| times);
        *tried = Some((thing, before + 1));
        before
    }

    /// It has ended, well or not.
    pub(crate) fn end(&self) {
        *self.0.lock() = None;
    }
}
