//! Devices.

use std::sync::Arc;

use futures::{StreamExt as _, stream};
use isobar_model::access::Action;
use isobar_model::device::DeviceInput;
use isobar_model::ids::DeviceId;

use crate::call::{Call, after};
use crate::reply::{self, Answer};
use crate::views::{DeviceJson, NewDeviceJson, TokenJson};

pub(crate) const SORTED_BY: &[&str] = isobar_hub::sortable::DEVICES;

pub(crate) async fn device_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("organizationId"), query.list(SORTED_BY), query.last_values());
    let (tree, list, last) = query.end(asked)?;
    let page = call.hub().device_list(call.caller()?, tree, list).await?;
    let (meta, hub, caller) = (page.meta(), call.hub().clone(), Arc::new(call.caller()?.clone()));
    let (last, devices) = (Arc::new(last), stream::iter(page.items));
    let dressed = devices.then(move |device| {
        let (hub, caller, last) = (hub.clone(), Arc::clone(&caller), Arc::clone(&last));
        async move { hub.device_with_last(&caller, device, &last).await.map(DeviceJson::from) }
    });
    reply::page_coming(meta, dressed).await
}

pub(crate) async fn device_create(call: &mut Call) -> Answer {
    let body = call.json(DeviceInput::read).await;
    let input = after(call.hub().allow(call.caller()?, Action::DeviceCreate), body).await?;
    let (device, token) = call.hub().device_create(call.caller()?, input).await?;
    reply::created(&NewDeviceJson { device: device.into(), token: token.reveal() })
}

pub(crate) async fn device_fetch(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let last = call.query().last_values();
    reply::ok(&DeviceJson::from(call.hub().device_fetch(&call.principal, id, last).await?))
}

pub(crate) async fn device_update(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let body = call.json(DeviceInput::read).await;
    let input = after(call.hub().allow_device(&call.principal, id, Action::DeviceUpdate), body).await?;
    let last = call.query().last_values();
    reply::ok(&DeviceJson::from(call.hub().device_update(call.caller()?, id, input, last).await?))
}

pub(crate) async fn device_delete(call: &mut Call) -> Answer {
    call.hub().device_delete(call.caller()?, call.id("id", "device")?).await?;
    reply::no_content()
}

pub(crate) async fn device_token_rotate(call: &mut Call) -> Answer {
    let token = call.hub().device_token_rotate(call.caller()?, call.id("id", "device")?).await?;
    reply::created(&TokenJson { token: token.reveal() })
}
