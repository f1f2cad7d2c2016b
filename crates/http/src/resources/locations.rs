//! Devices on a map.

use isobar_model::alarm::AlarmSeverity;
use isobar_model::device::PlacedDevice;
use isobar_model::map::{DeviceCluster, MapBox};
use serde::Serialize;
use utoipa::ToSchema;

use super::devices::StatusCountsJson;
use super::values::Id;
use super::words::SeverityText;
use crate::request::Call;
use crate::response::{self, Answer};

pub(crate) async fn device_places(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("organizationId"), query.map_box(), query.page());
    let (tree, within, page) = query.end(asked)?;
    call.page(call.hub().device_places(call.caller()?, tree, within, page).await?, |_| 0, DeviceLocationJson::from)
        .await
}

/// A device on a map.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeviceLocation)]
pub(crate) struct DeviceLocationJson {
    id: Id,
    uuid: Id,
    organization_id: Id,
    name: String,
    /// Degrees, -90 to 90 (WGS 84).
    latitude: f64,
    /// Degrees, -180 to 180.
    longitude: f64,
    status_int: u8,
    status_text: &'static str,
    /// The highest severity of its active alarms; left out where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SeverityText>, nullable = false)]
    alarm_severity: Option<&'static str>,
}

impl From<PlacedDevice> for DeviceLocationJson {
    fn from(device: PlacedDevice) -> Self {
        Self {
            id: Id(device.id.0),
            uuid: Id(device.id.0),
            organization_id: Id(device.organization.0),
            name: device.name,
            latitude: device.location.latitude,
            longitude: device.location.longitude,
            status_int: device.status.number(),
            status_text: device.status.name(),
            alarm_severity: device.alarm.map(AlarmSeverity::name),
        }
    }
}

pub(crate) async fn device_clusters(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("organizationId"), query.map_cells());
    let (tree, (within, cell)) = query.end(asked)?;
    let clusters = call.hub().device_clusters(call.caller()?, tree, within, cell).await?;
    response::ok(&DeviceClustersJson { data: clusters.into_iter().map(DeviceClusterJson::from).collect() })
}

/// The cells that hold devices, from south to north, then from west to east.
#[derive(Serialize, ToSchema)]
#[schema(as = DeviceClusters)]
pub(crate) struct DeviceClustersJson {
    data: Vec<DeviceClusterJson>,
}

/// The devices of a cell.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeviceCluster)]
pub(crate) struct DeviceClusterJson {
    /// The mean of their places, in degrees (WGS 84).
    latitude: f64,
    longitude: f64,
    count: u64,
    /// The most urgent of their statuses: critical, warning, missing, then the others.
    status_int: u8,
    status_text: &'static str,
    by_status: StatusCountsJson,
    /// The highest severity of their active alarms, and how many of them have any; left out where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<SeverityText>, nullable = false)]
    alarm_severity: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    alarm_devices: Option<u64>,
    /// The least box around their places.
    west: f64,
    south: f64,
    east: f64,
    north: f64,
    /// null where there is more than one.
    device: Option<ClusteredDeviceJson>,
}

/// The device of a cell that holds one.
#[derive(Serialize, ToSchema)]
#[schema(as = ClusteredDevice)]
pub(crate) struct ClusteredDeviceJson {
    id: Id,
    name: String,
}

impl From<DeviceCluster> for DeviceClusterJson {
    fn from(cluster: DeviceCluster) -> Self {
        let (status, count) = (cluster.status(), cluster.count());
        let DeviceCluster { by_status, middle, bounds, only, alarms } = cluster;
        let MapBox { west, south, east, north } = bounds;
        Self {
            latitude: middle.latitude,
            longitude: middle.longitude,
            count,
            status_int: status.number(),
            status_text: status.name(),
            by_status: by_status.into(),
            alarm_severity: alarms.map(|(severity, _)| severity.name()),
            alarm_devices: alarms.map(|(_, devices)| devices),
            west,
            south,
            east,
            north,
            device: only.map(|(id, name)| ClusteredDeviceJson { id: Id(id.0), name }),
        }
    }
}
