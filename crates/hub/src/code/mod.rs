//! Where designs with code of their own run: on a few threads beside those that serve calls, so that a codec that loops
//! until its limit holds up nobody else. Each project has one run at a time, its others queue.

mod project_queue;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use isobar_design::{DeviceView, EventView, Memory, Outcome, Plan, Trigger};
use isobar_model::error::{Error, Result};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub(crate) use project_queue::{ProjectQueue, StillPending};

/// Stack of a thread that runs code, in bytes.
const STACK_BYTES: usize = 8 << 20;
/// How nice these threads are to those that serve calls (nice(2)): where both want a processor, code gets about one
/// part in thirty. Code that takes long gets only what is left (`isobar_design::run`), but this much before it is known to.
const NICENESS: i32 = 15;
/// What these threads are called.
const THREAD: &str = "isobar-code";
/// Fewest threads: a project that loops leaves one to the others.
const THREADS_MIN: usize = 2;

/// Runs that want a thread of their own and have one; further ones wait, and so do their projects. Runs that take long
/// and run with what others leave have as many slots again, and so have those on threads of the server.
const ASIDE_AT_ONCE: usize = 8;
/// Runs that wait for such a slot, but for those on threads of the server; beyond, 503.
const ASIDE_WAITING_MAX: usize = 64;

const RUNS: &str = "isobar_code_runs_total";
const ENGINES: &str = "isobar_code_engines_total";
const ASIDE: &str = "isobar_code_aside_total";

/// The threads for code.
pub(crate) struct CodePool {
    runtime: Option<Runtime>,
    runs: RunCounter,
    engines: RunCounter,
    aside: RunCounter,
    /// For runs that want much.
    large: RunSlots,
    /// For those that take long.
    heavy: RunSlots,
    /// For those on the threads of the server: a change of settings runs there.
    elsewhere: RunSlots,
}

/// How often the code of projects has run since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CodeRuns {
    /// Events whose design has code.
    pub runs: u64,
    /// Engines that were made for them: about a millisecond each.
    pub engines: u64,
    /// Runs on a thread of their own, because their code wants much memory or takes long.
    pub aside: u64,
}

/// A count, and what /metrics says of it.
struct RunCounter(AtomicU64, metrics::Counter);

impl RunCounter {
    fn new(name: &'static str) -> Self {
        Self(AtomicU64::new(0), metrics::counter!(name))
    }

    fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
        self.1.increment(count);
    }
}

impl CodePool {
    pub(crate) fn start() -> Result<Self> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).max(THREADS_MIN);
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads).thread_name(THREAD).thread_stack_size(STACK_BYTES);
        builder.on_thread_start(|| isobar_threads::give_way(NICENESS));
        let runtime = builder.enable_all().build().map_err(Error::internal)?;
        let runs = RunCounter::new(RUNS);
        let engines = RunCounter::new(ENGINES);
        let aside = RunCounter::new(ASIDE);
        let [large, heavy] = std::array::from_fn(|_| RunSlots::new(ASIDE_WAITING_MAX));
        // What waits there is bounded by who calls: one call changes the settings of many devices.
        let elsewhere = RunSlots::new(usize::MAX);
        Ok(Self { runtime: Some(runtime), runs, engines, aside, large, heavy, elsewhere })
    }

    /// Lets work that runs a design with code go on there, in its project's queue; what it gives, when it is done.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        queue: &ProjectQueue,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        self.run_and_wait(queue, work, |_, _| false).await
    }

    /// Lets work go on there whose outcome may have to wait for something itself: the task that waits for both is woken once.
    pub(crate) async fn run_and_wait<T: Send + 'static>(
        &self,
        queue: &ProjectQueue,
        work: impl Future<Output = T> + Send + 'static,
        still_pending: StillPending<T>,
    ) -> Result<T> {
        let runtime = self.runtime.as_ref().ok_or_else(|| Error::internal("the threads for code are gone"))?;
        queue.join(runtime, work, still_pending)?.await
    }

    /// Runs a design. One without code runs at once; one with code too, on the threads for code, unless it wants more than
    /// there is for it where others wait for the same thread: then it has one of its own.
    pub(crate) fn run_design(
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
    }

    /// A slot for a run of the plan, where one is needed: its code is known to want much or to take long, or the run is
    /// not on the threads for code. [`Error::Busy`] when too many wait for one already.
    pub(crate) async fn slot(&self, plan: &Plan) -> Result<Option<RunSlot>> {
        let slots = match plan.runs_code() {
            false => return Ok(None),
            true if !is_own_thread() => &self.elsewhere,
            true if plan.has_heavy_code() => &self.heavy,
            true if plan.has_large_code() => &self.large,
            true => return Ok(None),
        };
        slots.take().await.map(Some)
    }

    /// A slot for a run of a plan that is tried: what its code wants is not known yet.
    pub(crate) async fn slot_for_trial(&self, plan: &Plan) -> Result<Option<RunSlot>> {
        if !plan.runs_code() {
            return Ok(None);
        }
        self.heavy.take().await.map(Some)
    }

    /// Does work with a plan; if that has code, on this thread, which is one of its own from here on: others take over what
    /// waits for it. Who knows beforehand that it comes to this holds a [`RunSlot`].
    pub(crate) fn aside<T>(&self, plan: &Plan, work: impl FnOnce() -> T) -> T {
        if !plan.runs_code() {
            return work();
        }
        self.aside.add(1);
        self.off_this_thread(work)
    }

    /// Does work that takes long on this thread, which is one of its own from here on, as [`CodePool::aside`] says.
    pub(crate) fn off_this_thread<T>(&self, work: impl FnOnce() -> T) -> T {
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
        let count = |counted: &RunCounter| counted.0.load(Ordering::Relaxed);
        CodeRuns { runs: count(&self.runs), engines: count(&self.engines), aside: count(&self.aside) }
    }
}

impl Drop for CodePool {
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

/// Slots for runs with a thread of their own.
struct RunSlots {
    free: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
    waiting_max: usize,
}

/// One of the slots, until this is dropped.
pub(crate) struct RunSlot(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

/// One of those that wait for a slot.
struct SlotWaiter(Arc<AtomicUsize>);

impl RunSlots {
    fn new(waiting_max: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(ASIDE_AT_ONCE)), waiting: Arc::default(), waiting_max }
    }

    /// Waits for one, in the order of asking; [`Error::Busy`] when too many wait already.
    async fn take(&self) -> Result<RunSlot> {
        if let Ok(free) = Arc::clone(&self.free).try_acquire_owned() {
            return Ok(RunSlot(free));
        }
        let waiting = SlotWaiter(Arc::clone(&self.waiting));
        if waiting.0.fetch_add(1, Ordering::Relaxed) >= self.waiting_max {
            return Err(Error::Busy);
        }
        Arc::clone(&self.free).acquire_owned().await.map(RunSlot).map_err(Error::internal)
    }
}

impl Drop for SlotWaiter {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test hears of its panics")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn so_many_runs_have_a_place_and_so_many_wait_for_one() {
        let slots = Arc::new(RunSlots::new(ASIDE_WAITING_MAX));
        let taken = futures::future::try_join_all((0..ASIDE_AT_ONCE).map(|_| slots.take())).await.unwrap();
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..ASIDE_WAITING_MAX {
            let slots = Arc::clone(&slots);
            waiting.spawn(async move { slots.take().await.is_ok() });
        }
        while slots.waiting.load(Ordering::Relaxed) < ASIDE_WAITING_MAX {
            tokio::task::yield_now().await;
        }
        assert!(matches!(slots.take().await, Err(Error::Busy)));
        drop(taken);
        assert!(waiting.join_all().await.into_iter().all(|had_a_place| had_a_place));
        assert_eq!((slots.free.available_permits(), slots.waiting.load(Ordering::Relaxed)), (ASIDE_AT_ONCE, 0));
    }

    #[test]
    fn a_hub_may_go_anywhere() {
        let code = CodePool::start().unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            assert_eq!(code.run(&ProjectQueue::default(), async { 7 }).await.unwrap(), 7);
            drop(code);
        });
    }
}
