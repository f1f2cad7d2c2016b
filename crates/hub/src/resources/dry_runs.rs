//! Runs designs on trial and reports each step. Nothing is stored, no user is notified, no server is called.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use isobar_design::{
    DeviceView, Effect, EmptyMemory, EventView, Memory, Outcome, Plan, TraceStep, Trigger, run_traced,
};
use isobar_model::access::{self, Action, Caller};
use isobar_model::check::Faults;
use isobar_model::dry_run::DryRunInput;
use isobar_model::error::{Error, Fault, Result};
use isobar_model::ids::{DeviceId, EventId, ProjectId};
use isobar_model::json::RawJson;
use isobar_model::project::empty_object;
use isobar_model::status::Status;
use isobar_model::time::Timestamp;

use crate::Hub;
use crate::cache::entries::DeviceEntry;
use crate::designs::{Admission, HeldByRun, RunPlace};
use crate::error::if_there;
use crate::ingest::design_runs::RunMemory;

/// Memory of a design under trial while its run waits, as a multiple of its text: compiled it takes several times as
/// much.
const TRIED_TIMES: usize = 8;

/// The result of a dry run.
#[derive(Clone, Debug)]
pub struct DryRun {
    /// The input and output of each element.
    pub trace: Vec<TraceStep>,
    /// The effects that would have happened, and the errors.
    pub outcome: Outcome,
}

impl Hub {
    /// Runs a project's design, or one to be tried, as if an event had arrived.
    ///
    /// Needs `ProjectDryRun`, and `DeviceRead` if a device is named. Nothing is stored, sent or called. Code runs on
    /// threads that may block, for at most 200 ms of processor time.
    ///
    /// # Errors
    /// `Invalid`: faults of the input and of the design under trial. `Busy`: too many runs wait.
    pub async fn dry_run(
        &self,
        caller: &Caller,
        project: ProjectId,
        (input, mut faults): (DryRunInput, Faults),
    ) -> Result<DryRun> {
        self.0.identity.project_write(caller, project, Action::ProjectDryRun).await?;
        let entry = self.0.caches.plan_entry(project).await?;
        let installed = self.0.caches.plan_of_project(project).await?;
        // Without an element name there is no fault to report about the element.
        let is_named = !input.element.is_empty();
        let device = match input.device {
            None => None,
            Some(id) => faults.gather(self.device_to_try(caller, id).await)?,
        };
        let tried_bytes = input.planes.as_ref().map(|planes| planes.bytes().len().saturating_mul(TRIED_TIMES));
        let tried = match input.planes {
            None => None,
            Some(planes) => {
                let plan =
                    self.0.caches.compiled(caller, planes).await?.map_err(|found| Error::Invalid(faults_of_try(found)));
                match faults.gather(plan)? {
                    Some(plan) => Some(Arc::new(plan)),
                    None => return Err(faults.into_error()),
                }
            }
        };
        // The design stays in memory while the run waits, even if the cache evicts it.
        let plan_bytes = tried_bytes.unwrap_or_else(|| installed.held_bytes());
        let plan = tried.unwrap_or(installed);
        let start = DryRunStart::at(&plan, &input.element)
            .ok_or_else(|| Error::invalid("elementName", "names no element that a run can begin at"));
        let start = if is_named { faults.gather(start)? } else { None };
        let Some(start) = start.filter(|_| !faults.any()) else {
            return Err(faults.into_error());
        };
        let made_up = match &device {
            Some(_) => None,
            None => Some(self.made_up_device(project).await?),
        };
        let tenant = caller.lineage.top();
        let of_device = device.as_ref().map_or(0, |entry| entry.held_by_run(0).bytes);
        let held = HeldByRun { tenant, bytes: of_device + plan_bytes + input.payload.bytes().len() };
        // A design under trial is trusted least: it always runs in the pool.
        device.iter().try_for_each(|entry| self.telemetry().must_reach(entry.device.key))?;
        let place = self.0.designs.place(entry.project_runs(), Admission::New, Some(held)).await?;
        let (id, now) = (self.0.env.new_id(), self.now());
        let run = PlannedRun { plan, start, element: input.element, payload: input.payload, id, now };
        match (device, made_up) {
            (Some(entry), _) => self.dry_run_on(&entry, run, &place).await,
            (None, Some(view)) => self.0.designs.in_pool(&place, move || run.on(&view, &EmptyMemory)).await,
            (None, None) => Err(Error::internal("a dry run without a device")),
        }
    }

    async fn device_to_try(&self, caller: &Caller, id: DeviceId) -> Result<Arc<DeviceEntry>> {
        let found = if_there(self.0.identity.user_device_read(caller, id).await)?;
        found.map(|(_, entry)| entry).ok_or_else(|| Error::invalid("device", "no such device"))
    }

    /// Makes up a device for the run.
    async fn made_up_device(&self, project: ProjectId) -> Result<DeviceView> {
        let permit = access::system(project, "a dry run makes a device up").reading();
        let project = self.registry().project_fetch(&permit).await?.ok_or(Error::Missing("project"))?;
        Ok(DeviceView {
            id: DeviceId(self.0.env.new_id().0),
            name: "made up".to_owned(),
            organization: project.organization,
            meta: empty_object(),
            status: Status::None,
            settings: Vec::new(),
            alarms: Arc::default(),
        })
    }

    /// Runs with the device's stored memory, while it is locked, and commits nothing.
    async fn dry_run_on(&self, entry: &Arc<DeviceEntry>, run: PlannedRun, place: &RunPlace) -> Result<DryRun> {
        let permit =
            access::system(entry.device, "a dry run sees what the device remembers").charged_to(&entry.lineage);
        // Read before the device is locked, in case its entry is retired meanwhile.
        let known = self.0.caches.device_view(entry).await?;
        let turn = self.telemetry().turn(&permit).await?;
        let mut view = entry.view().unwrap_or(known);
        if view.status == Status::Missing && matches!(run.start, DryRunStart::DeviceEvent) {
            let before = entry.before_missing.load(Ordering::Relaxed);
            Arc::make_mut(&mut view).status = Status::numbered(before.into()).unwrap_or_default();
        }
        let trial = move || run.on(&view, &RunMemory { memory: turn.memory(), left: None });
        self.0.designs.in_pool(place, trial).await
    }
}

/// Returns the faults of a specification under trial, with their paths in the body.
fn faults_of_try(faults: Vec<Fault>) -> Vec<Fault> {
    faults.into_iter().map(|fault| Fault::new(format!("specification.{}", fault.field), fault.message)).collect()
}

/// The trigger that starts a dry run.
#[derive(Clone, Copy)]
enum DryRunStart {
    DeviceEvent,
    SettingChanged,
    Elapsed,
}

impl DryRunStart {
    fn at(plan: &Plan, element: &str) -> Option<Self> {
        if plan.accepts(element) {
            Some(DryRunStart::DeviceEvent)
        } else if plan.setting(element).is_some() {
            Some(DryRunStart::SettingChanged)
        } else {
            plan.intervals().any(|(name, _)| **name == *element).then_some(DryRunStart::Elapsed)
        }
    }
}

/// A dry run that is ready to start.
struct PlannedRun {
    plan: Arc<Plan>,
    start: DryRunStart,
    element: String,
    payload: RawJson,
    id: EventId,
    now: Timestamp,
}

impl PlannedRun {
    fn on(&self, device: &DeviceView, memory: &dyn Memory) -> DryRun {
        let (element, payload, tree) = (&*self.element, &self.payload, self.payload.tree());
        let trigger = match self.start {
            DryRunStart::DeviceEvent => Trigger::DeviceEvent { element },
            DryRunStart::SettingChanged => Trigger::SettingChanged { name: element },
            DryRunStart::Elapsed => Trigger::Elapsed { element },
        };
        let (id, received_at, now) = (self.id, self.id.minted_at(), self.now);
        let event = EventView { id, element, received_at, now, payload, tree: &tree };
        let (mut outcome, trace) = run_traced(&self.plan, trigger, &event, device, memory);
        // Effects on the memory of elements are internal.
        outcome.effects.retain(|effect| !matches!(effect, Effect::Remember { .. } | Effect::Forget { .. }));
        DryRun { trace, outcome }
    }
}
