//! The threads for designs with code of their own, apart from those that serve calls, so that a codec that loops until
//! its limit delays no other. Each project has one run at a time; its others queue.

mod project_queue;
mod slots;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use isobar_design::{DeviceView, EventView, Memory, Outcome, Plan, Trigger};
use isobar_model::error::{Error, Result};
use isobar_model::ids::OrganizationId;
use isobar_quota::QueueSlot;
use isobar_quota::SharedAmount;
use isobar_traces::Span;
use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};

pub(crate) use project_queue::ProjectQueue;
use slots::{RunClass, RunSlots};

use isobar_quota::{TenantShare, TenantShares};

/// Stack of a thread that runs code, in bytes.
const STACK_BYTES: usize = 8 << 20;
/// Niceness of these threads (nice(2)) relative to those that serve calls: when both want a processor, code gets about one
/// part in thirty. Code that takes long gets only what is left (`isobar_design::run`), but this much before it is known to.
const NICENESS: i32 = 15;
/// Name of these threads.
const THREAD: &str = "isobar-code";
/// Fewest threads: a project that loops leaves one to the others.
const THREADS_MIN: usize = 2;
/// Bytes that runs hold which wait in the queues of projects or are under way, changes of settings among them, of all tenants
/// together; beyond, 503. One tenant has at most twice what is left for the others.
pub(crate) const QUEUED_BYTES_MAX: usize = 192 << 20;

/// The span of a run.
const RUN_SPAN: &str = "run design";
const RUNS: &str = "isobar_code_runs_total";
const ENGINES: &str = "isobar_code_engines_total";
const ASIDE: &str = "isobar_code_aside_total";
const RUNS_REFUSED: &str = "isobar_code_refused_total";

/// The threads for code.
pub(crate) struct CodePool {
    runtime: Option<Runtime>,
    runs: RunCounter,
    engines: RunCounter,
    aside: RunCounter,
    refused: metrics::Counter,
    /// Memory of waiting runs.
    queued_bytes: Arc<TenantShares>,
    /// For runs that have a thread of their own.
    slots: RunSlots,
}

/// Memory of a run from the begin of its wait, in its project's queue or for its device, to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldByRun {
    /// The tenant that is charged.
    pub tenant: OrganizationId,
    pub bytes: usize,
}

thread_local! {
    /// True on the threads for code.
    static IS_FOR_CODE: Cell<bool> = const { Cell::new(false) };
}

/// Counters of the runs of projects' code since the start.
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
        builder.on_thread_start(|| {
            IS_FOR_CODE.set(true);
            isobar_threads::give_way(NICENESS);
        });
        let runtime = builder.enable_all().build().map_err(Error::internal)?;
        let runs = RunCounter::new(RUNS);
        let engines = RunCounter::new(ENGINES);
        let aside = RunCounter::new(ASIDE);
        let (refused, queued_bytes) = (metrics::counter!(RUNS_REFUSED), TenantShares::fair(QUEUED_BYTES_MAX));
        Ok(Self { runtime: Some(runtime), runs, engines, aside, refused, queued_bytes, slots: RunSlots::new(threads) })
    }

    /// Lets work that runs a design with code go on there, in its project's queue; what it gives, when it is done.
    ///
    /// # Errors
    /// `Busy`: too many runs of the project wait, or those that wait hold too much.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        queue: &ProjectQueue,
        held: HeldByRun,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let runtime = self.runtime.as_ref().ok_or_else(|| Error::internal("the threads for code are gone"))?;
        let bytes = held.bytes.saturating_add(size_of_val(&work));
        let share = self.hold(HeldByRun { bytes, ..held });
        let joined = share.and_then(|share| queue.join(runtime, share, work));
        let outcome = joined.inspect_err(|_| self.refused.increment(1))?.await;
        outcome.map_err(|_| Error::internal("a run of code has ended before its time"))
    }

    /// Runs a design on an event. None: it has no code and this is a thread that serves calls, for which it takes too long or
    /// leaves too much; nothing has happened.
    pub(crate) fn run_event(
        &self,
        plan: &Plan,
        trigger: Trigger<'_>,
        event: &EventView<'_>,
        device: &DeviceView,
        memory: &dyn Memory,
    ) -> Option<Outcome> {
        if plan.runs_code() || IS_FOR_CODE.get() {
            return Some(self.run_design(plan, trigger, event, device, memory));
        }
        let _span = Span::of_work(RUN_SPAN);
        isobar_design::run_short(plan, trigger, event, device, memory)
    }

    /// Room for what a run holds that waits elsewhere than in its project's queue: until this is dropped. However much it
    /// holds, a run has room where nothing else waits.
    ///
    /// # Errors
    /// `Busy`: the runs that wait hold as much as they may, or those of its tenant.
    pub(crate) fn hold(&self, held: HeldByRun) -> Result<TenantShare> {
        let bytes = held.bytes.min(SharedAmount::of(QUEUED_BYTES_MAX).of_one());
        Ok(self.queued_bytes.take(held.tenant, bytes)?)
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
        let _span = Span::of_work(RUN_SPAN);
        if !plan.runs_code() {
            return isobar_design::run(plan, trigger, event, device, memory);
        }
        if IS_FOR_CODE.get()
            && let Some(outcome) = isobar_design::run_shared(plan, trigger, event, device, memory)
        {
            return outcome;
        }
        self.aside(plan, || isobar_design::run(plan, trigger, event, device, memory))
    }

    /// A slot of the tenant for a run of the plan, where one is needed: its code is known to want much or to take long, or
    /// the run is not on the threads for code; or it has none, and is long. What waits for a slot does not hold the plan.
    ///
    /// # Errors
    /// `Busy`: too many runs wait for one already, or too many of the tenant.
    pub(crate) fn slot<'c>(
        &'c self,
        plan: &Plan,
        tenant: OrganizationId,
        is_long: bool,
    ) -> impl Future<Output = Result<Option<QueueSlot>>> + use<'c> {
        let class = match plan.runs_code() {
            false => is_long.then_some(RunClass::Long),
            true if !IS_FOR_CODE.get() => Some(RunClass::OnRequest),
            true if plan.has_heavy_code() => Some(RunClass::Heavy),
            true if plan.has_large_code() => Some(RunClass::Large),
            true => None,
        };
        async move {
            match class {
                Some(class) => self.slots.take(class, tenant).await.map(Some),
                None => Ok(None),
            }
        }
    }

    /// A slot of the tenant for a run that left the threads that serve calls: as [`CodePool::slot`] says, and one without code,
    /// which may take long or leave much, needs one too.
    ///
    /// # Errors
    /// As [`CodePool::slot`].
    pub(crate) fn slot_aside<'c>(
        &'c self,
        plan: &Plan,
        tenant: OrganizationId,
    ) -> impl Future<Output = Result<Option<QueueSlot>>> + use<'c> {
        self.slot(plan, tenant, true)
    }

    /// Returns the numbers of long runs with a slot, and of those that wait for one.
    #[cfg(test)]
    pub(crate) fn long_runs(&self) -> (usize, usize) {
        self.slots.long_runs()
    }

    /// A slot of the tenant for a run of a plan that is tried: what its code wants is not known yet.
    ///
    /// # Errors
    /// As [`CodePool::slot`].
    pub(crate) async fn slot_for_trial(&self, plan: &Plan, tenant: OrganizationId) -> Result<Option<QueueSlot>> {
        if !plan.runs_code() {
            return Ok(None);
        }
        self.slots.take(RunClass::Heavy, tenant).await.map(Some)
    }

    /// Does work with a plan; if that has code, on this thread, which is one of its own from here on: others take over what
    /// waits for it. Who knows beforehand that it comes to this holds a slot.
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
        if !is_shared {
            return work();
        }
        tokio::task::block_in_place(|| {
            isobar_threads::serve_no_more();
            work()
        })
    }

    /// An event's code has run, for which so many engines were made.
    pub(crate) fn note(&self, engines: u32) {
        self.runs.add(1);
        if engines > 0 {
            self.engines.add(u64::from(engines));
        }
    }

    /// Returns the counters.
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

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn a_hub_may_go_anywhere() {
        let code = CodePool::start().unwrap();
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            assert_eq!(code.run(&ProjectQueue::default(), held(1, 0), async { 7 }).await.unwrap(), 7);
            drop(code);
        });
    }

    /// Nobody waits for a thread that does something long, and others serve meanwhile.
    #[cfg(target_os = "linux")]
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn who_leaves_the_threads_that_serve_is_none_of_them() {
        let called = || std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        let code = CodePool::start().unwrap();
        isobar_threads::serve();
        assert_eq!(called(), "isobar-serve\n");
        assert_eq!(code.off_this_thread(called), "isobar-block\n");
    }

    fn held(tenant: u128, bytes: usize) -> HeldByRun {
        HeldByRun { tenant: OrganizationId(uuid::Uuid::from_u128(tenant)), bytes }
    }

    #[tokio::test]
    async fn what_runs_of_a_tenant_hold_that_wait_is_bounded_whatever_their_projects_and_others_have_room() {
        const MIB: usize = 1 << 20;
        let code = CodePool::start().unwrap();
        let projects: Vec<ProjectQueue> = std::iter::repeat_with(ProjectQueue::default).take(8).collect();
        let (go, gone) = tokio::sync::watch::channel(false);
        let waits = || {
            let mut gone = gone.clone();
            async move { gone.wait_for(|gone| *gone).await.is_ok() }
        };
        let mut waiting = Vec::new();
        let mut fill = |tenant| {
            let before = waiting.len();
            for project in projects.iter().cycle() {
                let mut run = Box::pin(code.run(project, held(tenant, MIB), waits()));
                match run.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => waiting.push(run),
                    Poll::Ready(ended) => {
                        assert!(matches!(ended, Err(Error::Busy)), "{ended:?}");
                        break;
                    }
                }
            }
            waiting.len() - before
        };
        // Less than two thirds, for the runs themselves take some bytes.
        assert_eq!(fill(1), 127);
        assert!(fill(2) > 40);
        assert!(fill(3) > 12);
        go.send(true).unwrap();
        for run in waiting {
            assert!(run.await.unwrap());
        }
        // All is given back, and what is larger than any share runs where nothing else waits.
        assert!(code.run(&projects[0], held(1, usize::MAX), waits()).await.unwrap());
    }
}
