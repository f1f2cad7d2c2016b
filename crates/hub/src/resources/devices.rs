//! Lists, reads, changes and deletes devices.

use std::sync::Arc;

use isobar_model::access::{self, Action, Caller, CanRead, CanWrite};
use isobar_model::check::Faults;
use isobar_model::device::{Device, DeviceInput, PlacedDevice};
use isobar_model::error::{Error, Result};
use isobar_model::event::LastValues;
use isobar_model::ids::{DeviceId, DeviceRef, ProjectId};
use isobar_model::json::RawJson;
use isobar_model::map::{DeviceCluster, MapBox};
use isobar_model::meta::MetaSize;
use isobar_model::page::{ListRequest, Page, PageRequest};
use isobar_model::secret::Secret;
use isobar_store::error::StoreError;
use isobar_store::registry::{Assigned, DeviceChange, DeviceFilter};

use super::device_selection::Wanted;
use crate::cache::entries::DeviceEntry;
use crate::env::Env;
use crate::error::{ORGANIZATION, PROJECT, if_there, naming};
use crate::identity::authentication::Principal;
use crate::support::bounded_jobs::BoundedJobs;
use crate::support::scope_guard::ScopeGuard;
use crate::{Hub, TreeQuery};
use isobar_quota::limits;

/// Attempts to change a device that keeps moving between organizations; beyond this the call is refused with 503.
pub(super) const DECISIONS_MAX: usize = 16;

/// Makes the slots of lists without filters.
pub(crate) fn listing_jobs() -> BoundedJobs {
    BoundedJobs::shared(&limits::DEVICE_LISTS)
}

/// Selects the last values to return with a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LastChoice {
    /// No values.
    #[default]
    None,
    /// The values of every storage element.
    All,
    /// The values of these storage elements.
    Elements(Vec<String>),
}

/// A device, with last values if they were requested.
pub struct DeviceView {
    /// The device.
    pub device: Device,
    /// Its last values.
    pub last: LastRead,
}

/// Reads the last values of a device one by one, because all together may be 16 MiB.
pub struct LastRead {
    env: Arc<Env>,
    permit: CanRead<DeviceRef>,
    elements: std::vec::IntoIter<Arc<str>>,
}

impl LastRead {
    /// Returns true if no values were requested, or no element could have any.
    pub fn is_none(&self) -> bool {
        self.elements.len() == 0
    }

    /// Returns the next requested storage element that is not empty, with its last values.
    ///
    /// # Errors
    /// `Busy`: the store does not answer.
    pub async fn next(&mut self) -> Result<Option<(Arc<str>, LastValues)>> {
        for element in self.elements.by_ref() {
            if let Some(values) = self.env.telemetry().last(&self.permit, &element).await? {
                return Ok(Some((element, values)));
            }
        }
        Ok(None)
    }
}

impl Hub {
    /// Returns the project that a body names, if the caller can see it.
    pub(super) async fn project_of_input(&self, caller: &Caller, named: Option<ProjectId>) -> Result<ProjectId> {
        let unknown = || Error::invalid("projectUuid", "no such project");
        let id = named.ok_or_else(unknown)?;
        if_there(self.0.identity.project_read(caller, id).await)?.map(|_| id).ok_or_else(unknown)
    }

    /// Lists the devices that pass the filters. [`Hub::device_with_last`] adds to each what the registry does not know.
    ///
    /// Needs `DeviceRead` on that part of the tree. Waits up to a second for pending changes of designs, and for a slot
    /// among the lists, or with filters among the selections.
    ///
    /// # Errors
    /// `Invalid`: the metadata of the page is too large together. `Busy`: too many lists or selections wait; or there
    /// are filters on changes of designs, and too many of these are pending to be included.
    pub async fn device_list(
        &self,
        caller: &Caller,
        tree: TreeQuery,
        list: ListRequest,
        filters: Vec<DeviceFilter>,
    ) -> Result<Page<Device>> {
        let (permit, tenant) = self.devices_permit(caller, tree).await?;
        let jobs = if filters.is_empty() { &self.0.listing_jobs } else { &self.0.selection_jobs };
        let hub = self.clone();
        let steps = async move {
            let mut page = if filters.is_empty() {
                hub.registry().device_list(&permit, &list).await?
            } else {
                let selection = hub.selection(tenant, filters, Wanted::Filtered)?;
                hub.registry().devices_selected(&permit, &list, &selection).await?
            };
            // Adds changes that could not be written in time, or that the registry refuses.
            hub.0.outbox.apply_pending(&mut page.items);
            Ok(page)
        };
        jobs.drive_for(caller, "device_list", steps).await
    }

    /// Fails if the last values of any device of a page cannot be read, before anything of it is written.
    ///
    /// # Errors
    /// `Busy`: a telemetry database is away.
    pub fn last_values_reachable(&self, page: &Page<Device>, last: &LastChoice) -> Result<()> {
        match last {
            LastChoice::None => Ok(()),
            LastChoice::Elements(_) | LastChoice::All => {
                Ok(page.items.iter().try_for_each(|device| self.telemetry().must_reach(device.key))?)
            }
        }
    }

    /// Adds the last values to a device of a list; they are read as the list is written.
    ///
    /// Needs `DeviceRead`.
    pub async fn device_with_last(&self, caller: &Caller, device: Device, last: &LastChoice) -> Result<DeviceView> {
        let read = access::read(caller, Action::DeviceRead, device.reference(), &device.lineage);
        let read = read.map_err(|refusal| refusal.into_error("device"))?;
        self.with_last(device, None, &read, last).await
    }

    /// Lists the devices of a part of the tree that have coordinates within a box.
    ///
    /// Needs `DeviceRead` on that part of the tree. Waits up to a second for pending changes of designs.
    pub async fn device_places(
        &self,
        caller: &Caller,
        tree: TreeQuery,
        within: MapBox,
        page: PageRequest,
    ) -> Result<Page<PlacedDevice>> {
        let (permit, _) = self.devices_permit(caller, tree).await?;
        Ok(self.registry().device_places(&permit, &within, page).await?)
    }

    /// Counts the devices of a part of the tree within a box, by the cells of a grid of this many degrees.
    ///
    /// Needs `DeviceRead` on that part of the tree. Waits up to a second for pending changes of designs, and for a slot
    /// among the lists.
    ///
    /// # Errors
    /// `Busy`: too many lists wait.
    pub async fn device_clusters(
        &self,
        caller: &Caller,
        tree: TreeQuery,
        within: MapBox,
        cell: f64,
    ) -> Result<Vec<DeviceCluster>> {
        let (permit, _) = self.devices_permit(caller, tree).await?;
        let hub = self.clone();
        let steps = async move { Ok(hub.registry().device_clusters(&permit, &within, cell).await?) };
        self.0.listing_jobs.drive_for(caller, "device_clusters", steps).await
    }

    /// Fetches a device. Its last values are read as they are written.
    ///
    /// Needs `DeviceRead`; a device reads itself.
    pub async fn device_fetch(&self, principal: &Principal, id: DeviceId, last: LastChoice) -> Result<DeviceView> {
        let (permit, entry) = self.0.identity.device_read(principal, id).await?;
        let device = self.0.caches.device_now(&permit, &entry).await?;
        self.with_last(device, Some(&entry), &permit, &last).await
    }

    /// Adds data that the registry does not have: last values, and pending activity.
    pub(super) async fn with_last(
        &self,
        mut device: Device,
        entry: Option<&DeviceEntry>,
        permit: &CanRead<DeviceRef>,
        last: &LastChoice,
    ) -> Result<DeviceView> {
        let seen = match entry {
            Some(entry) => self.0.activity.newest(entry.device.key, Some(entry)),
            None => self.0.activity.newest(device.key, self.0.caches.cached_device(device.id).as_deref()),
        };
        device.last_active = device.last_active.max(seen);
        let elements: Vec<Arc<str>> = match last {
            LastChoice::None => Vec::new(),
            LastChoice::Elements(names) => names.iter().map(|name| Arc::from(name.as_str())).collect(),
            LastChoice::All => {
                let series = self.telemetry().series(permit).await?;
                series.into_iter().map(|series| series.element).collect()
            }
        };
        let (env, permit, elements) = (Arc::clone(&self.0.env), permit.clone(), elements.into_iter());
        Ok(DeviceView { device, last: LastRead { env, permit, elements } })
    }

    /// Changes a device: fields missing in the body keep their values.
    ///
    /// Needs `DeviceUpdate`, also on the new organization if the device moves. Durable when this returns; the next
    /// event sees it. Waits up to ten seconds for pending changes of the device's design.
    ///
    /// # Errors
    /// `Busy`: pending changes of the design could not be written in that time, or values hidden by former designs of
    /// the new project are not deleted yet, or the device kept moving between organizations; nothing was changed.
    pub async fn device_update(
        &self,
        caller: &Caller,
        id: DeviceId,
        input: DeviceInput,
        last: LastChoice,
    ) -> Result<DeviceView> {
        for _ in 0..DECISIONS_MAX {
            let (permit, entry) = self.0.identity.user_device_write(caller, id, Action::DeviceUpdate).await?;
            if let Some(device) = self.device_updated(caller, &permit, &entry, input.clone()).await? {
                return self.with_last(device, Some(&entry), &permit.reading(), &last).await;
            }
        }
        Err(Error::Busy)
    }

    /// Changes a device, or returns `None` if it moves meanwhile.
    async fn device_updated(
        &self,
        caller: &Caller,
        permit: &CanWrite<DeviceRef>,
        entry: &DeviceEntry,
        input: DeviceInput,
    ) -> Result<Option<Device>> {
        // Earlier changes of the design must not overwrite this one.
        let settled = self.0.delivery.settle_findings(std::iter::once(permit)).await?;
        let (names_labels, names_owner) = (input.meta.is_some(), input.organization.is_some());
        let registry = self.registry();
        let old = registry.device_fetch(&permit.reading()).await?.ok_or(Error::Missing("device"))?;
        let change = self.device_change(caller, &old, input).await?;
        let _moving = match change.project == old.project {
            true => None,
            false => Some(self.0.jobs.leave_retention(permit, &old, change.project).await?),
        };
        let device = {
            // Done even after a failure, because the write may have succeeded.
            let _changed = ScopeGuard::new(|| self.0.caches.device_changed(old.id));
            match registry.device_update(permit, &change, self.now()).await {
                Err(StoreError::Outdated(_)) => return Ok(None),
                device => device.map_err(naming(&[ORGANIZATION, PROJECT]))?,
            }
        };
        if device.organization != old.organization || device.organization != entry.lineage.own() {
            self.0.caches.departures().note(old.lineage.top());
        }
        if device.organization != old.organization {
            self.alarms_unassign(Assigned::Of(device.key)).await;
        }
        if names_owner {
            self.0.usage.unsettle();
        }
        if names_labels {
            self.0.delivery.drop_parked_labels(permit, &|_| true).await?;
        }
        settled.end().await?;
        Ok(Some(device))
    }

    /// Returns the change that a body requests, if the caller may move the device to the named organization and
    /// project.
    async fn device_change(&self, caller: &Caller, old: &Device, input: DeviceInput) -> Result<DeviceChange> {
        let mut faults = Faults::new();
        let project = match input.project {
            Some(same) if same == old.project => same,
            named => faults.gather(self.project_of_input(caller, named).await)?.unwrap_or(old.project),
        };
        if let Some(other) = input.organization.filter(|named| *named != old.organization) {
            faults.gather(self.0.identity.owner_permit(caller, Some(other), Action::DeviceUpdate).await)?;
        }
        check_meta(input.meta.as_ref(), Some(&old.meta), &mut faults);
        faults.unless_any(DeviceChange {
            decided_in: (old.project, old.organization),
            name: input.name,
            project,
            organization: input.organization,
            version: input.version,
            protocol: input.protocol,
            protocols: input.protocols,
            meta: input.meta,
            description: input.description,
            street_address: input.street_address,
        })
    }

    /// Deletes a device with all its data.
    ///
    /// Needs `DeviceDelete`. The registry deletes it durably first; its stored data may be removed later if this fails
    /// on the way.
    pub async fn device_delete(&self, caller: &Caller, id: DeviceId) -> Result<()> {
        let (permit, entry) = self.0.identity.user_device_write(caller, id, Action::DeviceDelete).await?;
        self.telemetry().must_reach(entry.device.key)?;
        // Nothing would remove what the database keeps of a device that the registry no longer has, and it may be silent for
        // less time than makes it away.
        self.telemetry().database_healthy(entry.device.key.database()).await?;
        // The registry comes first: from now on no event of the device is accepted. Data that a crash leaves in the
        // telemetry store cannot be reached by any call.
        self.registry().device_delete(&permit).await?;
        self.0.caches.device_changed(id);
        self.0.caches.departures().note(entry.lineage.top());
        self.0.ingest.ring(entry.device.key);
        self.telemetry().forget(&permit).await?;
        self.0.usage.usage_fell(&entry).await
    }

    /// Makes a new token for a device; the old one ends at once.
    ///
    /// Needs `DeviceTokenRotate`. Durable when this returns.
    pub async fn device_token_rotate(&self, caller: &Caller, id: DeviceId) -> Result<Secret> {
        let (permit, entry) = self.0.identity.user_device_write(caller, id, Action::DeviceTokenRotate).await?;
        let token = Secret::new(self.0.env.chance());
        {
            // Done even after a failure, because the write may have succeeded.
            let _changed = ScopeGuard::new(|| self.0.caches.device_changed(id));
            self.registry().device_token_set(&permit, &token.digest()).await?;
        }
        // Wakes calls that wait with the old token.
        self.0.ingest.ring(entry.device.key);
        Ok(token)
    }
}

/// Checks the size of metadata in a body. Metadata that was already larger may stay as large.
pub(super) fn check_meta(meta: Option<&RawJson>, before: Option<&RawJson>, faults: &mut Faults) {
    let before = before.map_or(MetaSize { labels: 0, bytes: 0 }, MetaSize::of);
    if let Some(most) = meta.and_then(|meta| MetaSize::of(meta).exceeds(before)) {
        faults.add("meta", format!("must hold {most}"));
    }
}
