//! Devices.

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
use isobar_store::registry::{DeviceChange, DeviceFilter};

use super::device_selection::Wanted;
use crate::cache::entries::DeviceEntry;
use crate::env::Env;
use crate::error::{ORGANIZATION, PROJECT, if_there, naming};
use crate::identity::authentication::Principal;
use crate::support::bounded_jobs::BoundedJobs;
use crate::support::scope_guard::ScopeGuard;
use crate::{Hub, TreeQuery};

/// Lists without filters that are read at a time, which is what a registry on SQLite has readers for, and those that are or
/// wait, of all tenants and of one; beyond, 503.
const LISTS_AT_ONCE: usize = 4;
const LISTS_MAX: usize = 1_024;
const LISTS_OF_ONE_MAX: usize = 512;
/// Times that a change of a device is decided, each on where it was just before; beyond, 503.
pub(super) const DECISIONS_MAX: usize = 16;

/// The slots of lists.
pub(crate) fn listing_jobs() -> BoundedJobs {
    BoundedJobs::shared(LISTS_AT_ONCE, LISTS_MAX, LISTS_OF_ONE_MAX)
}

/// Which last values are wanted with a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LastChoice {
    /// None.
    #[default]
    None,
    /// Those of every storage element.
    All,
    /// Those of these storage elements.
    Elements(Vec<String>),
}

/// A device, with last values if they were asked for.
pub struct DeviceView {
    /// The device.
    pub device: Device,
    /// Its last values.
    pub last: LastRead,
}

/// The last values of a device, which are read one by one: all together may be 16 MiB.
pub struct LastRead {
    env: Arc<Env>,
    permit: CanRead<DeviceRef>,
    elements: std::vec::IntoIter<Arc<str>>,
}

impl LastRead {
    /// Whether none were asked for, or there is nothing that could have any.
    pub fn is_none(&self) -> bool {
        self.elements.len() == 0
    }

    /// The next of the storage elements that were asked for, as far as they hold anything, and its last values.
    ///
    /// # Errors
    /// `Busy`: the store gives no answer.
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
    /// The project that a body names: one that the caller can see.
    pub(super) async fn project_of_input(&self, caller: &Caller, named: Option<ProjectId>) -> Result<ProjectId> {
        let unknown = || Error::invalid("projectUuid", "no such project");
        let id = named.ok_or_else(unknown)?;
        if_there(self.0.identity.project_read(caller, id).await)?.map(|_| id).ok_or_else(unknown)
    }

    /// Lists the devices that pass the filters. [`Hub::device_with_last`] adds to each what the registry does not know.
    ///
    /// Needs `DeviceRead` on that part of the tree. Waits up to a second for what designs have just found out, and for a
    /// slot among the lists; with filters among the selections.
    ///
    /// # Errors
    /// `Invalid`: the metadata of the page is too large together. `Busy`: too many lists or selections wait; or there are filters
    /// on what designs find out, and more of it is unwritten than can be laid over the registry.
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
            // What takes too long, and what the registry refuses.
            hub.0.outbox.apply_pending(&mut page.items);
            Ok(page)
        };
        jobs.drive_for(caller, "device_list", steps).await
    }

    /// A device of a list with its last values, which are read as the list is written.
    ///
    /// Needs `DeviceRead`.
    pub async fn device_with_last(&self, caller: &Caller, device: Device, last: &LastChoice) -> Result<DeviceView> {
        let read = access::read(caller, Action::DeviceRead, device.reference(), &device.lineage);
        let read = read.map_err(|refusal| refusal.into_error("device"))?;
        self.with_last(device, None, &read, last).await
    }

    /// The devices of a part of the tree that have coordinates within a box.
    ///
    /// Needs `DeviceRead` on that part of the tree. Waits up to a second for what designs have just found out.
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

    /// The devices of a part of the tree that stand within a box, by the cells of a grid of so many degrees.
    ///
    /// Needs `DeviceRead` on that part of the tree. Waits up to a second for what designs have just found out, and for a slot
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

    /// Fetches a device. Its last values are read by whoever reads them there.
    ///
    /// Needs `DeviceRead`; a device reads itself.
    pub async fn device_fetch(&self, principal: &Principal, id: DeviceId, last: LastChoice) -> Result<DeviceView> {
        let (permit, entry) = self.0.identity.device_read(principal, id).await?;
        let device = self.0.caches.device_now(&permit, &entry).await?;
        self.with_last(device, Some(&entry), &permit, &last).await
    }

    /// Adds what the registry does not know: last values, and activity that is not written yet.
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

    /// Changes a device: what the body leaves out keeps its value.
    ///
    /// Needs `DeviceUpdate`, and on another organization too if the device goes there. Durable when this returns; the
    /// next event sees it. Waits up to ten seconds for what the device's design has found out.
    ///
    /// # Errors
    /// `Busy`: what the design has found out could not be written in that time, or what former designs of the new project have
    /// hidden is not dropped yet, or the device went from place to place meanwhile; nothing was changed.
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

    /// Changes a device, unless it goes elsewhere while that is decided: none.
    async fn device_updated(
        &self,
        caller: &Caller,
        permit: &CanWrite<DeviceRef>,
        entry: &DeviceEntry,
        input: DeviceInput,
    ) -> Result<Option<Device>> {
        // What the device found out earlier must not be written over what is written here.
        self.0.delivery.settle_findings(std::iter::once(entry.device.key)).await?;
        let (names_labels, names_owner) = (input.meta.is_some(), input.organization.is_some());
        let registry = self.registry();
        let old = registry.device_fetch(&permit.reading()).await?.ok_or(Error::Missing("device"))?;
        let change = self.device_change(caller, &old, input).await?;
        let _moving = match change.project == old.project {
            true => None,
            false => Some(self.0.jobs.leave_retention(permit, &old, change.project).await?),
        };
        let device = {
            // Whatever becomes of it: where it failed it may have been done.
            let _changed = ScopeGuard::new(|| self.0.caches.device_changed(old.id));
            match registry.device_update(permit, &change, self.now()).await {
                Err(StoreError::Outdated(_)) => return Ok(None),
                device => device.map_err(naming(&[ORGANIZATION, PROJECT]))?,
            }
        };
        if device.organization != old.organization || device.organization != entry.lineage.own() {
            self.0.caches.departures().note(old.lineage.top());
        }
        if names_owner {
            self.0.usage.unsettle();
        }
        if names_labels {
            self.0.delivery.drop_parked_labels(permit, &|_| true).await?;
        }
        Ok(Some(device))
    }

    /// What a body changes, if the caller may hand the device to whom it names.
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

    /// Deletes a device with everything it said.
    ///
    /// Needs `DeviceDelete`. From the registry it is gone durably before anything else is; what it said may be removed
    /// later if this fails on the way.
    pub async fn device_delete(&self, caller: &Caller, id: DeviceId) -> Result<()> {
        let (permit, entry) = self.0.identity.user_device_write(caller, id, Action::DeviceDelete).await?;
        // First the registry: from here on no event of it is accepted. What a crash leaves in the telemetry store
        // can no longer be reached by anybody.
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
            // Even if it failed: it may have been done.
            let _changed = ScopeGuard::new(|| self.0.caches.device_changed(id));
            self.registry().device_token_set(&permit, &token.digest()).await?;
        }
        // Who waits with the old one learns it now.
        self.0.ingest.ring(entry.device.key);
        Ok(token)
    }
}

/// Metadata that a body brings has a bound. What was larger before may stay as large.
pub(super) fn check_meta(meta: Option<&RawJson>, before: Option<&RawJson>, faults: &mut Faults) {
    let before = before.map_or(MetaSize { labels: 0, bytes: 0 }, MetaSize::of);
    if let Some(most) = meta.and_then(|meta| MetaSize::of(meta).exceeds(before)) {
        faults.add("meta", format!("must hold {most}"));
    }
}
