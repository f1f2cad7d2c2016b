//! Settings of a device, and of many devices at once.

use isobar_hub::{Declared, DefaultsOutcome, DefaultsRefusal, DeviceSetting, ProjectDefaults, SettingsOutcome};
use isobar_model::access::Action;
use isobar_model::ids::DeviceId;
use isobar_model::setting::{BULK_ITEMS_MAX, SettingItem, read_device_ids};
use serde::Serialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::values::{AnyJson, Id, ListOf, Raw, Time, any_but_null};
use super::words::InputType;
use crate::request::{Call, after};
use crate::response::{self, Answer};

pub(crate) const SETTINGS_SORTED_BY: &[&str] = &["listOrder", "name", "createdAt", "updatedAt"];
pub(crate) const SETTING_HISTORY_SORTED_BY: &[&str] = isobar_hub::sortable::SETTING_HISTORY;

pub(crate) async fn setting_list(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let mut query = call.query();
    let list = query.list(SETTINGS_SORTED_BY);
    let list = after(call.hub().allow_device(&call.principal, id, Action::DeviceRead), query.end(list)).await?;
    call.page(call.hub().setting_list(&call.principal, id, list).await?, value_bytes, DeviceSettingJson::from).await
}

pub(crate) async fn setting_fetch(call: &mut Call) -> Answer {
    let (id, name) = (call.id("id", "device")?, call.name("settingName"));
    response::ok(&DeviceSettingJson::from(call.hub().setting_fetch(&call.principal, id, name).await?))
}

pub(crate) async fn setting_history(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let mut query = call.query();
    let list = query.list(SETTING_HISTORY_SORTED_BY);
    let list = after(call.hub().allow_device(&call.principal, id, Action::DeviceRead), query.end(list)).await?;
    let page = call.hub().setting_history(call.caller()?, id, list).await?;
    call.page(page, value_bytes, DeviceSettingJson::from).await
}

fn value_bytes(setting: &DeviceSetting) -> usize {
    setting.value.bytes().len()
}

pub(crate) async fn setting_update(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let body = call.json_bytes().await;
    let name = call.name("settingName");
    let body = after(call.hub().allow_setting(call.caller()?, id, name), body).await?;
    response::ok(&DeviceSettingJson::from(call.hub().setting_update(call.caller()?, id, name, body).await?))
}

pub(crate) async fn setting_reset(call: &mut Call) -> Answer {
    let (id, name) = (call.id("id", "device")?, call.name("settingName"));
    call.hub().setting_reset(call.caller()?, id, name).await?;
    response::no_content()
}

pub(crate) async fn settings_reset(call: &mut Call) -> Answer {
    call.hub().settings_reset(call.caller()?, call.id("id", "device")?).await?;
    response::no_content()
}

pub(crate) async fn settings_update(call: &mut Call) -> Answer {
    let body = call.json(SettingItem::read_all).await;
    let items = after(call.hub().allow(call.caller()?, Action::SettingUpdate), body).await?;
    let SettingsOutcome { changed, errors } = call.hub().settings_update(call.caller()?, &items).await?;
    let errors: Vec<_> = errors.into_iter().map(|message| ItemErrorJson { message }).collect();
    response::outcome(changed, DeviceSettingJson::from, &errors).await
}

pub(crate) async fn setting_defaults(call: &mut Call) -> Answer {
    let ids = call.json(read_device_ids).await?;
    let DefaultsOutcome { defaults, refused } = call.hub().setting_defaults(call.caller()?, &ids).await?;
    let errors: Vec<_> = refused.into_iter().map(DefaultsErrorJson::from).collect();
    response::outcome(defaults, ProjectDefaultsJson::from, &errors).await
}

/// A setting of a device: the value in force, or one that was replaced.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeviceSetting)]
pub(crate) struct DeviceSettingJson {
    /// Names this record of the setting: each change makes a new one.
    id: Id,
    device_id: Id,
    created_at: Time,
    updated_at: Time,
    /// The time at which the record was replaced.
    changed_at: Option<Time>,
    /// The record that replaced it.
    changed_to_id: Option<Id>,
    /// The user, or the device, who replaced it.
    changed_by_id: Option<String>,
    #[schema(min_length = 1, max_length = 128)]
    name: String,
    #[serde(flatten)]
    declared: DeclaredJson,
    /// The device's own value, or else the default.
    #[schema(value_type = AnyJson)]
    value: Raw,
}

/// The design's declaration of a setting; empty if the design no longer declares it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeclaredJson {
    /// A text, an object of texts by locale, or null.
    #[schema(value_type = AnyJson)]
    title: Raw,
    /// A text, an object of texts by locale, or null.
    #[schema(value_type = AnyJson)]
    description: Raw,
    /// text, number, toggle or geolocation.
    #[schema(value_type = Option<InputType>)]
    input_type: Option<&'static str>,
    /// min and max of a number, and what clients keep there.
    #[schema(value_type = AnyJson)]
    input_type_properties: Raw,
    #[schema(value_type = AnyJson)]
    default_value: Raw,
    list_order: i64,
}

impl From<Declared> for DeclaredJson {
    fn from(declared: Declared) -> Self {
        Self {
            title: Raw(declared.title),
            description: Raw(declared.description),
            input_type: declared.input_type,
            input_type_properties: Raw(declared.input_type_properties),
            default_value: Raw(declared.default_value),
            list_order: declared.list_order,
        }
    }
}

impl From<DeviceSetting> for DeviceSettingJson {
    fn from(setting: DeviceSetting) -> Self {
        Self {
            id: Id(setting.id.0),
            device_id: Id(setting.device.0),
            created_at: Time(setting.created_at),
            updated_at: Time(setting.updated_at()),
            changed_at: setting.changed_at.map(Time),
            changed_to_id: setting.changed_to.map(|id| Id(id.0)),
            changed_by_id: setting.changed_by,
            name: setting.name,
            declared: setting.declared.into(),
            value: Raw(setting.value),
        }
    }
}

/// The error of an item of a bulk operation; the message begins with its place, as `[3].value`.
#[derive(Serialize, ToSchema)]
#[schema(as = ItemError)]
pub(crate) struct ItemErrorJson {
    pub message: String,
}

/// The outcome of a bulk change.
#[derive(Serialize, ToSchema)]
#[schema(as = SettingsOutcome)]
pub(crate) struct SettingsOutcomeJson {
    /// The changed settings, in the order of their items.
    data: Vec<DeviceSettingJson>,
    /// The items that failed; the others were changed all the same.
    errors: Vec<ItemErrorJson>,
}

/// A setting as a project gives it to its devices.
#[derive(Serialize, ToSchema)]
#[schema(as = DefaultSetting)]
pub(crate) struct DefaultSettingJson {
    /// The setting's name, which is unique in its project.
    #[serde(rename = "_id")]
    id: String,
    #[serde(flatten)]
    declared: DeclaredJson,
}

/// The settings that a project gives its devices.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ProjectDefaults)]
pub(crate) struct ProjectDefaultsJson {
    project_uuid: Id,
    /// The version that the devices name.
    version_uuid: Option<String>,
    /// The listed devices of this project and version.
    device_id_list: Vec<Id>,
    default_settings: Vec<DefaultSettingJson>,
}

impl From<ProjectDefaults> for ProjectDefaultsJson {
    fn from(defaults: ProjectDefaults) -> Self {
        let settings = defaults.settings.iter().cloned();
        Self {
            project_uuid: Id(defaults.project.0),
            version_uuid: defaults.version,
            device_id_list: defaults.devices.into_iter().map(|id| Id(id.0)).collect(),
            default_settings: settings
                .map(|(name, declared)| DefaultSettingJson { id: name.to_string(), declared: declared.into() })
                .collect(),
        }
    }
}

/// The cause for which there are no defaults.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DefaultsError)]
pub(crate) struct DefaultsErrorJson {
    message: String,
    /// The project, if the device could be found.
    project_uuid: Option<Id>,
    version_uuid: Option<String>,
}

impl From<DefaultsRefusal> for DefaultsErrorJson {
    fn from(refusal: DefaultsRefusal) -> Self {
        Self {
            message: refusal.message,
            project_uuid: refusal.project.map(|id| Id(id.0)),
            version_uuid: refusal.version,
        }
    }
}

/// The default settings of projects.
#[derive(Serialize, ToSchema)]
#[schema(as = DefaultsOutcome)]
pub(crate) struct DefaultsOutcomeJson {
    /// Devices that cannot be found, and projects without settings.
    errors: Vec<DefaultsErrorJson>,
    /// Once for each project and version.
    data: Vec<ProjectDefaultsJson>,
}

/// The value of a setting.
pub(crate) struct SettingValue;

impl PartialSchema for SettingValue {
    fn schema() -> RefOr<Schema> {
        any_but_null("Any JSON but null, as inputType wants it.")
    }
}

impl ToSchema for SettingValue {}

/// One change of a bulk operation.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = SettingItem)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct SettingItemJson {
    /// The device. One that is unknown or out of reach is an error of the item.
    device_id: String,
    /// The setting.
    #[schema(min_length = 1, max_length = 128)]
    name: String,
    /// Its value, as inputType wants it.
    value: AnyJson,
}

/// The changes of a bulk operation.
pub(crate) type SettingItemsJson = ListOf<SettingItemJson, BULK_ITEMS_MAX>;

/// The devices whose defaults are wanted.
pub(crate) struct DeviceIds;

impl PartialSchema for DeviceIds {
    fn schema() -> RefOr<Schema> {
        let id = ObjectBuilder::new().schema_type(Type::String);
        ArrayBuilder::new().items(id).max_items(Some(BULK_ITEMS_MAX)).into()
    }
}

impl ToSchema for DeviceIds {}
