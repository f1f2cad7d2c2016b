//! Devices.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use isobar_hub::DeviceView;
use isobar_model::access::Action;
use isobar_model::device::{Device, DeviceInput, StreetAddress};
use isobar_model::ids::DeviceId;
use serde::Serialize;
use utoipa::ToSchema;

use super::data::LastValuesJson;
use super::values::{Id, Raw, Time};
use super::words::StatusText;
use crate::request::{Call, after};
use crate::response::{self, Answer};

pub(crate) const DEVICES_SORTED_BY: &[&str] = isobar_hub::sortable::DEVICES;

pub(crate) async fn device_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("organizationId"), query.list(DEVICES_SORTED_BY), query.last_values());
    let (tree, list, last) = query.end(asked)?;
    let page = call.hub().device_list(call.caller()?, tree, list).await?;
    let (meta, hub, caller) = (page.meta(), call.hub().clone(), Arc::new(call.caller()?.clone()));
    let (last, devices) = (Arc::new(last), stream::iter(page.items));
    let views = devices.then(move |device| {
        let (hub, caller, last) = (hub.clone(), Arc::clone(&caller), Arc::clone(&last));
        async move { hub.device_with_last(&caller, device, &last).await.map(DeviceJson::from) }
    });
    response::page_streamed(meta, views).await
}

pub(crate) async fn device_create(call: &mut Call) -> Answer {
    let body = call.json(DeviceInput::read).await;
    let input = after(call.hub().allow(call.caller()?, Action::DeviceCreate), body).await?;
    let (device, token) = call.hub().device_create(call.caller()?, input).await?;
    response::created(&NewDeviceJson { device: device.into(), token: token.reveal() })
}

pub(crate) async fn device_fetch(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let last = call.query().last_values();
    response::ok(&DeviceJson::from(call.hub().device_fetch(&call.principal, id, last).await?))
}

pub(crate) async fn device_update(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let body = call.json(DeviceInput::read).await;
    let input = after(call.hub().allow_device(&call.principal, id, Action::DeviceUpdate), body).await?;
    let last = call.query().last_values();
    response::ok(&DeviceJson::from(call.hub().device_update(call.caller()?, id, input, last).await?))
}

pub(crate) async fn device_delete(call: &mut Call) -> Answer {
    call.hub().device_delete(call.caller()?, call.id("id", "device")?).await?;
    response::no_content()
}

pub(crate) async fn device_token_rotate(call: &mut Call) -> Answer {
    let token = call.hub().device_token_rotate(call.caller()?, call.id("id", "device")?).await?;
    response::created(&TokenJson { token: token.reveal() })
}

/// A secret that is shown this once.
#[derive(Serialize, ToSchema)]
#[schema(as = DeviceToken)]
pub(crate) struct TokenJson<'a> {
    pub token: &'a str,
}

/// A device.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Device)]
pub(crate) struct DeviceJson {
    id: Id,
    uuid: Id,
    name: String,
    project_uuid: Id,
    version_uuid: Option<String>,
    protocol: Option<String>,
    protocols: Vec<String>,
    meta: Raw,
    description: Option<String>,
    street_address: Option<StreetAddress>,
    organization_id: Id,
    organization_name: String,
    created_by: Option<Id>,
    last_values: Vec<LastValuesJson>,
    last_active: Option<Time>,
    created_at: Time,
    updated_at: Time,
    #[schema(value_type = StatusText)]
    status_text: &'static str,
    #[schema(maximum = 5)]
    status_int: u8,
    image_url: String,
}

impl From<Device> for DeviceJson {
    fn from(device: Device) -> Self {
        Self {
            id: Id(device.id.0),
            uuid: Id(device.id.0),
            name: device.name,
            project_uuid: Id(device.project.0),
            version_uuid: device.version,
            protocol: device.protocol,
            protocols: device.protocols,
            meta: Raw(device.meta),
            description: device.description,
            street_address: device.street_address,
            organization_id: Id(device.organization.0),
            organization_name: device.organization_name,
            created_by: device.created_by.map(|user| Id(user.0)),
            last_values: Vec::new(),
            last_active: device.last_active.map(Time),
            created_at: Time(device.created_at),
            updated_at: Time(device.updated_at),
            status_text: device.status.name(),
            status_int: device.status.number(),
            image_url: format!("/v2/devices/{}/image.png", device.id),
        }
    }
}

impl From<DeviceView> for DeviceJson {
    fn from(view: DeviceView) -> Self {
        let id = view.device.id;
        let last = view.last.into_iter().map(|(element, last)| LastValuesJson {
            updated_at: Some(Time(last.updated_at)),
            device_id: Id(id.0),
            element_name: element.to_string(),
            values: Raw(last.values),
        });
        Self { last_values: last.collect(), ..view.device.into() }
    }
}

/// A new device with its token, which is shown this once.
#[derive(Serialize, ToSchema)]
#[schema(as = NewDevice)]
pub(crate) struct NewDeviceJson<'a> {
    #[serde(flatten)]
    pub device: DeviceJson,
    pub token: &'a str,
}
