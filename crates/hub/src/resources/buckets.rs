//! Buckets: what series say in stretches of time (contract: Beyond the specification). Reads at length do the looking; what the answer takes of
//! memory is charged to the tenant of whoever asks, until it is written.

use std::collections::HashMap;
use std::sync::Arc;

use isobar_model::access::{self, Action, Caller, CanRead, Lineage};
use isobar_model::buckets::{BUCKETS_MAX, Functions, Grid, Stretch, Width, Zone};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, OrganizationId, ProjectId};
use isobar_model::page::{Depth, TimeRange};
use isobar_model::retention::{Kept, ProjectRetention};
use isobar_model::time::Timestamp;
use isobar_store::error::StoreError;
use isobar_store::telemetry::{BUCKETS_BYTES_MAX, BucketMemory, BucketQuery, Buckets, Filter, PayloadTime};
use isobar_store::turns::Claim;

use crate::error::{IntoHubError as _, from_store};
use crate::identity::authentication::Principal;
use crate::resources::bucket_rows::BucketAnswer;
use crate::resources::data::{ELEMENT, declares};
use crate::support::tenant_shares::TenantShares;
use crate::{Hub, TreeQuery};

/// Most devices of which each has a series of its own in one answer.
pub const DEVICES_APART_MAX: usize = 100;
/// Most devices whose values are taken for one series.
pub const DEVICES_ALIKE_MAX: usize = 1_000;
/// Bytes that all answers take at the same time, and those of one tenant; beyond, 503. Each has a piece from the start.
const BUCKET_BYTES_OF_ALL_MAX: usize = 384 << 20;
const BUCKET_BYTES_OF_ONE_MAX: usize = 96 << 20;
/// Bytes that are asked for at a time.
const BUCKET_BYTES_PIECE: usize = 1 << 20;

/// The bytes of answers that are on their way.
pub(crate) fn bucket_bytes() -> Arc<TenantShares> {
    TenantShares::new(BUCKET_BYTES_OF_ALL_MAX, BUCKET_BYTES_OF_ONE_MAX)
}

/// What is asked of series.
#[derive(Clone, Debug)]
pub struct BucketRequest {
    /// Paths of keys beneath the payload where the numbers are; an empty one is the payload.
    pub fields: Vec<Vec<String>>,
    /// What is told of them.
    pub functions: Functions,
    /// How wide buckets are.
    pub width: BucketWidth,
    /// Whose clock and calendar they follow.
    pub zone: Zone,
    /// Inclusive start and exclusive end of the time axis.
    pub range: TimeRange,
    /// All must hold.
    pub filters: Vec<Filter>,
    /// The time axis, where it is not createdAt.
    pub time: Option<PayloadTime>,
    /// What stands for buckets that hold nothing.
    pub fill: BucketFill,
}

/// How wide buckets are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketWidth {
    /// All is one bucket.
    All,
    /// So wide.
    Every(Width),
    /// The narrowest round width that gives so many at most.
    Points(usize),
}

/// What stands for buckets that hold nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketFill {
    /// Nothing: they are left out.
    None,
    /// They are there, and have nothing to tell.
    Null,
    /// They tell what the last bucket before them told that held a number.
    Previous,
}

/// Whose series are asked.
#[derive(Clone, Debug)]
pub enum BucketDevices {
    /// Those of these devices.
    These(Vec<DeviceId>),
    /// Those of the devices of a project that the caller reaches.
    OfProject(ProjectId),
    /// Those of the devices of a part of the tree.
    Beneath(TreeQuery),
}

impl Hub {
    /// What a series of a device says in buckets.
    ///
    /// Needs `DeviceRead`; a device reads its own. Waits for turns among the reads at length, and holds what the answer takes
    /// until that is dropped.
    ///
    /// # Errors
    /// `Missing`: there is no such device or element. `Invalid`: there would be too many buckets, or they would take too much.
    /// `Busy`: too much is under way.
    pub async fn buckets(
        &self,
        principal: &Principal,
        id: DeviceId,
        element: &str,
        request: BucketRequest,
    ) -> Result<BucketAnswer> {
        let (permit, entry) = self.0.identity.device_read(principal, id).await?;
        let tenant = principal.tenant().unwrap_or_else(|| entry.lineage.top());
        let (answer, is_there) = self.answer(tenant, &[permit], element, request, false).await?;
        if is_there || declares(&entry, element) { Ok(answer) } else { Err(Error::Missing(ELEMENT)) }
    }

    /// What the series of this name of many devices say in buckets: each for itself, or all taken for one. A device that has no
    /// such series says nothing.
    ///
    /// Needs `DeviceRead` on each. Waits for turns among the reads at length, and holds what the answer takes until that is
    /// dropped.
    ///
    /// # Errors
    /// `Missing`: there is no such device, project or organization. `Invalid`: they are too many, there would be too many
    /// buckets, or they would take too much. `Busy`: too much is under way.
    pub async fn buckets_of_many(
        &self,
        caller: &Caller,
        devices: &BucketDevices,
        element: &str,
        request: BucketRequest,
        apart: bool,
    ) -> Result<BucketAnswer> {
        let permits = self.bucket_devices(caller, devices, apart).await?;
        Ok(self.answer(caller.lineage.top(), &permits, element, request, apart).await?.0)
    }

    /// Whether the caller may ask these devices: what is too many of them is told later.
    ///
    /// # Errors
    /// `Missing`.
    pub async fn allow_buckets_of(&self, caller: &Caller, devices: &BucketDevices) -> Result<()> {
        match self.bucket_devices(caller, devices, false).await {
            Ok(_) | Err(Error::Invalid(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The permits for the devices that are asked.
    async fn bucket_devices(
        &self,
        caller: &Caller,
        devices: &BucketDevices,
        apart: bool,
    ) -> Result<Vec<CanRead<DeviceRef>>> {
        let most = if apart { DEVICES_APART_MAX } else { DEVICES_ALIKE_MAX };
        let (project, tree, field) = match devices {
            BucketDevices::These(ids) => return self.bucket_devices_of(caller, ids, most).await,
            BucketDevices::OfProject(project) => {
                self.0.identity.project_read(caller, *project).await?;
                (Some(*project), TreeQuery { organization: None, depth: Depth::All }, "query.projectUuid")
            }
            BucketDevices::Beneath(tree) => (None, *tree, "query.organizationId"),
        };
        let list = self.0.identity.list_permit(caller, tree, Action::DeviceRead).await?;
        let found = self.0.env.registry.devices_up_to(&list, project, most as u32).await.into_hub_error()?;
        let found = found.ok_or_else(|| Error::invalid(field, too_many(most, apart)))?;
        Ok(found.into_iter().filter_map(|(device, lineage)| may_read(caller, device, &lineage)).collect())
    }

    async fn bucket_devices_of(
        &self,
        caller: &Caller,
        ids: &[DeviceId],
        most: usize,
    ) -> Result<Vec<CanRead<DeviceRef>>> {
        if ids.len() > most {
            return Err(Error::invalid("query.deviceIds", too_many(most, most == DEVICES_APART_MAX)));
        }
        let placed = self.0.env.registry.device_placements(ids).await.into_hub_error()?;
        let permits = placed.into_iter().filter_map(|(device, lineage)| may_read(caller, device, &lineage));
        let permits: HashMap<DeviceId, _> = permits.map(|permit| (permit.target().id, permit)).collect();
        ids.iter().map(|id| permits.get(id).cloned().ok_or(Error::Missing("device"))).collect()
    }

    /// Looks at the series of these devices, and whether any of them has one.
    async fn answer(
        &self,
        tenant: OrganizationId,
        devices: &[CanRead<DeviceRef>],
        element: &str,
        mut request: BucketRequest,
        apart: bool,
    ) -> Result<(BucketAnswer, bool)> {
        let memory = self.bucket_memory(tenant)?;
        let retention = self.0.caches.retention_of_many(devices).await?;
        let kept = |device: &CanRead<DeviceRef>| {
            let bounds: &ProjectRetention = retention.get(&device.target().key)?;
            Some(bounds.kept(element, self.0.env.clock.now()))
        };
        let grid = self.grid(devices, element, &mut request, &kept).await?;
        check_filled(&request, grid.as_ref(), request.range)?;
        let query = Arc::new(BucketQuery {
            fields: request.fields.clone(),
            functions: request.functions,
            grid: grid.clone(),
            range: request.range,
            filters: request.filters.clone(),
            time: request.time.clone(),
        });
        let (mut buckets, mut is_there, mut series) = (Buckets::new(query, memory), false, Vec::new());
        let refused = |error| refused(error, request.width);
        let mut claim = Claim::begin(tenant);
        for device in devices {
            let Some(kept) = kept(device) else { continue };
            let (more, has_it) =
                self.0.env.telemetry.buckets(device, element, &kept, buckets, claim).await.map_err(refused)?;
            // It was let in with the first.
            (buckets, is_there, claim) = (more, is_there || has_it, Claim::go_on(tenant));
            if apart {
                series.push((Some(device.target().id), buckets.take_series().map_err(refused)?));
            }
        }
        if !apart {
            series.push((None, buckets.take_series().map_err(refused)?));
        }
        let answer = BucketAnswer::new(&request, grid, series, buckets);
        check_filled(&request, answer.grid(), answer.range())?;
        Ok((answer, is_there))
    }

    /// What lends an answer of this tenant its memory: a piece is taken at once.
    fn bucket_memory(&self, tenant: OrganizationId) -> Result<BucketMemory> {
        let shares = Arc::clone(&self.0.bucket_bytes);
        let mut held = vec![shares.take(tenant, BUCKET_BYTES_PIECE)?];
        Ok(Box::new(move |bytes| {
            while held.len() * BUCKET_BYTES_PIECE < bytes {
                held.push(shares.take(tenant, BUCKET_BYTES_PIECE).ok()?);
            }
            Some(held.len() * BUCKET_BYTES_PIECE)
        }))
    }

    /// Where buckets begin and end; none: all is one. Where so many are asked for, the range ends where the series do.
    async fn grid(
        &self,
        devices: &[CanRead<DeviceRef>],
        element: &str,
        request: &mut BucketRequest,
        kept: impl Fn(&CanRead<DeviceRef>) -> Option<Kept>,
    ) -> Result<Option<Grid>> {
        let points = match request.width {
            BucketWidth::All => return Ok(None),
            BucketWidth::Every(width) => return Ok(Some(Grid::new(width, request.zone.clone()))),
            BucketWidth::Points(points) => points,
        };
        if let TimeRange { from: None, .. } | TimeRange { to: None, .. } = request.range
            && let Some((first, last)) = self.extent(devices, element, kept).await?
        {
            let behind = Timestamp::from_millis(last.millis().saturating_add(1));
            request.range.from.get_or_insert(first);
            request.range.to.get_or_insert(behind);
        }
        let stretch =
            stretch_of(request.range).unwrap_or(Stretch { from: Timestamp::default(), to: Timestamp::default() });
        let grid = Grid::narrowest(&request.zone, stretch, points);
        Ok(Some(grid.ok_or_else(|| {
            Error::invalid("query.points", "are too few for so long a time: even in centuries it is more")
        })?))
    }

    /// When the first and the newest value of these series came; none: there are none.
    async fn extent(
        &self,
        devices: &[CanRead<DeviceRef>],
        element: &str,
        kept: impl Fn(&CanRead<DeviceRef>) -> Option<Kept>,
    ) -> Result<Option<(Timestamp, Timestamp)>> {
        let mut extent: Option<(Timestamp, Timestamp)> = None;
        for device in devices {
            let Some(kept) = kept(device) else { continue };
            let series = self.0.env.telemetry.series(device).await.into_hub_error()?;
            for series in series.iter().filter(|series| &*series.element == element) {
                let begins = kept.not_before.map_or(series.created_at, |moment| series.created_at.max(moment));
                let (first, last) = extent.unwrap_or((begins, series.updated_at));
                extent = Some((first.min(begins), last.max(series.updated_at)));
            }
        }
        Ok(extent)
    }
}

fn may_read(caller: &Caller, device: DeviceRef, lineage: &Lineage) -> Option<CanRead<DeviceRef>> {
    access::read(caller, Action::DeviceRead, device, lineage).ok()
}

fn too_many(most: usize, apart: bool) -> String {
    let how = if apart { "with a series each" } else { "together" };
    format!("names too many devices: at most {most} are asked {how}")
}

/// A range that has both ends.
pub(super) fn stretch_of(range: TimeRange) -> Option<Stretch> {
    Some(Stretch { from: range.from?, to: range.to? })
}

/// Whether there are not too many buckets, where those that hold nothing are told of too.
fn check_filled(request: &BucketRequest, grid: Option<&Grid>, range: TimeRange) -> Result<()> {
    let (Some(grid), Some(stretch)) = (grid, stretch_of(range)) else { return Ok(()) };
    if request.fill != BucketFill::None && grid.count(stretch, BUCKETS_MAX).is_none() {
        return Err(too_many_buckets(request.width));
    }
    Ok(())
}

fn too_many_buckets(width: BucketWidth) -> Error {
    let field = if matches!(width, BucketWidth::Points(_)) { "query.points" } else { "query.every" };
    let most = BUCKETS_BYTES_MAX >> 20;
    Error::invalid(
        field,
        format!(
            "makes too many buckets: a series has at most {BUCKETS_MAX}, and those of an answer take {most} MiB, percentiles \
             the most. Ask for wider ones, a shorter range, fewer fields or functions"
        ),
    )
}

fn refused(error: StoreError, width: BucketWidth) -> Error {
    match error {
        StoreError::TooMuch => too_many_buckets(width),
        other => from_store(other),
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::device::Device;

    use super::*;
    use crate::stage::Stage;

    fn request(functions: Functions) -> BucketRequest {
        BucketRequest {
            fields: vec![Vec::new()],
            functions,
            width: BucketWidth::All,
            zone: Zone::default(),
            range: TimeRange { from: None, to: None },
            filters: Vec::new(),
            time: None,
            fill: BucketFill::None,
        }
    }

    #[tokio::test]
    async fn devices_that_are_only_looked_at_are_not_cached() {
        let stage = Stage::set().await;
        let design = r#"{
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "log", "ability": "store"}]}},
            "log": {"type": "storage", "properties": {"valuesMax": 2}}
        }"#;
        let first = stage.device(design).await;
        let body = format!(r#"{{"name":"e","projectUuid":"{}"}}"#, first.project);
        let devices = [stage.another(&body).await, stage.another(&body).await, stage.device(design).await, first];
        for device in devices.iter().cycle().take(3 * devices.len()) {
            stage.posts(device, "1").await;
        }
        let stage = stage.restarts().await;
        let [talks, silent @ ..] = &devices;
        stage.posts(talks, "1").await;
        let asked = BucketDevices::These(devices.iter().map(|device| device.id).collect());
        for (apart, width) in [(false, BucketWidth::All), (true, BucketWidth::Points(10))] {
            let asks = BucketRequest { width, ..request(Functions::default()) };
            let answer = stage.hub.buckets_of_many(&stage.admin, &asked, "log", asks, apart).await.unwrap();
            // What is not kept is not counted, cached or not.
            assert_eq!(answer.totals(), (2 * devices.len() as u64, 0));
        }
        let is_cached = |device: &Device| stage.hub.0.caches.cached_device(device.id).is_some();
        assert!(is_cached(talks) && !silent.iter().any(is_cached));
        stage.over().await;
    }

    #[tokio::test]
    async fn an_answer_in_buckets_holds_its_memory_until_it_is_dropped() {
        let stage = Stage::set().await;
        let device = stage.device("{}").await;
        stage.posts(&device, "21.5").await;
        let caller = Principal::User(Arc::clone(&stage.admin));
        let ask = || stage.hub.buckets(&caller, device.id, "reading", request(Functions::default()));
        let mut answers = Vec::new();
        for _ in 0..BUCKET_BYTES_OF_ONE_MAX / BUCKET_BYTES_PIECE {
            answers.push(ask().await.unwrap());
        }
        assert!(answers.iter().all(|answer| answer.totals() == (1, 0)));
        assert!(matches!(ask().await, Err(Error::Busy)));
        answers.pop();
        let again = ask().await;
        assert!(again.is_ok());
        drop((again, answers));
        let all = stage.hub.0.bucket_bytes.take(stage.admin.lineage.top(), BUCKET_BYTES_OF_ONE_MAX);
        assert!(all.is_ok(), "nothing is held any more");
        drop(all);
        stage.over().await;
    }
}
