//! Devices.

use std::borrow::Cow;
use std::sync::Arc;

use futures::future::ready;
use futures::{Stream, StreamExt as _, stream};
use isobar_hub::{ActiveDevices, CreationOutcome, DeviceView, LabelsOutcome, SummaryView};
use isobar_model::access::Action;
use isobar_model::device::{Device, DeviceInput, LISTED_PROTOCOL_CHARACTERS_MAX, PROTOCOLS_MAX, StreetAddress};
use isobar_model::error::Error;
use isobar_model::event::LastValues;
use isobar_model::ids::{DeviceId, ProjectId};
use isobar_model::meta::{MetaItem, MetaPatch};
use isobar_model::secret::Secret;
use isobar_model::setting::BULK_ITEMS_MAX;
use isobar_model::status::Status;
use serde::Serialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

use super::data::LastValuesJson;
use super::device_csv;
use super::export::ValuesFormat;
use super::settings::ItemErrorJson;
use super::values::{Id, ListOf, Raw, Time};
use super::words::StatusText;
use crate::request::{Call, after, both};
use crate::response::{self, Answer, JsonPart};

pub(crate) const DEVICES_SORTED_BY: &[&str] = isobar_hub::sortable::DEVICES;

/// Most bytes of the body of a bulk creation.
pub(crate) const BULK_BODY_BYTES_MAX: usize = 5 << 20;

/// Estimated bytes that the answer to a bulk creation takes for each item.
const CREATED_ITEM_BYTES: usize = 160;

pub(crate) async fn device_list(call: &mut Call) -> Answer {
    let (mut query, format) = (call.query(), ValuesFormat::of_table(call));
    let list = match format {
        ValuesFormat::Csv => query.whole_list(DEVICES_SORTED_BY),
        ValuesFormat::Json | ValuesFormat::Lines => query.list_with_after(DEVICES_SORTED_BY),
    };
    let tree = query.tree("organizationId");
    let asked = (query.device_filters(), query.device_columns(), query.last_values());
    let (filters, columns, last) = query.end(asked)?;
    if format == ValuesFormat::Csv {
        let export = call.hub().device_export(call.caller()?, tree, list, filters).await?;
        return Ok(device_csv::streamed(export, columns));
    }
    let page = call.hub().device_list(call.caller()?, tree, list, filters).await?;
    call.hub().last_values_reachable(&page, &last)?;
    let memory = Arc::new(call.response_memory(page.items.iter().map(|device| device.meta.bytes().len()))?);
    let (meta, hub, caller) = (page.meta(), call.hub().clone(), Arc::new(call.caller()?.clone()));
    let (last, devices) = (Arc::new(last), stream::iter(page.items));
    let views = devices.then(move |device| {
        let (hub, caller, last, memory) = (hub.clone(), Arc::clone(&caller), Arc::clone(&last), Arc::clone(&memory));
        async move {
            let _memory = memory;
            hub.device_with_last(&caller, device, &last).await.and_then(written)
        }
    });
    response::page_in_parts(meta, views).await
}

/// Writes a device with its last values, which may be large together: each is read when there is room for it.
fn written(view: DeviceView) -> Result<impl Stream<Item = Result<JsonPart, Error>> + Send + 'static, Error> {
    let DeviceView { device, last } = view;
    let id = device.id;
    let device = DeviceJson::from(device);
    let (head, tail) = match last.is_none() {
        true => (serde_json::to_vec(&device).map_err(Error::internal)?, Vec::new()),
        false => response::opened(&device, "lastValues")?,
    };
    let values = stream::try_unfold((last, Vec::new()), move |(mut last, mut text)| async move {
        let Some((element, values)) = last.next().await? else { return Ok(None) };
        LastValues::write_json(Some(&values), id, &element, &mut text);
        // A comma before each but the first.
        Ok(Some((JsonPart::Text(text), (last, b",".to_vec()))))
    });
    let text = |text: Vec<u8>| stream::once(ready(Ok(JsonPart::Text(text))));
    Ok(text(head).chain(values).chain(text(tail)))
}

pub(crate) async fn device_summary(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("organizationId"), query.device_filters());
    let (tree, filters) = query.end(asked)?;
    response::ok(&DeviceSummaryJson::from(call.hub().device_summary(call.caller()?, tree, filters).await?))
}

pub(crate) async fn devices_create(call: &mut Call) -> Answer {
    let limit = BULK_BODY_BYTES_MAX.max(call.state.settings.max_body_bytes);
    let body = call.json_up_to(limit, DeviceInput::read_all).await;
    let mut query = call.query();
    let test = query.boolean("test", false);
    let input = both(query.end(test), body);
    let (test, items) = after(call.hub().allow(call.caller()?, Action::DeviceCreate), input).await?;
    // Charged before anything is done: the tokens are shown only once.
    let memory = call.response_memory(items.iter().map(|_| CREATED_ITEM_BYTES))?;
    let outcome = call.hub().devices_create(call.caller()?, items, test).await?;
    Ok(response::with_memory(response::ok(&DevicesOutcomeJson::from(outcome))?, memory))
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
    response::in_parts(written(call.hub().device_fetch(&call.principal, id, last).await?)?).await
}

pub(crate) async fn device_update(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let body = call.json(DeviceInput::read).await;
    let input = after(call.hub().allow_device(&call.principal, id, Action::DeviceUpdate), body).await?;
    let last = call.query().last_values();
    response::in_parts(written(call.hub().device_update(call.caller()?, id, input, last).await?)?).await
}

pub(crate) async fn meta_update(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let body = call.merge_patch(MetaPatch::read).await;
    let patch = after(call.hub().allow_device(&call.principal, id, Action::DeviceUpdate), body).await?;
    let last = call.query().last_values();
    response::in_parts(written(call.hub().meta_update(call.caller()?, id, patch, last).await?)?).await
}

pub(crate) async fn metas_update(call: &mut Call) -> Answer {
    let body = call.merge_patch(MetaItem::read_all).await;
    let items = after(call.hub().allow(call.caller()?, Action::DeviceUpdate), body).await?;
    let LabelsOutcome { changed, errors } = call.hub().metas_update(call.caller()?, items).await?;
    let errors: Vec<_> = errors.into_iter().map(|message| ItemErrorJson { message }).collect();
    let (hub, caller) = (call.hub().clone(), Arc::new(call.caller()?.clone()));
    // One by one: together their labels may take 640 MiB.
    let devices = stream::iter(changed).then(move |id| {
        let (hub, caller) = (hub.clone(), Arc::clone(&caller));
        async move { hub.device_changed_now(&caller, id).await }
    });
    let devices = devices.filter_map(|device| ready(device.transpose()));
    response::outcome_as_read(devices, DeviceJson::from, &errors).await
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

/// A device. Its last values are written between the parts of this (see [`written`]).
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Device, description = "A device.")]
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
    alarms: DeviceAlarmsJson,
    image_url: String,
}

/// The active alarms of a device by severity.
#[derive(Serialize, ToSchema)]
#[schema(as = DeviceAlarms)]
pub(crate) struct DeviceAlarmsJson {
    critical: u64,
    warning: u64,
    info: u64,
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
            alarms: DeviceAlarmsJson {
                critical: device.alarms.critical,
                warning: device.alarms.warning,
                info: device.alarms.info,
            },
            image_url: format!("/v2/devices/{}/image.png", device.id),
        }
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

/// Counts of the devices in a part of the tree.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeviceSummary)]
pub(crate) struct DeviceSummaryJson {
    /// Devices.
    total: u64,
    by_status: StatusCountsJson,
    /// Projects that have any, those with most first.
    by_project: Vec<ProjectCountJson>,
    active: ActiveDevicesJson,
    /// Devices with coordinates: set by the design, by a geolocation setting, or in `meta`.
    located: u64,
}

/// The number of devices with each status.
#[derive(Serialize, ToSchema)]
#[schema(as = StatusCounts)]
pub(crate) struct StatusCountsJson {
    none: u64,
    good: u64,
    info: u64,
    warning: u64,
    critical: u64,
    missing: u64,
}

impl From<[u64; Status::ALL.len()]> for StatusCountsJson {
    fn from([none, good, info, warning, critical, missing]: [u64; Status::ALL.len()]) -> Self {
        Self { none, good, info, warning, critical, missing }
    }
}

/// The number of devices of a project.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ProjectCount)]
pub(crate) struct ProjectCountJson {
    project_uuid: Id,
    /// null where the project is out of reach.
    project_name: Option<String>,
    count: u64,
}

/// The number of devices that sent an event within the last hour, 24 hours and seven days, each including those before
/// it; and of devices that never did.
#[derive(Serialize, ToSchema)]
#[schema(as = ActiveDevices)]
pub(crate) struct ActiveDevicesJson {
    hour: u64,
    day: u64,
    week: u64,
    never: u64,
}

impl From<SummaryView> for DeviceSummaryJson {
    fn from(view: SummaryView) -> Self {
        let ActiveDevices { hour, day, week, never } = view.active;
        let project = |(project, project_name, count): (ProjectId, _, _)| ProjectCountJson {
            project_uuid: Id(project.0),
            project_name,
            count,
        };
        Self {
            total: view.total,
            by_status: view.by_status.into(),
            by_project: view.by_project.into_iter().map(project).collect(),
            active: ActiveDevicesJson { hour, day, week, never },
            located: view.located,
        }
    }
}

/// The outcome of a bulk creation.
#[derive(Serialize, ToSchema)]
#[schema(as = DevicesOutcome)]
pub(crate) struct DevicesOutcomeJson {
    /// The items that were made, or of a test could be, in their order.
    data: Vec<CreatedItemJson>,
    /// The items that were not, in their order.
    errors: Vec<IndexedErrorJson>,
}

/// A device that an item made.
#[derive(Serialize, ToSchema)]
#[schema(as = CreatedItem)]
pub(crate) struct CreatedItemJson {
    /// The place of the item, from 0.
    index: usize,
    /// The device; null of a test.
    id: Option<Id>,
    /// Its token, which is shown this once; null of a test.
    token: Option<String>,
}

/// The outcome of a bulk change of labels.
#[derive(ToSchema)]
#[schema(as = LabelsOutcome)]
#[expect(dead_code, reason = "a shape for the document: the devices are read as they are written")]
pub(crate) struct LabelsOutcomeJson {
    /// The devices of the items that were changed, in the order of their items, as they are now.
    data: Vec<DeviceJson>,
    /// The items that failed; the others were changed all the same.
    errors: Vec<ItemErrorJson>,
}

/// The error of an item that made no device.
#[derive(Serialize, ToSchema)]
#[schema(as = IndexedError)]
pub(crate) struct IndexedErrorJson {
    /// The place of the item, from 0.
    index: usize,
    /// The cause: every field that fails, as `field: message`.
    message: String,
}

impl From<CreationOutcome> for DevicesOutcomeJson {
    fn from(outcome: CreationOutcome) -> Self {
        let made = outcome.made.into_iter().map(|(index, made)| {
            let (id, token) = made.unzip();
            CreatedItemJson {
                index,
                id: id.map(|id: DeviceId| Id(id.0)),
                token: token.map(|token: Secret| token.reveal().to_owned()),
            }
        });
        let errors = outcome.errors.into_iter().map(|(index, message)| IndexedErrorJson { index, message });
        Self { data: made.collect(), errors: errors.collect() }
    }
}

/// Builds the schema of the protocols; null counts as absent.
fn protocols() -> RefOr<Schema> {
    let text = ObjectBuilder::new().schema_type(Type::String).max_length(Some(LISTED_PROTOCOL_CHARACTERS_MAX));
    let kinds = SchemaType::from_iter([Type::Array, Type::Null]);
    ArrayBuilder::new().schema_type(kinds).items(text).max_items(Some(PROTOCOLS_MAX)).into()
}

/// Creates or updates a device.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = DeviceInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct DeviceInputJson {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    project_uuid: Id,
    #[schema(max_length = 36)]
    version_uuid: Option<String>,
    #[schema(max_length = 20)]
    protocol: Option<String>,
    #[schema(schema_with = protocols)]
    protocols: Option<Vec<String>>,
    /// Deprecated. At most 1,000 labels and 65,536 bytes of JSON.
    meta: Option<Raw>,
    #[schema(max_length = 200)]
    description: Option<String>,
    street_address: Option<StreetAddress>,
    organization_id: Option<Id>,
}

/// Devices to be created, each of which is checked by itself. At most 5 MiB in all.
pub(crate) type DeviceInputsJson = ListOf<DeviceInputJson, BULK_ITEMS_MAX>;

/// A JSON merge patch of a device's metadata (RFC 7396).
pub(crate) struct MetaPatchJson;

impl PartialSchema for MetaPatchJson {
    fn schema() -> RefOr<Schema> {
        let free = AdditionalProperties::FreeForm(true);
        let any = ObjectBuilder::new().schema_type(Type::Object).additional_properties(Some(free));
        any.description(Some("Labels to set; null removes one, objects are merged in turn.")).into()
    }
}

impl ToSchema for MetaPatchJson {
    fn name() -> Cow<'static, str> {
        "MetaPatch".into()
    }
}

/// Changes to the labels of one device.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = MetaItem)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct MetaItemJson {
    /// The device. One that is unknown or out of reach is an error of the item.
    device_id: String,
    meta: MetaPatchJson,
}

/// Changes to the labels of many devices.
pub(crate) type MetaItemsJson = ListOf<MetaItemJson, BULK_ITEMS_MAX>;
