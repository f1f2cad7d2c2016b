//! Caches compiled designs. An evicted design is freed although many devices' entries still point to their project's
//! plan entry: only running runs keep the design until they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use isobar_design::Plan;
use isobar_model::ids::{OrganizationId, ProjectId};
use isobar_model::retention::ProjectRetention;
use isobar_quota::LruPlace;

use super::held::{Held, Weighed};
use super::loading_cache::CacheValue;
use crate::designs::ProjectRuns;

/// Runs of a project that go to the pool after an unforeseen long one, the next long one included. A long run costs the
/// thread that serves the call 10 to 40 ms at worst; over this many runs that is less than half a millisecond each.
pub(crate) const RUNS_ASIDE: u32 = 100;

/// Caches a project's compiled design.
pub(crate) struct PlanEntry {
    project: ProjectId,
    /// The tenant that owned the project when the design was loaded.
    tenant: OrganizationId,
    held: Held<DesignInForce>,
    /// Number of coming runs that still count as long, because a run took longer, or wrote more bytes, than is acceptable
    /// to calls that wait for the same thread: last values, settings or the states of elements are large.
    runs_aside: AtomicU32,
}

/// A compiled design with its size in memory.
#[derive(Clone)]
pub(crate) struct WeighedPlan {
    plan: Arc<Plan>,
    bytes: usize,
}

impl From<Plan> for WeighedPlan {
    /// Measures the whole plan, which takes a while for a large one.
    fn from(plan: Plan) -> Self {
        let bytes = plan.held_bytes();
        Self { plan: Arc::new(plan), bytes }
    }
}

/// The part of a plan entry that is dropped when the entry is retired: the design and its retention.
#[derive(Clone)]
pub(crate) struct DesignInForce {
    plan: WeighedPlan,
    /// The retention of the values that the project's devices store.
    retention: Arc<ProjectRetention>,
}

impl PlanEntry {
    /// Makes an entry of a project of this tenant. The entry is not installed yet.
    pub fn new(
        project: ProjectId,
        tenant: OrganizationId,
        plan: WeighedPlan,
        retention: ProjectRetention,
    ) -> Arc<Self> {
        let design = DesignInForce { plan, retention: Arc::new(retention) };
        Arc::new(Self { project, tenant, held: Held::new(design), runs_aside: AtomicU32::new(0) })
    }

    /// Returns the project.
    pub fn project(&self) -> ProjectId {
        self.project
    }

    /// Returns the design and counts a use, or returns `None` if the entry was evicted or replaced.
    pub fn plan(&self) -> Option<Arc<Plan>> {
        self.held.note_use();
        self.held.get().map(|design| Arc::clone(&design.plan.plan))
    }

    /// Returns true if the design has alarm elements, or was evicted and may have.
    pub fn may_raise_alarms(&self) -> bool {
        self.plan().is_none_or(|plan| plan.has_alarms())
    }

    /// Returns true if this entry is the installed one of its project.
    pub fn is_current(&self) -> bool {
        self.held.is_installed()
    }

    /// Returns the project and its tenant, which its long runs are counted for.
    pub fn project_runs(&self) -> ProjectRuns {
        ProjectRuns { tenant: self.tenant, project: self.project }
    }

    /// Returns true if one of the newest runs was long, or wrote many bytes.
    pub fn has_run_long(&self) -> bool {
        self.runs_aside.load(Ordering::Relaxed) > 0
    }

    /// Records that a run was long or short. Of several runs that report at the same time one may not be counted.
    pub fn note_run(&self, is_long: bool) {
        let still = self.runs_aside.load(Ordering::Relaxed);
        if is_long {
            self.runs_aside.store(RUNS_ASIDE, Ordering::Relaxed);
        } else if still > 0 {
            self.runs_aside.store(still - 1, Ordering::Relaxed);
        }
    }

    /// Returns the retention of the project's values, or `None` if the entry was evicted or replaced.
    pub fn retention(&self) -> Option<Arc<ProjectRetention>> {
        self.held.get().map(|design| Arc::clone(&design.retention))
    }

    /// Replaces the retention once the values that former designs had hidden are deleted.
    pub fn settle_retention(&self, settled: &Arc<ProjectRetention>) {
        self.held.change(|design| design.retention = Arc::clone(settled));
    }
}

impl Weighed for DesignInForce {
    const ENTRY_BYTES: usize = 512;

    fn weight(&self) -> usize {
        self.plan.bytes + self.retention.held_bytes()
    }
}

impl CacheValue<ProjectId> for Arc<PlanEntry> {
    fn tenant(&self) -> OrganizationId {
        self.tenant
    }

    fn weight(&self) -> usize {
        self.held.weight()
    }

    fn is_valid(&self) -> bool {
        self.is_current()
    }

    fn install(&self, place: &Arc<LruPlace>) {
        self.held.install(place);
    }

    fn leave(&self) -> bool {
        self.held.leave()
    }

    fn retire(&self) {
        self.held.retire();
    }
}
