//! Where designs with code of their own run: on a few threads beside those that serve calls, so that a codec that loops
//! until its limit holds up nobody else. Projects take turns: each has one run at a time, and only so many that wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use isobar_design::{DeviceView, EventView, Memory, Outcome, Plan, Trigger};
use isobar_model::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Runs of one project that wait for their turn; beyond, callers hear 503.
const RUNS_WAITING_MAX: usize = 256;
/// Stack of a thread that runs code, in bytes.
const STACK_BYTES: usize = 8 << 20;
/// How nice these threads are to those that serve calls (nice(2)): where both want a processor, code gets about one
/// part in thirty. Code that takes long gets only what is left (`isobar_design::run`), but this much before it is known to.
const NICENESS: i32 = 15;
/// What these threads are called.
const THREAD: &str = "isobar-code";
/// Fewest threads: a project that loops leaves one to the others.
const THREADS_MIN: usize = 2;

/// Runs that want a thread of their own and have one; further ones wait, each with its project's turn. Runs that take long
/// and run with what others leave have as many places again, so that nobody else waits for these.
const ASIDE_AT_ONCE: usize = 8;
/// Runs that wait for such a place; beyond, they run without their code.
const ASIDE_WAITING_MAX: usize = 64;

const RUNS: &str = "isobar_code_runs_total";
const ENGINES: &str = "isobar_code_engines_total";
const ASIDE: &str = "isobar_code_aside_total";

/// The threads.
pub(crate) struct Code {
    runtime: Option<Runtime>,
    runs: Counted,
    engines: Counted,
    aside: Counted,
    /// For runs that want much.
    large: Places,
    /// For those that take long.
    heavy: Places,
}

/// How often the code of projects has run since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeRuns {
    /// Events whose design has code.
    pub runs: u64,
    /// Engines that were made for them: about a millisecond each.
    pub engines: u64,
    /// Runs on a thread of their own, because their code wants much memory or took far more than its time before.
    pub aside: u64,
}

/// A count, and what /metrics says of it.
struct Counted(AtomicU64, metrics::Counter);

impl Counted {
    fn new(name: &'static str, what: &'static str) -> Self {
        metrics::describe_counter!(name, what);
        Self(AtomicU64::new(0), metrics::counter!(name))
    }

    fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
        self.1.increment(count);
    }
}

impl Code {
    pub(crate) fn start() -> Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).max(THREADS_MIN);
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads).thread_name(THREAD).thread_stack_size(STACK_BYTES);
        builder.on_thread_start(|| isobar_threads::give_way(NICENESS));
        let runtime = builder.enable_all().build().map_err(Error::internal)?;
        let runs = Counted::new(RUNS, "Events whose design has code");
        let engines = Counted::new(ENGINES, "Engines made for code");
        let aside = Counted::new(ASIDE, "Runs of code on a thread of their own");
        let (large, heavy) = (Places::new(), Places::new());
        Ok(Self { runtime: Some(runtime), runs, engines, aside, large, heavy })
    }

    /// Lets work that runs a design with code go on there; what it gives, when it is done.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> Result<T> {
        let runtime = self.runtime.as_ref().ok_or_else(|| Error::internal("the threads for code are gone"))?;
        runtime.spawn(work).await.map_err(Error::internal)
    }

    /// Runs a design. One without code runs at once; one with code too, on the threads for code, unless it wants more than
    /// there is for it where others wait for the same thread: then it has one of its own.
    pub(crate) fn carry(
        &self,
        plan: &Plan,
        trigger: Trigger<'_>,
        event: &EventView<'_>,
        device: &DeviceView,
        memory: &dyn Memory,
    ) -> Outcome {
        if !plan.runs_code() {
            return isobar_design::run(plan, trigger, event, device, memory);
        }
        if is_own_thread()
            && let Some(outcome) = isobar_design::run_shared(plan, trigger, event, device, memory)
        {
            return outcome;
        }
        self.aside(plan, || isobar_design::run(plan, trigger, event, device, memory))
            .unwrap_or_else(|_| isobar_design::run_without_code(plan, trigger, event, device, memory))
    }

    /// Does work with a plan; if that has code, on this thread, which is one of its own from here on: others take over what
    /// waits for it. [`Error::Busy`] when too much such work waits already; then nothing was done.
    pub(crate) fn aside<T>(&self, plan: &Plan, work: impl FnOnce() -> T) -> Result<T> {
        if !plan.runs_code() {
            return Ok(work());
        }
        let places = if plan.has_heavy_code() { &self.heavy } else { &self.large };
        let work = || {
            let _place = match is_own_thread() {
                true => Some(places.take().ok_or(Error::Busy)?),
                false => None,
            };
            self.aside.add(1);
            Ok(work())
        };
        let is_shared = Handle::try_current().is_ok_and(|it| it.runtime_flavor() == RuntimeFlavor::MultiThread);
        if is_shared { tokio::task::block_in_place(work) } else { work() }
    }

    /// An event's code has run, for which so many engines were made.
    pub(crate) fn note(&self, engines: u32) {
        self.runs.add(1);
        if engines > 0 {
            self.engines.add(u64::from(engines));
        }
    }

    /// How often it has.
    pub(crate) fn runs(&self) -> CodeRuns {
        let count = |counted: &Counted| counted.0.load(Ordering::Relaxed);
        CodeRuns { runs: count(&self.runs), engines: count(&self.engines), aside: count(&self.aside) }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // The last holder of a hub may be a task: there a runtime must not wait for its threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn is_own_thread() -> bool {
    std::thread::current().name() == Some(THREAD)
}

/// Places of runs with a thread of their own.
struct Places {
    counts: Mutex<Counts>,
    one_is_free: Condvar,
}

struct Counts {
    free: usize,
    waiting: usize,
}

/// One of the places; free again when this is dropped.
struct Aside<'a>(&'a Places);

impl Places {
    fn new() -> Self {
        Self { counts: Mutex::new(Counts { free: ASIDE_AT_ONCE, waiting: 0 }), one_is_free: Condvar::new() }
    }

    /// Waits for one, on a thread that nobody else waits for. None: too many wait already.
    fn take(&self) -> Option<Aside<'_>> {
        let mut counts = self.counts.lock();
        if counts.free == 0 && counts.waiting >= ASIDE_WAITING_MAX {
            return None;
        }
        counts.waiting += 1;
        self.one_is_free.wait_while(&mut counts, |counts| counts.free == 0);
        counts.waiting -= 1;
        counts.free -= 1;
        Some(Aside(self))
    }
}

impl Drop for Aside<'_> {
    fn drop(&mut self) {
        self.0.counts.lock().free += 1;
        self.0.one_is_free.notify_one();
    }
}

/// The turns of one project.
pub(crate) struct Turns {
    turn: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

/// A project's turn: while it is held, no other run of the project's code begins.
pub(crate) struct Turn(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl Turns {
    pub(crate) fn new() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), waiting: Arc::default() }
    }

    /// Waits for the project's turn; [`Error::Busy`] when too many wait already.
    pub(crate) async fn take(&self) -> Result<Turn> {
        self.stand()?.turn().await
    }

    /// A place among those that wait for the project's turn; [`Error::Busy`] when too many do already.
    pub(crate) fn stand(&self) -> Result<Place> {
        let place = Place { turn: Arc::clone(&self.turn), waiting: Arc::clone(&self.waiting) };
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= RUNS_WAITING_MAX {
            return Err(Error::Busy);
        }
        Ok(place)
    }
}

/// A place among those that wait; given up however the waiting ends.
pub(crate) struct Place {
    turn: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Place {
    /// Waits for the turn. On the threads for code whoever is next begins without a word to another thread.
    pub(crate) async fn turn(self) -> Result<Turn> {
        let permit = Arc::clone(&self.turn).acquire_owned().await.map_err(Error::internal)?;
        Ok(Turn(permit))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_project_has_one_turn_and_a_bounded_queue() {
        let turns = Arc::new(Turns::new());
        let first = turns.take().await.unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..RUNS_WAITING_MAX {
            let turns = Arc::clone(&turns);
            waiting.spawn(async move { turns.take().await.is_ok() });
        }
        while turns.waiting.load(Ordering::Relaxed) < RUNS_WAITING_MAX {
            tokio::task::yield_now().await;
        }
        assert!(matches!(turns.take().await, Err(Error::Busy)));
        drop(first);
        assert!(waiting.join_all().await.into_iter().all(|had_its_turn| had_its_turn));
        assert_eq!(turns.waiting.load(Ordering::Relaxed), 0);
        assert!(turns.take().await.is_ok());
    }

    #[test]
    fn so_many_runs_have_a_place_and_so_many_wait_for_one() {
        let places = Places::new();
        let taken: Vec<Aside<'_>> = (0..ASIDE_AT_ONCE).map(|_| places.take().unwrap()).collect();
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..ASIDE_WAITING_MAX).map(|_| scope.spawn(|| places.take().is_some())).collect();
            while places.counts.lock().waiting < ASIDE_WAITING_MAX {
                std::thread::yield_now();
            }
            assert!(places.take().is_none());
            drop(taken);
            assert!(waiting.into_iter().all(|run| run.join().unwrap()));
        });
        let counts = places.counts.lock();
        assert_eq!((counts.free, counts.waiting), (ASIDE_AT_ONCE, 0));
    }

    #[test]
    fn a_hub_may_go_anywhere() {
        let code = Code::start().unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            assert_eq!(code.run(async { 7 }).await.unwrap(), 7);
            drop(code);
        });
    }
}
