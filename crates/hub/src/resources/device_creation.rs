//! Creates devices: one, or many in bulk, with the same checks.

use std::collections::{BTreeMap, HashMap};

use isobar_model::access::{Action, Caller, CanWrite, Lineage};
use isobar_model::check::Faults;
use isobar_model::device::{BulkItem, Device, DeviceInput};
use isobar_model::error::{Error, Fault, Result};
use isobar_model::ids::{DeviceId, OrganizationId, ProjectId};
use isobar_model::project::empty_object;
use isobar_model::secret::Secret;
use isobar_store::error::StoreError;
use isobar_store::registry::{DEVICE_LIMIT_REACHED, DeviceCreation, NewDevice, NewDevices};

use super::devices::check_meta;
use crate::Hub;
use crate::error::{ORGANIZATION, PROJECT, naming, of_one_of_many};
use crate::support::bounded_jobs::BoundedJobs;
use isobar_quota::limits;

/// Devices created in one transaction: other writers have their turn in between, and none waits long for its sync.
const DEVICES_OF_A_TRANSACTION: usize = 50;
/// Name of the threads that create devices in bulk.
const CREATING_THREAD: &str = "isobar-bulks";

/// The outcome of a bulk creation.
#[derive(Debug, Default)]
pub struct CreationOutcome {
    /// The created items: their place, and the device with its token, which is shown only this once. In a test, the
    /// items that could be created, without a device.
    pub made: Vec<(usize, Option<(DeviceId, Secret)>)>,
    /// The place of every other item, and the reason for its failure.
    pub errors: Vec<(usize, String)>,
}

/// Starts the jobs of bulk creations.
///
/// # Errors
/// Returns an error if the system gives no more threads.
pub(crate) fn creation_jobs() -> Result<BoundedJobs> {
    BoundedJobs::giving_way(CREATING_THREAD, &limits::BULK_CHANGES)
}

/// A device that can be created, as far as its body and its caller are concerned.
struct Checked {
    permit: CanWrite<OrganizationId>,
    lineage: Lineage,
    new: NewDevice,
    token: Secret,
}

/// Caches which projects the caller can see, because the bodies of one call mostly name the same ones.
#[derive(Default)]
struct Looked {
    projects: HashMap<ProjectId, bool>,
}

impl Hub {
    /// Creates a device; its token is shown only this once.
    ///
    /// Needs `DeviceCreate` on the organization, and to see the project. Durable when this returns.
    ///
    /// # Errors
    /// `Invalid`: all faults of the input, an unknown project and a reached device limit among them.
    pub async fn device_create(&self, caller: &Caller, input: DeviceInput) -> Result<(Device, Secret)> {
        let Checked { permit, new, token, .. } = self.device_check(caller, input, &mut Looked::default()).await?;
        let made =
            self.registry().device_create(&permit, new, self.now()).await.map_err(naming(&[ORGANIZATION, PROJECT]))?;
        self.0.usage.unsettle();
        Ok((made, token))
    }

    /// Creates many devices, each item by itself; a test only reports which could be created. The work continues if the
    /// caller disconnects, and never leaves a device half-made.
    ///
    /// Needs `DeviceCreate` on each organization, and to see each project. Devices in `made` are durable when this
    /// returns. Waits for a slot among the bulk creations; writes in transactions of 50 devices.
    ///
    /// # Errors
    /// `Forbidden`: the role is too low for any device. `Busy`: too many bulk creations wait, and nothing was created.
    /// Faults of one item are part of the outcome.
    pub async fn devices_create(&self, caller: &Caller, items: Vec<BulkItem>, test: bool) -> Result<CreationOutcome> {
        self.0.identity.allow(caller, Action::DeviceCreate).await?;
        let (hub, user) = (self.clone(), caller.clone());
        let steps = async move {
            if test { hub.devices_try(&user, items).await } else { hub.devices_make(&user, items).await }
        };
        self.0.creation_jobs.drive_for(caller, "devices_create", steps).await
    }

    /// Returns the project that a body names, if the caller can see it.
    async fn project_looked_at(
        &self,
        caller: &Caller,
        named: Option<ProjectId>,
        looked: &mut Looked,
    ) -> Result<ProjectId> {
        let known = named.and_then(|project| looked.projects.get(&project).copied());
        let project = match known {
            Some(true) => return named.ok_or(Error::Missing("project")),
            Some(false) => self.project_of_input(caller, None).await,
            None => self.project_of_input(caller, named).await,
        };
        if let (Some(named), Ok(_) | Err(Error::Invalid(_))) = (named, &project) {
            looked.projects.insert(named, project.is_ok());
        }
        project
    }

    /// Checks that a device can be created, and prepares it.
    async fn device_check(&self, caller: &Caller, input: DeviceInput, looked: &mut Looked) -> Result<Checked> {
        let mut faults = Faults::new();
        let owner = self.0.identity.owner_permit(caller, input.organization, Action::DeviceCreate).await;
        let owner = faults.gather(owner)?;
        let project = faults.gather(self.project_looked_at(caller, input.project, looked).await)?;
        check_meta(input.meta.as_ref(), None, &mut faults);
        let (Some((permit, lineage)), Some(project), false) = (owner, project, faults.any()) else {
            return Err(faults.into_error());
        };
        let token = Secret::new(self.0.env.chance());
        let new = NewDevice {
            id: DeviceId(self.0.env.new_id().0),
            project,
            name: input.name,
            version: input.version.over(None),
            protocol: input.protocol.over(None),
            protocols: input.protocols.unwrap_or_default(),
            meta: input.meta.unwrap_or_else(empty_object),
            description: input.description.over(None),
            street_address: input.street_address.over(None),
            created_by: Some(caller.user),
            token: token.digest(),
        };
        Ok(Checked { permit, lineage, new, token })
    }
}

/// Bulk creation of devices.
impl Hub {
    /// Returns the valid items by their place, and records the faults of the others.
    async fn devices_check(
        &self,
        caller: &Caller,
        items: Vec<BulkItem>,
        outcome: &mut CreationOutcome,
    ) -> Result<Vec<(usize, Checked)>> {
        let (mut looked, mut checked) = (Looked::default(), Vec::with_capacity(items.len()));
        for (index, item) in items.into_iter().enumerate() {
            let item = match item {
                Ok(input) => self.device_check(caller, input, &mut looked).await,
                Err(faults) => Err(Error::Invalid(faults)),
            };
            match item {
                Ok(device) => checked.push((index, device)),
                // A failing store fails for all items, and nothing was created yet.
                Err(Error::Busy) => return Err(Error::Busy),
                Err(error) => outcome.errors.push((index, words(error))),
            }
        }
        Ok(checked)
    }

    /// Tests which devices could be created.
    async fn devices_try(&self, caller: &Caller, items: Vec<BulkItem>) -> Result<CreationOutcome> {
        let mut outcome = CreationOutcome::default();
        let checked = self.devices_check(caller, items, &mut outcome).await?;
        let lineages: BTreeMap<String, Lineage> =
            checked.iter().map(|(_, device)| (device.lineage.to_string(), device.lineage.clone())).collect();
        let lineages: Vec<Lineage> = lineages.into_values().collect();
        let left = self.registry().devices_left(&lineages).await?;
        let mut left: HashMap<OrganizationId, u64> = left.into_iter().map(|of| (of.organization, of.left)).collect();
        for (index, device) in checked {
            if device.lineage.ids().iter().any(|id| left.get(id) == Some(&0)) {
                outcome.errors.push((index, refusal(DeviceCreation::NoRoom).unwrap_or_default()));
                continue;
            }
            for id in device.lineage.ids() {
                left.entry(*id).and_modify(|count| *count -= 1);
            }
            outcome.made.push((index, None));
        }
        Ok(outcome.in_order())
    }

    /// Creates the devices that can be created.
    async fn devices_make(&self, caller: &Caller, items: Vec<BulkItem>) -> Result<CreationOutcome> {
        let mut outcome = CreationOutcome::default();
        let checked = self.devices_check(caller, items, &mut outcome).await?;
        // Ordered by lineage, so that two bulk creations for several organizations cannot deadlock.
        let mut of_organizations = BTreeMap::<String, Vec<(usize, Checked)>>::new();
        for (index, device) in checked {
            of_organizations.entry(device.lineage.to_string()).or_default().push((index, device));
        }
        let mut left = of_organizations.into_values().flatten().peekable();
        while left.peek().is_some() {
            let some = left.by_ref().take(DEVICES_OF_A_TRANSACTION).collect();
            self.devices_commit(some, &mut outcome).await?;
        }
        Ok(outcome.in_order())
    }

    /// Creates devices, grouped by organization, in one transaction.
    async fn devices_commit(&self, devices: Vec<(usize, Checked)>, outcome: &mut CreationOutcome) -> Result<()> {
        let (mut groups, mut tokens) = (Vec::<NewDevices>::new(), Vec::with_capacity(devices.len()));
        for (index, Checked { permit, new, token, .. }) in devices {
            tokens.push((index, new.id, token));
            match groups.last_mut().filter(|group| group.permit.target() == permit.target()) {
                Some(group) => group.devices.push(new),
                None => groups.push(NewDevices { permit, devices: vec![new] }),
            }
        }
        let created = self.registry().devices_create(&groups, self.now()).await;
        self.0.usage.unsettle();
        let created = match created.map_err(Error::from) {
            Ok(created) => created,
            Err(error) if outcome.made.is_empty() => return Err(error),
            // Devices created before stay, and their tokens must be returned.
            Err(error) => {
                let words = words(error);
                outcome.errors.extend(tokens.into_iter().map(|(index, ..)| (index, words.clone())));
                return Ok(());
            }
        };
        for ((index, id, token), created) in tokens.into_iter().zip(created.into_iter().flatten()) {
            match refusal(created) {
                None => outcome.made.push((index, Some((id, token)))),
                Some(words) => outcome.errors.push((index, words)),
            }
        }
        Ok(())
    }
}

impl CreationOutcome {
    fn in_order(mut self) -> Self {
        self.made.sort_unstable_by_key(|(index, _)| *index);
        self.errors.sort_unstable_by_key(|(index, _)| *index);
        self
    }
}

/// Returns the reason that a device was not created, worded as for a single creation; `None` if it was created.
fn refusal(created: DeviceCreation) -> Option<String> {
    Some(words(match created {
        DeviceCreation::Made => return None,
        DeviceCreation::NoRoom => StoreError::Limit(DEVICE_LIMIT_REACHED).into(),
        DeviceCreation::NoProject => naming(&[PROJECT])(StoreError::Gone(PROJECT.0)),
        DeviceCreation::NoOrganization => naming(&[ORGANIZATION])(StoreError::Gone(ORGANIZATION.0)),
    }))
}

/// Returns the message of a failed item for the client; the cause of an internal error goes to the log.
fn words(error: Error) -> String {
    of_one_of_many(&error, "an item of a bulk creation", |Fault { field, message }| match field.as_str() {
        "body" => message.clone(),
        _ => format!("{field}: {message}"),
    })
}
