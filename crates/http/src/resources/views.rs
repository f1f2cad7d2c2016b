//! Saved views of the device list, private to each user.

use isobar_model::ids::ViewId;
use isobar_model::view::{View, ViewInput};
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Id, Time};
use crate::request::{Call, after};
use crate::response::{self, Answer};

pub(crate) async fn view_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let page = query.page();
    let page = query.end(page)?;
    let page = call.hub().view_list(call.caller()?, page).await?;
    call.page(page, |view| view.query.len(), ViewJson::from).await
}

pub(crate) async fn view_create(call: &mut Call) -> Answer {
    let input = call.json(ViewInput::read).await?;
    response::created(&ViewJson::from(call.hub().view_create(call.caller()?, input).await?))
}

pub(crate) async fn view_update(call: &mut Call) -> Answer {
    let id: ViewId = call.id("id", "view")?;
    let body = call.json(ViewInput::read).await;
    let input = after(call.hub().allow_view(call.caller()?, id), body).await?;
    response::ok(&ViewJson::from(call.hub().view_update(call.caller()?, id, input).await?))
}

pub(crate) async fn view_delete(call: &mut Call) -> Answer {
    let id: ViewId = call.id("id", "view")?;
    call.hub().view_delete(call.caller()?, id).await?;
    response::no_content()
}

/// A view of the device list.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = View)]
pub(crate) struct ViewJson {
    id: Id,
    /// Unlike that of any other of the caller's views.
    name: String,
    /// The organization whose devices it shows; null: whichever is looked at.
    organization_id: Option<Id>,
    /// The query of an address of the console's list: what is searched and filtered, the order and the columns.
    query: String,
    created_at: Time,
    updated_at: Time,
}

impl From<View> for ViewJson {
    fn from(view: View) -> Self {
        Self {
            id: Id(view.id.0),
            name: view.name,
            organization_id: view.organization.map(|organization| Id(organization.0)),
            query: view.query,
            created_at: Time(view.created_at),
            updated_at: Time(view.updated_at),
        }
    }
}

/// Creates or updates a view of the device list.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = ViewInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct ViewInputJson {
    /// Unlike that of any other of the caller's views.
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// The organization whose devices it shows; null: whichever is looked at.
    organization_id: Option<Id>,
    /// The query of an address of the console's list, percent-encoded.
    #[schema(max_length = 8_000, pattern = "^[!-~]*$")]
    query: String,
}
