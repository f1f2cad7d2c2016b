//! The entries of compiled designs. A design that leaves the cache is let go, however many devices' entries hold the one of their
//! project: only runs under way keep it until their end.

use std::sync::Arc;

use isobar_design::Plan;
use isobar_model::ids::{OrganizationId, ProjectId};
use isobar_model::retention::ProjectRetention;
use uuid::Uuid;

use super::held::{Held, Weighed};
use super::shared_entries::SharedEntry;
use crate::code::ProjectQueue;

/// A project's compiled design.
pub(crate) struct PlanEntry {
    project: ProjectId,
    /// Whose project it was when the design was loaded.
    tenant: OrganizationId,
    held: Held<DesignInForce>,
    /// The queue of its runs with code.
    pub queue: ProjectQueue,
}

/// A compiled design, and what it takes in memory.
#[derive(Clone)]
pub(crate) struct WeighedPlan {
    plan: Arc<Plan>,
    bytes: usize,
}

impl From<Plan> for WeighedPlan {
    /// Goes through all of the plan, which takes a while of a large one.
    fn from(plan: Plan) -> Self {
        let bytes = plan.held_bytes();
        Self { plan: Arc::new(plan), bytes }
    }
}

/// What an entry says of its project.
#[derive(Clone)]
pub(crate) struct DesignInForce {
    plan: WeighedPlan,
    /// What is kept of the values of its devices.
    retention: Arc<ProjectRetention>,
}

impl PlanEntry {
    /// An entry of a project of this tenant. It is not installed yet.
    pub fn new(
        project: ProjectId,
        tenant: OrganizationId,
        plan: WeighedPlan,
        retention: ProjectRetention,
    ) -> Arc<Self> {
        let design = DesignInForce { plan, retention: Arc::new(retention) };
        Arc::new(Self { project, tenant, held: Held::new(design), queue: ProjectQueue::default() })
    }

    /// The design; none: a newer entry says it.
    pub fn plan(&self) -> Option<Arc<Plan>> {
        self.held.note_use();
        self.held.get().map(|design| Arc::clone(&design.plan.plan))
    }

    /// What is kept of the values of the project's devices; none: a newer entry says it.
    pub fn retention(&self) -> Option<Arc<ProjectRetention>> {
        self.held.get().map(|design| Arc::clone(&design.retention))
    }

    /// What former designs had hidden is dropped: from here on this is kept.
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

impl SharedEntry for PlanEntry {
    type Key = ProjectId;
    type Says = DesignInForce;

    fn key(&self) -> ProjectId {
        self.project
    }

    fn minted(key: ProjectId) -> Uuid {
        key.0
    }

    fn tenant(&self) -> OrganizationId {
        self.tenant
    }

    fn held(&self) -> &Held<DesignInForce> {
        &self.held
    }
}
