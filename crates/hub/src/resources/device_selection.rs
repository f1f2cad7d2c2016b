//! Selects the devices of a list, its CSV and a summary, with limits on concurrent selections.

use std::sync::Arc;

use futures::{Stream, StreamExt as _, stream};
use isobar_model::access::{self, Action, Caller, CanList};
use isobar_model::device::Device;
use isobar_model::error::Result;
use isobar_model::ids::{DeviceId, OrganizationId, ProjectId};
use isobar_model::page::ListRequest;
use isobar_store::registry::{
    ActiveDevices, DeviceFilter, DeviceSelection, DeviceSummary, ProjectDevices, UnwrittenDevices,
};

use crate::outbox::Shown;
use crate::support::bounded_jobs::BoundedJobs;
use crate::{Hub, TreeQuery};
use isobar_quota::{TenantShare, limits};

/// Devices that a CSV reads at a time.
const CSV_DEVICES_AT_ONCE: usize = 500;

/// Makes the slots of selections: lists with filters, summaries, and the beginnings of CSVs.
pub(crate) fn selection_jobs() -> BoundedJobs {
    BoundedJobs::shared(&limits::DEVICE_SELECTIONS)
}

/// The purpose of a selection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The devices that pass the filters.
    Filtered,
    /// Figures, which include pending changes whatever the filters are.
    Counted,
}

/// The figures of a part of the tree that the caller may know.
#[derive(Clone, Debug)]
pub struct SummaryView {
    /// Number of devices.
    pub total: u64,
    /// Number of devices by status, in the order of [`isobar_model::status::Status::ALL`].
    pub by_status: [u64; 6],
    /// Number of devices by project; without a name if the project is out of reach.
    pub by_project: Vec<(ProjectId, Option<String>, u64)>,
    /// Number of devices with activity within a time.
    pub active: ActiveDevices,
    /// Number of devices with coordinates.
    pub located: u64,
}

/// Reads all devices of a list in its order, fixed at the beginning. A device that is deleted or leaves the part of the
/// tree before its piece is read is left out.
pub struct DeviceExport {
    hub: Hub,
    caller: Caller,
    permit: CanList,
    left: std::vec::IntoIter<DeviceId>,
    _place: TenantShare,
}

impl Hub {
    /// Returns the permit to list the devices of a part of the tree, and their tenant, after waiting up to a second for
    /// its pending changes.
    pub(super) async fn devices_permit(&self, caller: &Caller, tree: TreeQuery) -> Result<(CanList, OrganizationId)> {
        let base = self.0.identity.tree_base(caller, tree.organization).await?;
        let permit = self.0.identity.list_permit(caller, tree, Action::DeviceRead).await?;
        self.0.outbox.caught_up(base.top(), &[Shown::State, Shown::Alarms]).await;
        Ok((permit, base.top()))
    }

    /// Returns the filters with the tenant's pending changes that they concern. Callers do this in a job
    /// ([`BoundedJobs::drive_for`]), because it may take long.
    pub(super) fn selection(
        &self,
        tenant: OrganizationId,
        filters: Vec<DeviceFilter>,
        wanted: Wanted,
    ) -> Result<DeviceSelection> {
        let mut selection = DeviceSelection { filters, ..DeviceSelection::default() };
        if wanted == Wanted::Counted || selection.looks_at_activity() {
            selection.heard = self.0.activity.of_tenant(tenant);
        }
        if wanted == Wanted::Counted || selection.looks_at_findings() {
            let reported = self.0.outbox.reported(tenant)?;
            let devices = reported.keys().copied().collect();
            let apply = Box::new(move |device: &mut Device| {
                if let Some(pending) = reported.get(&device.id) {
                    pending.apply_to(device);
                }
            });
            selection.unwritten = Some(UnwrittenDevices { devices, apply });
        }
        Ok(selection)
    }

    /// Counts the devices of a part of the tree that pass the filters: by status, by project, by last activity.
    ///
    /// Needs `DeviceRead` on that part of the tree. Waits up to a second for pending changes of designs, and for a slot
    /// among the selections.
    ///
    /// # Errors
    /// `Busy`: too many selections wait, or too many changes are pending to be included.
    pub async fn device_summary(
        &self,
        caller: &Caller,
        tree: TreeQuery,
        filters: Vec<DeviceFilter>,
    ) -> Result<SummaryView> {
        let (permit, tenant) = self.devices_permit(caller, tree).await?;
        let hub = self.clone();
        let steps = async move {
            let selection = hub.selection(tenant, filters, Wanted::Counted)?;
            let now = hub.now();
            Ok(hub.registry().device_summary(&permit, &selection, now).await?)
        };
        let summary = self.0.selection_jobs.drive_for(caller, "device_summary", steps).await?;
        let DeviceSummary { total, by_status, by_project, active, located } = summary;
        let seen = |project: ProjectDevices| {
            let ProjectDevices { project, name, lineage, count } = project;
            let may = access::read_shared(caller, Action::ProjectRead, project, &lineage).is_ok();
            (project, may.then_some(name), count)
        };
        let by_project = by_project.into_iter().map(seen).collect();
        Ok(SummaryView { total, by_status, by_project, active, located })
    }

    /// Begins an export of all devices of a list; its page is ignored.
    ///
    /// Needs `DeviceRead` on that part of the tree. Waits as [`Hub::device_list`] does.
    ///
    /// # Errors
    /// `Busy`: the tenant, or all tenants together, have too many exports running; and as [`Hub::device_list`].
    pub async fn device_export(
        &self,
        caller: &Caller,
        tree: TreeQuery,
        list: ListRequest,
        filters: Vec<DeviceFilter>,
    ) -> Result<DeviceExport> {
        let (permit, tenant) = self.devices_permit(caller, tree).await?;
        let place = self.0.exports.take(caller.lineage.top(), 1)?;
        let hub = self.clone();
        let steps = async move {
            let selection = hub.selection(tenant, filters, Wanted::Filtered)?;
            let ids = hub.registry().device_ids_selected(&permit, &list, &selection).await?;
            Ok((permit, ids))
        };
        let (permit, ids) = self.0.selection_jobs.drive_for(caller, "device_export", steps).await?;
        Ok(DeviceExport { hub: self.clone(), caller: caller.clone(), permit, left: ids.into_iter(), _place: place })
    }
}

impl DeviceExport {
    /// Returns the devices in pieces; each piece is read when it is polled.
    pub fn pieces(self) -> impl Stream<Item = Result<Vec<Device>>> + Send + 'static {
        let pieces = stream::try_unfold(self, |mut export| async move {
            let left = export.left.as_slice();
            if left.is_empty() {
                return Ok(None);
            }
            let (devices, read) = export.read(left.get(..CSV_DEVICES_AT_ONCE).unwrap_or(left)).await?;
            export.left.by_ref().take(read).for_each(drop);
            Ok(Some((devices, export)))
        });
        pieces.boxed()
    }

    /// Reads as many of these devices as fit in memory, from the first on, and returns their number.
    async fn read(&self, piece: &[DeviceId]) -> Result<(Vec<Device>, usize)> {
        let rooms = Arc::clone(&self.hub.0);
        let (mut devices, read) = rooms.env.registry().devices_of(&self.permit, piece).await?;
        // The device or the part of the tree may have moved since.
        devices.retain(|device| self.caller.reaches(&device.lineage));
        rooms.outbox.apply_pending(&mut devices);
        for device in &mut devices {
            let entry = rooms.caches.cached_device(device.id);
            device.last_active = device.last_active.max(rooms.activity.newest(device.key, entry.as_deref()));
        }
        Ok((devices, read))
    }
}
