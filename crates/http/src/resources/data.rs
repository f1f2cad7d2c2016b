//! Stored values, last values and storage elements of a device.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use bytes::Bytes;
use isobar_hub::StorageElement;
use isobar_model::access::Action;
use isobar_model::event::LastValues;
use isobar_model::ids::DeviceId;
use isobar_model::json::RawJson;
use isobar_model::page::Meta;
use serde::Serialize;
use utoipa::ToSchema;

use super::export::{self, ValuesFormat};
use super::values::{AnyJson, Id, Raw, Time};
use crate::problem::Problem;
use crate::request::{Call, after, both};
use crate::response::{self, Answer};

pub(crate) const STORAGE_SORTED_BY: &[&str] = &["name"];

pub(crate) async fn values(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let (mut query, format) = (call.query(), ValuesFormat::of(call));
    let asked = (query.values_list(format == ValuesFormat::Json), query.columns());
    let allowed = async {
        call.hub().allow_device(&call.principal, id, Action::DeviceRead).await?;
        // An unknown element is 404, before any fault of the parameters.
        match call.element_name() {
            Ok(element) => call.hub().storage_fetch(call.caller()?, id, element).await.map(|_| ()),
            Err(_) => Ok(()),
        }
    };
    let input = both(query.end(asked), call.element_name().map_err(Problem::from));
    let ((asked, columns), element) = after(allowed, input).await?;
    if format != ValuesFormat::Json {
        let export = call.hub().values_export(call.caller()?, id, element, asked).await?;
        return Ok(export::streamed(export, format, columns, id, element));
    }
    let page = call.hub().values(call.caller()?, id, element, asked).await?;
    let memory = call.response_memory(page.items.iter().map(|value| value.payload.bytes().len()))?;
    let element = element.to_owned();
    response::page_written(page, memory, move |value, out| value.write_json(id, &element, out)).await
}

/// Reads the element that the path names. Only callers permitted the action learn that it is not a valid name.
async fn element_of(call: &Call, id: DeviceId, action: Action) -> Result<&str, Problem> {
    after(call.hub().allow_device(&call.principal, id, action), call.element_name()).await
}

pub(crate) async fn last_values(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let element = element_of(call, id, Action::DeviceRead).await?;
    let last = call.hub().last_values(&call.principal, id, element).await?;
    let mut body = Vec::with_capacity(256);
    LastValues::write_json(last.as_ref(), id, element, &mut body);
    Ok(response::raw_json(StatusCode::OK, body))
}

pub(crate) async fn storage_list(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let mut query = call.query();
    let list = query.list(STORAGE_SORTED_BY);
    let allowed = call.hub().allow_device(&call.principal, id, Action::DeviceRead);
    let list = after(allowed, query.end(list)).await?;
    let list = call.hub().storage_list(call.caller()?, id, list).await?;
    response::ok(&StorageListJson {
        meta: list.page.meta(),
        bytes_stored: list.bytes_stored,
        storage_elements: list.page.items.into_iter().map(StorageElementJson::from).collect(),
    })
}

pub(crate) async fn storage_fetch(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let element = element_of(call, id, Action::DeviceRead).await?;
    response::ok(&StorageElementJson::from(call.hub().storage_fetch(call.caller()?, id, element).await?))
}

pub(crate) async fn storage_delete(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let element = element_of(call, id, Action::StorageDelete).await?;
    call.hub().storage_delete(call.caller()?, id, Some(element)).await?;
    response::no_content()
}

pub(crate) async fn storage_delete_all(call: &mut Call) -> Answer {
    call.hub().storage_delete(call.caller()?, call.id("id", "device")?, None).await?;
    response::no_content()
}

/// The most recent values of a storage element.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LastValues)]
pub(crate) struct LastValuesJson {
    pub updated_at: Option<Time>,
    pub device_id: Id,
    pub element_name: String,
    /// An object of the most recent value of every key, or the newest payload when that is no object.
    #[schema(value_type = AnyJson)]
    pub values: Raw,
}

/// A storage element.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StorageElement)]
pub(crate) struct StorageElementJson {
    name: String,
    device_id: Id,
    created_at: Time,
    updated_at: Time,
    /// The design's descriptions of the keys of its values, by path: `payload`, `payload.a.b` or `payload["a b"]`;
    /// empty without any.
    #[schema(value_type = BTreeMap<String, StorageFieldJson>)]
    fields: Raw,
}

/// The description of a key of stored values for people. It changes nothing that is stored.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "the shape that the design language checks, for the OpenAPI document")]
#[schema(as = StorageField)]
pub(crate) struct StorageFieldJson {
    #[schema(required = false, nullable = false)]
    title: Option<TitleJson>,
    /// The unit of its numbers, as °C.
    #[schema(required = false, nullable = false)]
    unit: Option<String>,
    /// The number of digits after the point.
    #[schema(required = false, nullable = false, minimum = 0, maximum = 12)]
    decimals: Option<u8>,
    /// The least that a chart shows.
    #[schema(required = false, nullable = false)]
    minimum: Option<f64>,
    /// The most that a chart shows.
    #[schema(required = false, nullable = false)]
    maximum: Option<f64>,
    /// The limit below which numbers are marked.
    #[schema(required = false, nullable = false)]
    low: Option<f64>,
    /// The limit above which numbers are marked.
    #[schema(required = false, nullable = false)]
    high: Option<f64>,
    /// The words that are shown in place of values, by the value as text.
    #[schema(required = false, nullable = false)]
    words: Option<BTreeMap<String, String>>,
}

/// A text, or texts by locale.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the shape that the design language checks, for the OpenAPI document")]
#[schema(as = Title)]
#[serde(untagged)]
pub(crate) enum TitleJson {
    Text(String),
    ByLocale(BTreeMap<String, String>),
}

impl From<StorageElement> for StorageElementJson {
    fn from(element: StorageElement) -> Self {
        Self {
            name: element.name.to_string(),
            device_id: Id(element.device.0),
            created_at: Time(element.created_at),
            updated_at: Time(element.updated_at),
            fields: Raw(element.fields.unwrap_or_else(|| RawJson::trusted(Bytes::from_static(b"{}")))),
        }
    }
}

/// A page of storage elements, and how much they hold.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = StorageList)]
pub(crate) struct StorageListJson {
    pub meta: Meta,
    pub bytes_stored: u64,
    pub storage_elements: Vec<StorageElementJson>,
}

/// A stored value.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "the shape that the model writes, for the OpenAPI document")]
#[schema(as = StoredValue)]
pub(crate) struct StoredValueJson {
    id: Id,
    created_at: Time,
    device_id: Id,
    element_name: String,
    payload: AnyJson,
}
