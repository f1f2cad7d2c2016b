//! Settings of a device, and of many devices at once.

use isobar_model::access::Action;
use isobar_model::ids::DeviceId;
use isobar_model::setting::{SettingItem, read_device_ids};

use crate::call::{Call, after};
use crate::reply::{self, Answer};
use crate::setting_views::{DefaultsOutcomeJson, DeviceSettingJson, SettingsOutcomeJson};

pub(crate) const SORTED_BY: &[&str] = &["listOrder", "name", "createdAt", "updatedAt"];
pub(crate) const HISTORY_SORTED_BY: &[&str] = isobar_hub::sortable::SETTING_HISTORY;

pub(crate) async fn setting_list(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let mut query = call.query();
    let list = query.list(SORTED_BY);
    let list = after(call.hub().allow_device(&call.principal, id, Action::DeviceRead), query.end(list)).await?;
    reply::page(call.hub().setting_list(&call.principal, id, list).await?, DeviceSettingJson::from).await
}

pub(crate) async fn setting_fetch(call: &mut Call) -> Answer {
    let (id, name) = (call.id("id", "device")?, call.name("settingName"));
    reply::ok(&DeviceSettingJson::from(call.hub().setting_fetch(&call.principal, id, name).await?))
}

pub(crate) async fn setting_history(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let mut query = call.query();
    let list = query.list(HISTORY_SORTED_BY);
    let list = after(call.hub().allow_device(&call.principal, id, Action::DeviceRead), query.end(list)).await?;
    reply::page(call.hub().setting_history(call.caller()?, id, list).await?, DeviceSettingJson::from).await
}

pub(crate) async fn setting_update(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let body = call.json_bytes().await;
    let name = call.name("settingName");
    let body = after(call.hub().allow_setting(call.caller()?, id, name), body).await?;
    reply::ok(&DeviceSettingJson::from(call.hub().setting_update(call.caller()?, id, name, body).await?))
}

pub(crate) async fn setting_reset(call: &mut Call) -> Answer {
    let (id, name) = (call.id("id", "device")?, call.name("settingName"));
    call.hub().setting_reset(call.caller()?, id, name).await?;
    reply::no_content()
}

pub(crate) async fn settings_reset(call: &mut Call) -> Answer {
    call.hub().settings_reset(call.caller()?, call.id("id", "device")?).await?;
    reply::no_content()
}

pub(crate) async fn settings_update(call: &mut Call) -> Answer {
    let body = call.json(SettingItem::read_all).await;
    let items = after(call.hub().allow(call.caller()?, Action::SettingUpdate), body).await?;
    reply::ok(&SettingsOutcomeJson::from(call.hub().settings_update(call.caller()?, &items).await?))
}

pub(crate) async fn setting_defaults(call: &mut Call) -> Answer {
    let ids = call.json(read_device_ids).await?;
    reply::ok(&DefaultsOutcomeJson::from(call.hub().setting_defaults(call.caller()?, &ids).await?))
}
