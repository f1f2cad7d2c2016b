//! Compiles designs: those that clients send a few at a time, and stored ones when a device needs them. Stored designs
//! stay in the cache.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use isobar_design::Plan;
use isobar_model::access::{self, Caller, CanRead};
use isobar_model::error::{Error, Fault, Result};
use isobar_model::ids::{DeviceKey, DeviceRef, ProjectId};
use isobar_model::json::RawJson;
use isobar_model::project::SpecificationInput;
use isobar_model::retention::ProjectRetention;
use isobar_model::version::element_count;
use isobar_store::registry::NewSpecification;

use super::Caches;
use super::entries::DeviceEntry;
use super::plan_entry::{PlanEntry, WeighedPlan};

/// Compiles and weighs a stored design. Events wait for it, so it does not queue behind the designs that clients send.
async fn compiled_stored(planes: RawJson) -> Result<std::result::Result<WeighedPlan, Vec<Fault>>> {
    let compile = move || Plan::compile_stored(&planes.tree()).map(WeighedPlan::from);
    tokio::task::spawn_blocking(compile).await.map_err(Error::internal)
}

impl Caches {
    /// Compiles a design that a client sends, on a low-priority thread, because a large one takes longer than other
    /// calls should wait. Only a few compile at a time.
    pub(crate) async fn compiled(
        &self,
        caller: &Caller,
        planes: RawJson,
    ) -> Result<std::result::Result<Plan, Vec<Fault>>> {
        self.compile_jobs.run_for(caller, move || Plan::compile(&planes.tree())).await
    }

    /// Compiles a specification that a client sends, in the same queue as [`Caches::compiled`], and prepares it for
    /// writing.
    pub(crate) async fn compiled_to_keep(
        &self,
        caller: &Caller,
        input: SpecificationInput,
    ) -> Result<std::result::Result<(Plan, NewSpecification), Vec<Fault>>> {
        let compile = move || {
            let planes = input.planes.clone();
            let tree = planes.tree();
            let plan = Plan::compile(&tree)?;
            Ok((plan, NewSpecification::counted(input, element_count(&tree))))
        };
        self.compile_jobs.run_for(caller, compile).await
    }

    /// Returns the compiled design of a project. A stored specification was checked when it was written; one that no
    /// longer compiles because an older release wrote it is an internal error, which the log names.
    pub(crate) async fn plan_entry(&self, project: ProjectId) -> Result<Arc<PlanEntry>> {
        // Many devices of a project report at once after a start: one compilation serves them all.
        let load = async || self.plan_found(project).await.map(Some);
        self.plans.get_or_load(&project, load).await?.ok_or(Error::Missing("project"))
    }

    async fn plan_found(&self, project: ProjectId) -> Result<Arc<PlanEntry>> {
        let registry = self.env.registry();
        let permit = access::system(project, "the main road compiles the project's design").reading();
        let lineage = registry.project_placement(project).await?;
        let specification = registry.specification_fetch(&permit).await?;
        let (lineage, specification) = lineage.zip(specification).ok_or(Error::Missing("project"))?;
        let plan = compiled_stored(specification.planes).await?.map_err(|faults| {
            Error::internal(format!("the stored design of project {project} does not compile: {faults:?}"))
        })?;
        let retention = registry.retention_fetch(&permit).await?;
        Ok(PlanEntry::new(project, lineage.top(), plan, retention))
    }

    /// Returns the compiled design of a project. If it was evicted or replaced at once, it is compiled for this caller
    /// alone.
    pub(crate) async fn plan_of_project(&self, project: ProjectId) -> Result<Arc<Plan>> {
        if let Some(plan) = self.plan_entry(project).await?.plan() {
            return Ok(plan);
        }
        Box::pin(self.plan_found(project)).await?.plan().ok_or(Error::Busy)
    }

    /// Returns the compiled design that a device runs: from this entry, or from a newer one if its design was evicted.
    pub(crate) async fn plan_of_device(&self, entry: &DeviceEntry) -> Result<Arc<Plan>> {
        match entry.plan() {
            Some(plan) => Ok(plan),
            // Boxed, because a load is rare and its future large.
            None => Box::pin(async { self.plan_of_project(self.project_of(entry).await?).await }).await,
        }
    }

    async fn project_of(&self, entry: &DeviceEntry) -> Result<ProjectId> {
        let newest = self.device_entry(entry.device.id).await?.ok_or(Error::Missing("device"))?;
        Ok(newest.plan.project())
    }

    /// Returns the retention of a device's storage elements: from this entry, or from a newer one if its design was
    /// evicted.
    pub(crate) async fn retention_of_device(&self, entry: &DeviceEntry) -> Result<Arc<ProjectRetention>> {
        match entry.plan.retention() {
            Some(kept) => Ok(kept),
            None => Box::pin(async { self.retention_of(self.project_of(entry).await?).await }).await,
        }
    }

    /// Returns the retention of many devices' values: from the cache, or else from the registry. Nothing is installed,
    /// because entries of devices that are only read would evict those of devices that send events. Deleted devices are
    /// left out.
    pub(crate) async fn retention_of_many(
        &self,
        devices: &[CanRead<DeviceRef>],
    ) -> Result<HashMap<DeviceKey, Arc<ProjectRetention>>> {
        let mut retention = HashMap::with_capacity(devices.len());
        let mut unknown = Vec::new();
        for permit in devices {
            let cached = self.devices.peek(&permit.target().id);
            match cached.and_then(|entry| entry.plan.retention()) {
                Some(kept) => {
                    retention.insert(permit.target().key, kept);
                }
                None => unknown.push(permit.clone()),
            }
        }
        let mut of_projects = HashMap::<ProjectId, Arc<ProjectRetention>>::new();
        for (device, project) in self.env.registry().device_projects(&unknown).await? {
            let of_project = match of_projects.get(&project) {
                Some(known) => Arc::clone(known),
                None => self.retention_of(project).await?,
            };
            retention.insert(device, Arc::clone(of_projects.entry(project).or_insert(of_project)));
        }
        Ok(retention)
    }

    /// Returns the retention of a project's values without compiling its design.
    async fn retention_of(&self, project: ProjectId) -> Result<Arc<ProjectRetention>> {
        if let Some(kept) = self.plans.peek(&project).and_then(|entry| entry.retention()) {
            return Ok(kept);
        }
        let permit = access::system(project, "values of many devices are read as their projects keep them").reading();
        Ok(Arc::new(self.env.registry().retention_fetch(&permit).await?))
    }

    /// Replaces a project's retention once the values that former designs had hidden are deleted for all its devices:
    /// readers need not filter them any more.
    pub(crate) fn retention_settled(&self, project: ProjectId, settled: ProjectRetention) {
        self.plans.discard_loads();
        if let Some(entry) = self.plans.peek(&project) {
            entry.settle_retention(&Arc::new(settled));
        }
    }
}
