//! Where designs with code of their own run: on a few threads beside those that serve calls, so that a codec that loops
//! until its limit holds up nobody else. Each project has one run at a time, the others in line.

mod line;

use std::sync::atomic::{AtomicU64, Ordering};

use isobar_design::{DeviceView, EventView, Memory, Outcome, Plan, Trigger};
use isobar_model::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

pub(crate) use line::{Line, StillWaits};

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

    /// Lets work that runs a design with code go on there, in its project's line; what it gives, when it is done.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        line: &Line,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        self.run_and_wait(line, work, |_, _| false).await
    }

    /// The same with work whose outcome may have to wait for something itself: who waits for both is woken once.
    pub(crate) async fn run_and_wait<T: Send + 'static>(
        &self,
        line: &Line,
        work: impl Future<Output = T> + Send + 'static,
        still_waits: StillWaits<T>,
    ) -> Result<T> {
        let runtime = self.runtime.as_ref().ok_or_else(|| Error::internal("the threads for code are gone"))?;
        line.join(runtime, work, still_waits)?.await
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

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(code.run(&Line::default(), async { 7 }).await.unwrap(), 7);
            drop(code);
        });
    }
}
