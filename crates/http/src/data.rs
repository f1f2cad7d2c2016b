//! Stored values, last values and storage elements of a device.

use axum::http::StatusCode;
use isobar_model::access::Action;
use isobar_model::event::LastValues;
use isobar_model::ids::DeviceId;

use crate::call::{Call, after, both};
use crate::export::{self, Form};
use crate::problem::Problem;
use crate::reply::{self, Answer};
use crate::views::{StorageElementJson, StorageListJson};

pub(crate) const STORAGE_SORTED_BY: &[&str] = &["name"];

pub(crate) async fn values(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let (mut query, form) = (call.query(), Form::of(call));
    let asked = (query.values_list(form == Form::Json), query.columns());
    let allowed = async {
        call.hub().allow_device(&call.principal, id, Action::DeviceRead).await?;
        // An unknown element is 404 too, before any fault of the parameters.
        match call.element_name() {
            Ok(element) => call.hub().storage_fetch(call.caller()?, id, element).await.map(|_| ()),
            Err(_) => Ok(()),
        }
    };
    let input = both(query.end(asked), call.element_name().map_err(Problem::from));
    let ((asked, columns), element) = after(allowed, input).await?;
    if form != Form::Json {
        let export = call.hub().values_export(call.caller()?, id, element, asked).await?;
        return Ok(export::streamed(export, form, columns, id, element));
    }
    let page = call.hub().values(call.caller()?, id, element, asked).await?;
    let room = call.room_to_answer(page.items.iter().map(|value| value.payload.bytes().len()))?;
    let element = element.to_owned();
    reply::page_written(page, room, move |value, out| value.write_json(id, &element, out)).await
}

/// The element that the path names. That it is no name is told only to those who may do this with the device.
async fn element_of(call: &Call, id: DeviceId, action: Action) -> Result<&str, Problem> {
    after(call.hub().allow_device(&call.principal, id, action), call.element_name()).await
}

pub(crate) async fn last_values(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let element = element_of(call, id, Action::DeviceRead).await?;
    let last = call.hub().last_values(&call.principal, id, element).await?;
    let mut body = Vec::with_capacity(256);
    LastValues::write_json(last.as_ref(), id, element, &mut body);
    Ok(reply::raw_json(StatusCode::OK, body))
}

pub(crate) async fn storage_list(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let mut query = call.query();
    let list = query.list(STORAGE_SORTED_BY);
    let allowed = call.hub().allow_device(&call.principal, id, Action::DeviceRead);
    let list = after(allowed, query.end(list)).await?;
    let list = call.hub().storage_list(call.caller()?, id, list).await?;
    reply::ok(&StorageListJson {
        meta: list.page.meta(),
        bytes_stored: list.bytes_stored,
        storage_elements: list.page.items.into_iter().map(StorageElementJson::from).collect(),
    })
}

pub(crate) async fn storage_fetch(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let element = element_of(call, id, Action::DeviceRead).await?;
    reply::ok(&StorageElementJson::from(call.hub().storage_fetch(call.caller()?, id, element).await?))
}

pub(crate) async fn storage_delete(call: &mut Call) -> Answer {
    let id: DeviceId = call.id("id", "device")?;
    let element = element_of(call, id, Action::StorageDelete).await?;
    call.hub().storage_delete(call.caller()?, id, Some(element)).await?;
    reply::no_content()
}

pub(crate) async fn storage_delete_all(call: &mut Call) -> Answer {
    call.hub().storage_delete(call.caller()?, call.id("id", "device")?, None).await?;
    reply::no_content()
}
