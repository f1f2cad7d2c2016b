//! Receives the integration webhook: a third party's body becomes device events, and creates missing devices
//! (specification: Integration webhook; contract: Integration webhook).
//!
//! A delivery is parsed, and its events are counted, before anything is changed: faults of the delivery as a whole
//! refuse it. Failures of single blocks are reported next to the results of the others.

mod memory;
mod parameters;
mod reference;
mod run;
mod task;
mod tasks;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;
use isobar_design::Integration;
use isobar_model::access::{self, Action, Caller, CanList, CanWrite};
use isobar_model::check::Faults;
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, EventId, OrganizationId, ProjectId, UserId};
use isobar_model::json::{Json, RawJson};
use isobar_model::project::empty_object;
use isobar_model::secret::Secret;
use isobar_quota::TenantShare;
use isobar_store::registry::{NewDevice, NewLabels, NewTagged, TagCarrier};

use self::memory::DeliverySize;
use self::parameters::Request;
use self::task::{Block, Known, NO_SUCH_PROJECT, Task, TaskDevice, TaskRun};
use self::tasks::Extracted;
use crate::Hub;
use crate::error::if_there;
use crate::outbox::Shown;
use crate::support::scope_guard::ScopeGuard;

pub use self::parameters::{Given, PARAMETERS};

/// Longest name of a device, in characters.
const NAME_CHARACTERS_MAX: usize = 80;
/// Devices created in one transaction, fewer if their labels are long, so that other writers of the registry have their
/// turn in between.
const PROVISIONED_AT_ONCE: usize = 1_000;
/// Devices labelled in one transaction, for the same reason.
const LABELLED_AT_ONCE: usize = 500;
/// Events of one delivery, at most: its blocks, each as often as there are elements that receive it.
const EVENTS_MAX: usize = 20_000;
/// Bytes of the payloads of one delivery together, at most.
const EVENTS_BYTES_MAX: usize = 64 << 20;

/// The result of a delivery.
#[derive(Debug)]
pub struct WebhookReport {
    /// True if the caller wants all details.
    pub debug: bool,
    /// The body.
    pub body: RawJson,
    /// Number of event blocks in the body.
    pub blocks: usize,
    /// The integration type.
    pub integration: &'static str,
    /// The label that identifies devices.
    pub device_tag: String,
    /// The organization in which devices are searched and created.
    pub organization: OrganizationId,
    /// The user who delivered it.
    pub owner: UserId,
    /// The labels that its devices were to get.
    pub extra_meta: RawJson,
    /// The faults found in the body.
    pub errors: Vec<String>,
    /// The results, device by device.
    pub tasks: Vec<TaskReport>,
    /// The memory that the report occupies.
    pub held: TenantShare,
}

/// The result for one device.
#[derive(Debug)]
pub struct TaskReport {
    /// The third party's identifier of the device.
    pub tag_value: String,
    /// The project in which it would be created.
    pub project: Option<ProjectId>,
    /// The payloads sent for it, in order.
    pub payloads: Vec<RawJson>,
    /// The device, if it was created now.
    pub provisioned: Option<Provision>,
    /// The created events, which are all durable.
    pub events: Vec<(DeviceId, EventId, RawJson)>,
    /// The failures.
    pub errors: Vec<String>,
}

/// A device that was created.
#[derive(Clone, Debug)]
pub struct Provision {
    /// Its identifier.
    pub id: DeviceId,
    /// Its name.
    pub name: String,
    /// Its project.
    pub project: ProjectId,
}

impl WebhookReport {
    /// Returns all failures, in order.
    pub fn all_errors(&self) -> impl Iterator<Item = &String> {
        self.errors.iter().chain(self.tasks.iter().flat_map(|task| &task.errors))
    }
}

/// The target of a delivery.
struct Target {
    permit: CanWrite<OrganizationId>,
    subtree: CanList,
    /// The organization at the top of its tree.
    top: OrganizationId,
}

impl Hub {
    /// Processes a delivery with the given parameters. A refused delivery has changed nothing.
    ///
    /// Needs `WebhookReceive` on the organization. The devices and events in the report are durable when this returns.
    /// The body is parsed on a thread that may block, in a slot of its tenant.
    ///
    /// # Errors
    /// `Invalid`: all faults of the parameters and the body, including too many events. `NoRoom`: running deliveries
    /// use all the memory they may. `Busy`: too many bodies wait, or the stores accepted nothing at all; the delivery
    /// may be repeated.
    pub async fn webhook_receive(
        &self,
        caller: &Caller,
        given: HashMap<&'static str, Given>,
        body: Bytes,
    ) -> Result<WebhookReport> {
        self.0.identity.allow(caller, Action::WebhookReceive).await?;
        let mut faults = Faults::new();
        let request = faults.gather(Request::read(|name| given.get(name).cloned()))?.map(Arc::new);
        let target = match &request {
            Some(request) => faults.gather(self.webhook_target(caller, request).await)?,
            None => None,
        };
        let extracted = faults.gather(self.taken_apart(caller, request.clone(), body).await)?.flatten();
        let (Some(request), Some(target), Some(extracted)) = (request, target, extracted) else {
            return Err(faults.into_error());
        };
        self.webhook_run(caller, &request, &target, extracted).await
    }

    /// Returns the organization of a delivery after checking that it and the project may be used.
    async fn webhook_target(&self, caller: &Caller, request: &Request) -> Result<Target> {
        let mut faults = Faults::new();
        let lineage = match &request.organization {
            None => Some(caller.lineage.clone()),
            Some(named) => {
                let found = self.0.caches.lineage_of(named.value).await?.filter(|lineage| caller.reaches(lineage));
                if found.is_none() {
                    faults.add(named.field.as_str(), "no such organization");
                }
                found
            }
        };
        if let Some(named) = &request.project
            && !self.is_usable(caller, named.value).await?
        {
            faults.add(named.field.as_str(), "no such project");
        }
        let lineage = faults.unless_any(lineage)?.ok_or(Error::Missing("organization"))?;
        let hidden = |refusal: access::Refusal| refusal.into_error("organization");
        let permit = access::write(caller, Action::WebhookReceive, lineage.own(), &lineage).map_err(hidden)?;
        let subtree = access::list(caller, Action::WebhookReceive, &lineage, None).map_err(hidden)?;
        Ok(Target { permit, subtree, top: lineage.top() })
    }

    async fn is_usable(&self, caller: &Caller, project: ProjectId) -> Result<bool> {
        Ok(if_there(self.0.identity.project_read(caller, project).await)?.is_some())
    }

    /// Finds the devices, creates missing ones, labels them, and runs their events.
    async fn webhook_run(
        &self,
        caller: &Caller,
        request: &Request,
        target: &Target,
        (extracted, mut held): (Extracted, TenantShare),
    ) -> Result<WebhookReport> {
        let size = DeliverySize::of(&extracted, &request.label);
        let Extracted { body, blocks, tasks, labels, errors } = extracted;
        let values: Vec<&str> = tasks.iter().map(|task| task.tag_value.as_str()).collect();
        // Devices are also found by labels that their designs have set.
        let caught_up = self.0.outbox.caught_up(target.top, &[Shown::State]).await;
        let known = self.registry().devices_labelled(&target.subtree, request.tag(), &values).await?;
        if !caught_up && values.iter().any(|value| !known.contains_key(*value)) {
            // A device that seems missing may exist: it must not be created twice.
            return Err(Error::Busy);
        }
        let tasks = task::merge(tasks, |task| match known.get(&task.tag_value) {
            Some(TagCarrier::Device(device, _)) => TaskDevice::Known(device.id),
            Some(TagCarrier::Ambiguous) | None => TaskDevice::Unknown(request.tag_case.fold(&task.tag_value)),
        });
        let usable = self.usable_projects(caller, &tasks, &known).await?;
        let ahead = self.events_ahead(request.integration, &tasks, &known, &usable).await?;
        memory::resize(&self.0.deliveries, &mut held, size.run(ahead))?;
        let mut work: Vec<TaskRun> = tasks.into_iter().map(|task| TaskRun::begin(task, &known)).collect();
        let at_once = size.devices_at_once(PROVISIONED_AT_ONCE);
        self.provision(caller, request, target, (&labels, &usable), work.as_mut_slice(), at_once).await?;
        self.label(caller, &labels, &mut work).await?;
        let tasks = self.run_all(caller, request.integration, work).await?;
        Ok(WebhookReport {
            debug: request.debug,
            body,
            blocks,
            integration: request.integration.name(),
            device_tag: request.label.clone(),
            organization: *target.permit.target(),
            owner: caller.user,
            extra_meta: labels.over(&empty_object()).0,
            errors,
            tasks,
            held,
        })
    }

    /// Returns those projects for new devices that the caller may use.
    async fn usable_projects(&self, caller: &Caller, tasks: &[Task], known: &Known) -> Result<HashSet<ProjectId>> {
        let unknown = tasks.iter().filter(|task| !known.contains_key(&task.tag_value));
        let wanted: HashSet<ProjectId> = unknown.filter_map(|task| task.project).collect();
        let mut usable = HashSet::new();
        for project in wanted {
            if self.is_usable(caller, project).await? {
                usable.insert(project);
            }
        }
        Ok(usable)
    }

    /// Counts the events that a delivery will make; too many refuse it before any is made. If designs change meanwhile,
    /// the same limit applies where events are made.
    async fn events_ahead(
        &self,
        integration: Integration,
        tasks: &[Task],
        known: &Known,
        usable: &HashSet<ProjectId>,
    ) -> Result<EventsAmount> {
        let (mut elements, mut makes) = (HashMap::new(), EventsAmount::default());
        for task in tasks {
            let project = match known.get(&task.tag_value) {
                Some(TagCarrier::Device(_, project)) => Some(*project),
                Some(TagCarrier::Ambiguous) => None,
                None => task.project.filter(|project| usable.contains(project)),
            };
            let Some(project) = project else { continue };
            let each = match elements.get(&project) {
                Some(each) => *each,
                // The project may have been deleted meanwhile.
                None => if_there(self.0.caches.plan_of_project(project).await)?
                    .map_or(0, |plan| run::elements_of(&plan, integration).len()),
            };
            elements.insert(project, each);
            makes = makes.and(EventsAmount::of(&task.blocks, each));
        }
        match makes.is_allowed() {
            true => Ok(makes),
            false => Err(Error::invalid("body", too_many_events(makes, integration))),
        }
    }

    /// Parses the body on a thread that may block, in a slot of the tenant, and reserves memory for the result. Without
    /// a request, only the faults of the body are returned.
    async fn taken_apart(
        &self,
        caller: &Caller,
        request: Option<Arc<Request>>,
        body: Bytes,
    ) -> Result<Option<(Extracted, TenantShare)>> {
        let (tenant, bytes, hub) = (caller.lineage.top(), body.len(), self.clone());
        let work = move || match request {
            Some(request) => {
                let extracted = tasks::extract(&request, &body)?;
                let size = DeliverySize::of(&extracted, &request.label);
                Ok(Some((extracted, memory::take(&hub.0.deliveries, tenant, size.extracted())?)))
            }
            None => match RawJson::check(body) {
                Ok(_) => Ok(None),
                Err(fault) => Err(Error::invalid("body", format!("is not valid JSON: {fault}"))),
            },
        };
        self.0.env.bodies().take_apart(Some(tenant), bytes, work).await?
    }

    /// Creates the missing devices, each once, in batches of `at_once`.
    async fn provision(
        &self,
        caller: &Caller,
        request: &Request,
        target: &Target,
        (labels, usable): (&NewLabels, &HashSet<ProjectId>),
        work: &mut [TaskRun],
        at_once: usize,
    ) -> Result<()> {
        let mut missing = Vec::new();
        for work in work.iter_mut().filter(|work| work.is_missing) {
            let Some(project) = work.task.project else {
                work.fail(
                    "no device carries the tag, and neither projectUuid nor projectUuidMap names a project for it",
                );
                continue;
            };
            match usable.contains(&project) {
                true => missing.push((work, project)),
                false => work.fail(NO_SUCH_PROJECT),
            }
        }
        for missing in missing.chunks_mut(at_once) {
            let new = |(work, project): &mut (&mut TaskRun, ProjectId)| {
                self.new_tagged(caller, request, labels, work, *project)
            };
            let wanted: Vec<NewTagged> = missing.iter_mut().map(new).collect();
            let now = self.now();
            let made = self.registry().devices_provision(&target.permit, request.tag(), &wanted, now).await?;
            for (((work, project), new), made) in missing.iter_mut().zip(wanted).zip(made) {
                work.take(made, Provision { id: new.device.id, name: new.device.name, project: *project });
            }
        }
        Ok(())
    }

    fn new_tagged(
        &self,
        caller: &Caller,
        request: &Request,
        labels: &NewLabels,
        work: &mut TaskRun,
        project: ProjectId,
    ) -> NewTagged {
        let value = work.task.tag_value.clone();
        let tag = Json::Object(vec![(request.label.as_str().into(), Json::Text(value.as_str().into()))]);
        let (meta, refused) = labels.over(&RawJson::from(&tag));
        work.has_no_room(refused);
        let device = NewDevice {
            id: DeviceId(self.0.env.new_id().0),
            project,
            name: value.chars().take(NAME_CHARACTERS_MAX).collect(),
            version: None,
            protocol: None,
            protocols: Vec::new(),
            meta,
            description: None,
            street_address: None,
            created_by: Some(caller.user),
            // The token is never shown: a user who needs one creates a new one.
            token: Secret::new(self.0.env.chance()).digest(),
        };
        NewTagged { value, device }
    }

    /// Labels the devices that existed before, if that changes anything.
    async fn label(&self, caller: &Caller, labels: &NewLabels, work: &mut [TaskRun]) -> Result<()> {
        if *labels == NewLabels::default() {
            return Ok(());
        }
        let mut permits: Vec<CanWrite<DeviceRef>> = Vec::new();
        for work in work.iter_mut().filter(|work| work.provisioned.is_none() && work.task.has_events()) {
            let Some(device) = work.device else { continue };
            let known = async {
                let (permit, entry) = self.0.identity.user_device_write(caller, device, Action::WebhookReceive).await?;
                Ok((permit, self.0.caches.device_view(&entry).await?))
            };
            let Some((permit, view)) = if_there(known.await)? else {
                // The device was deleted since it was found.
                work.device = None;
                work.fail(GONE);
                continue;
            };
            let (labelled, refused) = labels.over(&view.meta);
            work.has_no_room(refused);
            if labelled != view.meta {
                permits.push(permit);
            }
        }
        // Written in batches, so that no other writer of the registry waits for the labels of all.
        for permits in permits.chunks(LABELLED_AT_ONCE) {
            // Earlier changes of a design must not overwrite this one.
            let settled = self.0.delivery.settle_findings(permits.iter()).await?;
            // Done even after a failure, because the write may have succeeded.
            let _changed = ScopeGuard::new(|| {
                permits.iter().for_each(|permit| self.0.caches.device_changed(permit.target().id));
            });
            self.registry().devices_label(permits, labels, self.now()).await?;
            settled.end().await?;
        }
        let is_set: HashSet<&str> = labels.set.iter().map(|(label, _)| label.as_str()).collect();
        for permit in &permits {
            self.0.delivery.drop_parked_labels(permit, &|label| is_set.contains(label)).await?;
        }
        Ok(())
    }
}

const GONE: &str = "the device was deleted meanwhile";

fn too_many_events(EventsAmount { events, bytes }: EventsAmount, integration: Integration) -> String {
    let mebibytes = EVENTS_BYTES_MAX >> 20;
    format!(
        "makes {events} events of {bytes} bytes together, for every block goes to each deviceEvent element of the \
         integration {} in its device's design: a delivery may make {EVENTS_MAX}, of {mebibytes} MiB",
        integration.name()
    )
}

/// Number and bytes of events.
#[derive(Clone, Copy, Default)]
struct EventsAmount {
    events: usize,
    bytes: usize,
}

impl EventsAmount {
    /// Counts the events of blocks that each go to this many elements; a refused block becomes one event.
    fn of(blocks: &[Block], elements: usize) -> Self {
        blocks.iter().fold(Self::default(), |all, block| {
            let events = if block.refused.is_some() { 1 } else { elements.max(1) };
            all.and(Self { events, bytes: block.payload.bytes().len().saturating_mul(events) })
        })
    }

    fn and(self, more: Self) -> Self {
        Self { events: self.events.saturating_add(more.events), bytes: self.bytes.saturating_add(more.bytes) }
    }

    /// Returns true if one delivery may make this many.
    fn is_allowed(self) -> bool {
        self.events <= EVENTS_MAX && self.bytes <= EVENTS_BYTES_MAX
    }
}

#[cfg(test)]
mod tests;
