//! Aggregates series in buckets of time (contract: Beyond the specification). The values are read by the slots for long
//! reads; the memory of an answer is charged to the caller's tenant until it is written.

use std::collections::HashMap;
use std::sync::Arc;

use isobar_model::access::{self, Action, Caller, CanRead, Lineage};
use isobar_model::buckets::{BUCKETS_MAX, Functions, Grid, Stretch, Width, Zone};
use isobar_model::error::{Error, Result};
use isobar_model::ids::{DeviceId, DeviceRef, OrganizationId, ProjectId};
use isobar_model::page::{Depth, TimeRange};
use isobar_model::retention::{Kept, ProjectRetention};
use isobar_model::time::Timestamp;
use isobar_quota::Claim;
use isobar_store::error::StoreError;
use isobar_store::telemetry::{BUCKETS_BYTES_MAX, BucketMemory, BucketQuery, Buckets, Filter, PayloadTime};
use parking_lot::Mutex;

use crate::identity::authentication::Principal;
use crate::resources::bucket_rows::BucketAnswer;
use crate::resources::data::ELEMENT;
use crate::{Hub, TreeQuery};
use isobar_quota::{TenantShare, TenantShares, limits};

/// Devices that may each have a series of their own in one answer, at most.
pub const DEVICES_APART_MAX: usize = 100;
/// Devices whose values may be merged into one series, at most.
pub const DEVICES_ALIKE_MAX: usize = 1_000;
/// Memory that an answer reserves at first, and each further time it grows, in bytes. A finished answer keeps only what
/// it uses.
const BUCKET_BYTES_PIECE: usize = 1 << 20;

/// Makes the shares of the memory for answers.
pub(crate) fn bucket_bytes() -> Arc<TenantShares> {
    TenantShares::new(&limits::BUCKET_BYTES)
}

/// A request to aggregate series.
#[derive(Clone, Debug)]
pub struct BucketRequest {
    /// Paths of keys in the payload with the numbers; an empty path is the payload itself.
    pub fields: Vec<Vec<String>>,
    /// The functions to apply.
    pub functions: Functions,
    /// The width of the buckets.
    pub width: BucketWidth,
    /// The time zone of the buckets.
    pub zone: Zone,
    /// Inclusive start and exclusive end on the time axis.
    pub range: TimeRange,
    /// Filters that must all match.
    pub filters: Vec<Filter>,
    /// The time axis, if it is not createdAt.
    pub time: Option<PayloadTime>,
    /// The content of empty buckets.
    pub fill: BucketFill,
}

/// The width of buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketWidth {
    /// One bucket for the whole range.
    All,
    /// Buckets of this width.
    Every(Width),
    /// The narrowest round width that makes at most this many buckets.
    Points(usize),
}

/// The content of empty buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketFill {
    /// Empty buckets are left out.
    None,
    /// Empty buckets are included, without figures.
    Null,
    /// Empty buckets repeat the figures of the last bucket with a number.
    Previous,
}

/// The devices whose series are aggregated.
#[derive(Clone, Debug)]
pub enum BucketDevices {
    /// The named devices.
    These(Vec<DeviceId>),
    /// The devices of a project that the caller reaches.
    OfProject(ProjectId),
    /// The devices of a part of the tree.
    Beneath(TreeQuery),
}

impl Hub {
    /// Aggregates a series of a device in buckets.
    ///
    /// Needs `DeviceRead`; a device reads its own. Waits for slots among the long reads, and holds the answer's memory
    /// until the answer is dropped.
    ///
    /// # Errors
    /// `Missing`: there is no such device or element. `Invalid`: there would be too many buckets, or they would need
    /// too much memory. `Busy`: too many calls are running.
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
        if is_there || self.declares(&entry, element).await? { Ok(answer) } else { Err(Error::Missing(ELEMENT)) }
    }

    /// Aggregates the series of this name of many devices in buckets: separately, or merged into one. A device without
    /// such a series contributes nothing.
    ///
    /// Needs `DeviceRead` on each. Waits for slots among the long reads, and holds the answer's memory until the answer
    /// is dropped.
    ///
    /// # Errors
    /// `Missing`: there is no such device, project or organization. `Invalid`: there are too many devices, there would
    /// be too many buckets, or they would need too much memory. `Busy`: too many calls are running.
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

    /// Checks that the caller may read these devices; too many devices are reported later.
    ///
    /// # Errors
    /// `Missing`: one of them is out of reach.
    pub async fn allow_buckets_of(&self, caller: &Caller, devices: &BucketDevices) -> Result<()> {
        match self.bucket_devices(caller, devices, false).await {
            Ok(_) | Err(Error::Invalid(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Returns the permits for the devices of a request.
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
        let found = self.registry().devices_up_to(&list, project, most as u32).await?;
        let found = found.ok_or_else(|| Error::invalid(field, too_many(most, apart)))?;
        let permit = |(device, of): (DeviceRef, Lineage)| access::read(caller, Action::DeviceRead, device, &of).ok();
        Ok(found.into_iter().filter_map(permit).collect())
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
        let permits = self.permits_in_reach(caller, ids).await?.into_iter();
        let permits: HashMap<DeviceId, _> = permits.map(|permit| (permit.target().id, permit)).collect();
        ids.iter().map(|id| permits.get(id).cloned().ok_or(Error::Missing("device"))).collect()
    }

    /// Aggregates the series of these devices, and returns true if any of them has one.
    async fn answer(
        &self,
        tenant: OrganizationId,
        devices: &[CanRead<DeviceRef>],
        element: &str,
        mut request: BucketRequest,
        apart: bool,
    ) -> Result<(BucketAnswer, bool)> {
        let share = Arc::new(Mutex::new(self.0.bucket_bytes.take(tenant, BUCKET_BYTES_PIECE)?));
        let mut claim = Claim::begin(tenant);
        let retention = self.0.caches.retention_of_many(devices).await?;
        let kept = |device: &CanRead<DeviceRef>| {
            let bounds: &ProjectRetention = retention.get(&device.target().key)?;
            Some(bounds.kept(element, self.now()))
        };
        let grid = self.grid(devices, element, &mut request, &kept, &mut claim).await?;
        check_filled(request.width, request.fill, grid.as_ref(), request.range)?;
        let query = Arc::new(BucketQuery {
            fields: request.fields.clone(),
            functions: request.functions,
            grid: grid.clone(),
            range: request.range,
            filters: request.filters.clone(),
            time: request.time.clone(),
        });
        let (mut buckets, mut is_there, mut series) = (Buckets::new(query, lent_by(&share)), false, Vec::new());
        let refused = |error| refused(error, request.width);
        for device in devices {
            let Some(kept) = kept(device) else { continue };
            let (more, has_it) =
                self.telemetry().buckets(device, element, &kept, buckets, claim).await.map_err(refused)?;
            (buckets, is_there, claim) = (more, is_there || has_it, let_in(claim));
            if apart {
                series.push((Some(device.target().id), buckets.take_series().map_err(refused)?));
            }
        }
        if !apart {
            series.push((None, buckets.take_series().map_err(refused)?));
        }
        share.lock().resize(buckets.bytes())?;
        drop(buckets);
        let (width, fill) = (request.width, request.fill);
        let answer = BucketAnswer::new(request, grid, series, share);
        check_filled(width, fill, answer.grid(), answer.range())?;
        Ok((answer, is_there))
    }

    /// Returns the grid of the buckets, or `None` for a single bucket. If a number of points is requested, an open
    /// range ends where the readable values of the series end.
    async fn grid(
        &self,
        devices: &[CanRead<DeviceRef>],
        element: &str,
        request: &mut BucketRequest,
        kept: impl Fn(&CanRead<DeviceRef>) -> Option<Kept>,
        claim: &mut Claim,
    ) -> Result<Option<Grid>> {
        let points = match request.width {
            BucketWidth::All => return Ok(None),
            BucketWidth::Every(width) => return Ok(Some(Grid::new(width, request.zone.clone()))),
            BucketWidth::Points(points) => points,
        };
        if let TimeRange { from: None, .. } | TimeRange { to: None, .. } = request.range
            && let Some((first, last)) = self.extent(devices, element, request.range, kept, claim).await?
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

    /// Returns the times of the first and the newest readable value of these series within a range, or `None` if there
    /// is none.
    async fn extent(
        &self,
        devices: &[CanRead<DeviceRef>],
        element: &str,
        range: TimeRange,
        kept: impl Fn(&CanRead<DeviceRef>) -> Option<Kept>,
        claim: &mut Claim,
    ) -> Result<Option<(Timestamp, Timestamp)>> {
        let mut extent: Option<(Timestamp, Timestamp)> = None;
        for device in devices {
            let Some(kept) = kept(device) else { continue };
            let own = self.telemetry().extent(device, element, &kept, range, *claim).await?;
            *claim = let_in(*claim);
            if let Some((begins, ends)) = own {
                let (first, last) = extent.unwrap_or((begins, ends));
                extent = Some((first.min(begins), last.max(ends)));
            }
        }
        Ok(extent)
    }
}

/// Returns the claim that continues an admitted read.
const fn let_in(claim: Claim) -> Claim {
    Claim::go_on(claim.holder)
}

/// Returns a function that lends an answer the memory of its share, which grows in pieces.
fn lent_by(share: &Arc<Mutex<TenantShare>>) -> BucketMemory {
    let share = Arc::clone(share);
    Box::new(move |bytes| {
        let lent = bytes.next_multiple_of(BUCKET_BYTES_PIECE);
        share.lock().resize(lent).ok()?;
        Some(lent)
    })
}

fn too_many(most: usize, apart: bool) -> String {
    let how = if apart { "with a series each" } else { "together" };
    format!("names too many devices: at most {most} are asked {how}")
}

/// Returns a range with both ends, if it has them.
pub(super) fn stretch_of(range: TimeRange) -> Option<Stretch> {
    Some(Stretch { from: range.from?, to: range.to? })
}

/// Checks that there are not too many buckets, if empty ones are included.
fn check_filled(width: BucketWidth, fill: BucketFill, grid: Option<&Grid>, range: TimeRange) -> Result<()> {
    let (Some(grid), Some(stretch)) = (grid, stretch_of(range)) else { return Ok(()) };
    if fill != BucketFill::None && grid.count(stretch, BUCKETS_MAX).is_none() {
        return Err(too_many_buckets(width));
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
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::device::Device;
    use isobar_quota::SharedAmount;

    use isobar_quota::Full;

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
    async fn devices_that_are_only_read_are_not_cached() {
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
            // Values beyond the retention are not counted, cached or not.
            assert_eq!(answer.totals(), (2 * devices.len() as u64, 0));
        }
        let is_cached = |device: &Device| stage.hub.0.caches.cached_device(device.id).is_some();
        assert!(is_cached(talks) && !silent.iter().any(is_cached));
        stage.over().await;
    }

    #[tokio::test]
    async fn answer_holds_its_memory_until_it_is_dropped() {
        let stage = Stage::set().await;
        let device = stage.device("{}").await;
        stage.posts(&device, "21.5").await;
        let caller = Principal::User(Arc::clone(&stage.admin));
        let ask = || stage.hub.buckets(&caller, device.id, "reading", request(Functions::default()));
        let shares = &stage.hub.0.bucket_bytes;
        let answers = [ask().await.unwrap(), ask().await.unwrap()];
        assert!(answers.iter().all(|answer| answer.totals() == (1, 0)));
        // A finished answer keeps the memory that it uses, which is much less than a piece.
        let held = shares.held();
        assert!((1..BUCKET_BYTES_PIECE / 2).contains(&held), "{held}");
        let tenant = stage.admin.lineage.top();
        let rest = shares.take(tenant, SharedAmount::of(limits::BUCKET_BYTES.of_all).of_one() - held).unwrap();
        assert!(matches!(ask().await, Err(Error::Busy)));
        drop(rest);
        assert_eq!(ask().await.unwrap().totals(), (1, 0));
        drop(answers);
        assert_eq!(shares.held(), 0);
        stage.over().await;
    }

    #[tokio::test]
    async fn four_greedy_tenants_leave_memory_to_a_fifth() {
        let stage = Stage::set().await;
        let device = stage.device("{}").await;
        stage.posts(&device, "21.5").await;
        let take = |tenant: u128| {
            stage.hub.0.bucket_bytes.take(OrganizationId(uuid::Uuid::from_u128(tenant)), BUCKET_BYTES_PIECE)
        };
        let mut held = Vec::new();
        for tenant in 1..=4 {
            held.extend(std::iter::from_fn(|| take(tenant).ok()));
            assert!(matches!(take(tenant), Err(Full { .. })));
        }
        let caller = Principal::User(Arc::clone(&stage.admin));
        let asked = stage.hub.buckets(&caller, device.id, "reading", request(Functions::default())).await;
        assert_eq!(asked.unwrap().totals(), (1, 0));
        drop(held);
        stage.over().await;
    }
}
