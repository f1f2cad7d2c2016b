//! Devices on a map.

use isobar_model::device::PlacedDevice;
use serde::Serialize;
use utoipa::ToSchema;

use super::values::Id;
use crate::request::Call;
use crate::response::Answer;

pub(crate) async fn device_places(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("organizationId"), query.page());
    let (tree, page) = query.end(asked)?;
    call.page(call.hub().device_places(call.caller()?, tree, page).await?, |_| 0, DeviceLocationJson::from).await
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
        }
    }
}
