//! Supervises background work, and restarts it whatever happens in it.
//!
//! A worker that panics is logged, counted and restarted after a pause: it begins with the state of the stores and of
//! the hub, which no panic leaves half-changed. Readiness names a worker that panics repeatedly without completing a
//! round. A panic in one piece of work (a delivery, a timer, a connection) ends only that piece.

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

/// First pause before a worker is restarted after a panic; it doubles up to [`RESTART_PAUSE_MAX`].
const RESTART_PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Longest pause before a worker is restarted.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Panics of a worker without a completed round after which readiness reports it.
const PANICS_TOLD: u32 = 3;
/// Attempts of the same work, all ended by a panic, after which it is dropped: with the pauses, after about two
/// minutes.
pub(crate) const TRIES_MAX: u32 = 12;

const RESTARTS: &str = "isobar_worker_restarts_total";
const PANICS: &str = "isobar_task_panics_total";

/// Runs all background workers.
pub(crate) struct Supervisor {
    clock: Clock,
    workers: Mutex<JoinSet<()>>,
    standings: Mutex<Vec<Arc<Standing>>>,
    stop: watch::Sender<bool>,
}

/// The health of a worker.
struct Standing {
    worker: &'static str,
    /// Panics since its last completed round.
    panics: AtomicU32,
}

/// The handle that a worker gets at each start.
pub struct Shift {
    clock: Clock,
    stop: watch::Receiver<bool>,
    standing: Arc<Standing>,
}

impl Shift {
    /// Reports that the worker has completed a round of its work, or a piece of it.
    pub fn well(&self) {
        self.standing.panics.store(0, Ordering::Relaxed);
    }

    /// Returns true if the hub stops.
    pub fn ends(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits until the hub stops.
    pub async fn end(&mut self) {
        stopped(&mut self.stop).await;
    }

    /// Waits for this long, or until the hub stops. Returns true if it stops.
    pub async fn pause(&mut self, duration: Duration) -> bool {
        let clock = self.clock.clone();
        clock.timeout(duration, self.end()).await.is_ok()
    }
}

impl Supervisor {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, workers: Mutex::default(), standings: Mutex::default(), stop: watch::Sender::new(false) }
    }

    /// Returns the faults of workers that keep panicking.
    pub(crate) fn matters(&self) -> Vec<Fault> {
        let standings = self.standings.lock();
        let failing = standings.iter().filter(|standing| standing.panics.load(Ordering::Relaxed) >= PANICS_TOLD);
        failing.map(|standing| Fault::new(standing.worker, "fails again and again: the log tells why")).collect()
    }

    /// Returns a receiver that becomes true when the hub stops.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    /// Stops all workers and waits until they have ended. Their work is cut off where it is: its state is in a store,
    /// and it is completed after the next start.
    pub(crate) async fn stop(&self) {
        self.stop.send_replace(true);
        let mut workers = std::mem::take(&mut *self.workers.lock());
        while workers.join_next().await.is_some() {}
    }

    /// Runs a worker until the hub stops. It is restarted after each panic, so it has no state that is not in a store
    /// or in the hub; and it reports each completed round.
    pub(crate) fn employ<F>(&self, worker: &'static str, work: impl Fn(Shift) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let kept = self.keep(worker, work);
        // Guarded too, so that no panic goes unnoticed.
        spawn_guarded_in(&mut self.workers.lock(), worker, kept);
    }

    /// Runs a worker in the task that awaits this, until the hub stops; it is restarted after each panic.
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
                // A worker in its pause is started once more when the hub stops, for its final work.
                let _ = clock.timeout(pause, stopped(&mut stop)).await;
            }
        }
    }
}

/// Returns the pause after this many panics.
fn pause_after(panics: u32) -> Duration {
    RESTART_PAUSE_FIRST.saturating_mul(1 << panics.saturating_sub(1).min(20)).min(RESTART_PAUSE_MAX)
}

/// Runs work whose panic must not end anything else: it is logged and counted, and the result is `None`.
pub fn guarded<T>(task: &'static str, work: impl Future<Output = T>) -> impl Future<Output = Option<T>> {
    // An `async fn` would store the work twice, as its argument and as the awaited future.
    AssertUnwindSafe(work).catch_unwind().map(move |ended| ended.map_err(|panic| panicked(task, &*panic)).ok())
}

/// Starts a task that runs on its own. The returned handle aborts it.
#[expect(clippy::disallowed_methods, reason = "one of the two places where a task begins")]
pub fn spawn_guarded(task: &'static str, work: impl Future<Output: Send> + Send + 'static) -> AbortHandle {
    tokio::spawn(guarded(task, work)).abort_handle()
}

/// Starts a task that ends with the set.
#[expect(clippy::disallowed_methods, reason = "one of the two places where a task begins")]
pub(crate) fn spawn_guarded_in(
    tasks: &mut JoinSet<()>,
    task: &'static str,
    work: impl Future<Output = ()> + Send + 'static,
) -> AbortHandle {
    tasks.spawn(guarded(task, work).map(|_| ()))
}

/// Logs and counts a panic in a piece of work.
fn panicked(task: &'static str, panic: &(dyn Any + Send)) {
    metrics::counter!(PANICS, "task" => task).increment(1);
    tracing::error!(task, panic = words(panic), "a piece of work panicked");
}

/// Waits until `stop` becomes true.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    // A dropped sender means that the hub has stopped too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// Returns the message of a panic.
pub fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no text")
}

/// Counts attempts of the same work that did not end, because each panicked.
#[derive(Debug)]
pub(crate) struct Tries<K>(Mutex<Option<(K, u32)>>);

impl<K: Copy + PartialEq> Tries<K> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Begins an attempt; returns the number of attempts before it that did not end.
    pub(crate) fn begin(&self, thing: K) -> u32 {
        let mut tried = self.0.lock();
        let before = tried.filter(|(last, _)| *last == thing).map_or(0, |(_, times)| times);
        *tried = Some((thing, before + 1));
        before
    }

    /// Ends the attempt, successful or not.
    pub(crate) fn end(&self) {
        *self.0.lock() = None;
    }
}
