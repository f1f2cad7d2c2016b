//! Runs the designs of projects: a short run on the thread that asks for it, a long one in a pool of threads that yield
//! to those that serve calls.
//!
//! A run is known to be long before it begins (see [`crate::cache::entries::DeviceEntry::is_long_run`]): it waits for a
//! place, then for its device, and goes to the pool with the device's turn. Places are shared fairly between tenants,
//! and a tenant's between its projects. A tenant has a quarter of them at most: code that does something huge, in which
//! it cannot be interrupted, occupies threads of its own tenant only.

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use isobar_design::{DeviceView, EventView, Memory, Outcome, Plan, Trigger};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{OrganizationId, ProjectId};
use isobar_model::site::Site;
use isobar_quota::{Claim, FairQueue, Holder, QueueSlot, TenantShare, TenantShares, limits};
use isobar_threads::{NICENESS, give_way};
use isobar_traces::Span;
use tokio::runtime::{Builder, Runtime};

use crate::supervisor::guarded;

/// Stack of a thread of the pool, in bytes.
const STACK_BYTES: usize = 8 << 20;
/// Name of these threads.
const THREAD: &str = "isobar-design";
/// Threads of the pool for each processor, and fewest processors that count: what runs long on some leaves the others.
const THREADS_A_PROCESSOR: usize = 4;
const PROCESSORS_MIN: usize = 2;
/// Part of the threads that the runs of one tenant occupy at the same time: one in so many.
const TENANT_PART: usize = 4;

/// The span of a run.
const RUN_SPAN: &str = "run design";
const RUNS: &str = "isobar_code_runs_total";
const ENGINES: &str = "isobar_code_engines_total";
const LONG_RUNS: &str = "isobar_long_runs_total";
const RUNS_REFUSED: &str = "isobar_code_refused_total";

/// Runs designs.
pub(crate) struct Designs {
    /// The pool; `None` once this is dropped.
    pool: Option<Runtime>,
    places: FairQueue<ProjectRuns>,
    /// Memory of long runs.
    held: Arc<TenantShares>,
    runs: RunCounter,
    engines: RunCounter,
    long: RunCounter,
    refused: metrics::Counter,
}

/// The project whose design runs, and its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProjectRuns {
    pub tenant: OrganizationId,
    pub project: ProjectId,
}

/// Memory of a long run from the begin of its wait to its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldByRun {
    /// The tenant that is charged.
    pub tenant: OrganizationId,
    pub bytes: usize,
}

/// Admission of a long run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// New work, which is refused if too many long runs wait.
    New,
    /// Part of a call that was admitted, which waits and is never refused.
    Part,
}

/// A place for a long run. It is free again when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct RunPlace(#[expect(dead_code, reason = "it is held, not read")] Arc<PlaceParts>);

struct PlaceParts {
    _slot: QueueSlot<ProjectRuns>,
    /// `None` if the caller holds the share.
    _share: Option<TenantShare>,
}

/// Counters of the runs of designs since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DesignCounts {
    /// Events whose design has code.
    pub code: u64,
    /// Engines that were made for them: about a millisecond each.
    pub engines: u64,
    /// Runs that went to the pool.
    pub long: u64,
}

/// A count, and its metric.
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

impl Holder for ProjectRuns {
    type Tenant = OrganizationId;
    type Site = Site;

    fn tenant(&self) -> OrganizationId {
        self.tenant
    }

    fn site(&self) -> Site {
        self.tenant.site()
    }
}

impl Designs {
    /// Makes the pool; its threads start when they are needed.
    ///
    /// # Errors
    /// `Internal` if the system has no more resources.
    pub(crate) fn start() -> Result<Self> {
        let threads = threads();
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads).thread_name(THREAD).thread_stack_size(STACK_BYTES);
        builder.on_thread_start(|| give_way(NICENESS));
        Ok(Self {
            pool: Some(builder.build().map_err(Error::internal)?),
            places: FairQueue::new(&limits::LONG_RUNS.with_slots(threads, threads / TENANT_PART)),
            held: TenantShares::new(&limits::LONG_RUN_BYTES),
            runs: RunCounter::new(RUNS),
            engines: RunCounter::new(ENGINES),
            long: RunCounter::new(LONG_RUNS),
            refused: metrics::counter!(RUNS_REFUSED),
        })
    }

    /// Runs a design on this thread.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        trigger: Trigger<'_>,
        event: &EventView<'_>,
        device: &DeviceView,
        memory: &dyn Memory,
    ) -> Outcome {
        let _span = Span::of_work(RUN_SPAN);
        let outcome = isobar_design::run(plan, trigger, event, device, memory);
        if plan.runs_code() && matches!(trigger, Trigger::DeviceEvent { .. }) {
            self.runs.add(1);
            self.engines.add(u64::from(outcome.engines));
        }
        outcome
    }

    /// Waits for a place for a long run of a project; with `held`, takes a share of the memory of long runs too.
    ///
    /// # Errors
    /// `Busy` if too many long runs wait, or if they hold as much memory as they may.
    pub(crate) async fn place(
        &self,
        project: ProjectRuns,
        admission: Admission,
        held: Option<HeldByRun>,
    ) -> Result<RunPlace> {
        let claim = match admission {
            Admission::New => Claim::begin(project),
            Admission::Part => Claim::go_on(project),
        };
        let place = async {
            let share = held.map(|held| self.hold(held)).transpose()?;
            let slot = self.places.take(claim).await?;
            Ok(RunPlace(Arc::new(PlaceParts { _slot: slot, _share: share })))
        };
        place.await.inspect_err(|_| self.refused.increment(1))
    }

    /// Takes a share of the memory of long runs. Of a run that holds more than a tenant may, as much is charged as a
    /// tenant may hold, so that it has room when nothing else waits.
    ///
    /// # Errors
    /// `Busy` if all long runs, or those of the tenant, hold as much as they may.
    pub(crate) fn hold(&self, held: HeldByRun) -> Result<TenantShare> {
        Ok(self.held.take(held.tenant, self.held.capped(held.bytes))?)
    }

    /// Does work of a long run in the pool. The place stays taken until the work has ended, even if the future is dropped.
    ///
    /// # Errors
    /// `Internal` if the work panicked.
    #[expect(clippy::disallowed_methods, reason = "the work is guarded")]
    pub(crate) async fn in_pool<T: Send + 'static>(
        &self,
        place: &RunPlace,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let pool = self.pool.as_ref().ok_or_else(|| Error::internal("the threads for designs are gone"))?;
        let place = place.clone();
        self.long.add(1);
        let work = isobar_traces::carry(Box::pin(guarded("design", async move {
            let done = work();
            drop(place);
            done
        })));
        let done = pool.spawn(work).await.ok().flatten();
        done.ok_or_else(|| Error::internal("a run of a design ended before its time"))
    }

    /// Returns the counters.
    pub(crate) fn counts(&self) -> DesignCounts {
        let count = |counted: &RunCounter| counted.0.load(Ordering::Relaxed);
        DesignCounts { code: count(&self.runs), engines: count(&self.engines), long: count(&self.long) }
    }

    /// Returns the numbers of long runs that have a place, and of those that wait for one.
    #[cfg(test)]
    pub(crate) fn long_runs(&self) -> (usize, usize) {
        self.places.taken_and_waiting()
    }
}

/// Returns the number of threads of the pool.
fn threads() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    THREADS_A_PROCESSOR * processors.max(PROCESSORS_MIN)
}

impl Drop for Designs {
    fn drop(&mut self) {
        // The last holder of a hub may be a task: there a runtime must not wait for its threads.
        if let Some(pool) = self.pool.take() {
            pool.shutdown_background();
        }
    }
}
