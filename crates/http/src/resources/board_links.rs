//! Links that show a dashboard on a screen without a user.

use isobar_model::board_link::{BoardLink, BoardLinkInput};
use isobar_model::error::Error;
use isobar_model::ids::{BoardLinkId, DashboardId, OrganizationId};
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Id, Time};
use crate::request::{Call, after};
use crate::response::{self, Answer};

pub(crate) async fn board_link_list(call: &mut Call) -> Answer {
    let (id, board) = board(call)?;
    let mut query = call.query();
    let page = query.page();
    let page = after(call.hub().allow_board(call.caller()?, id, board), query.end(page)).await?;
    let links = call.hub().board_link_list(call.caller()?, id, board, page).await?;
    call.page(links, |_| 0, BoardLinkJson::from).await
}

pub(crate) async fn board_link_create(call: &mut Call) -> Answer {
    let (id, board) = board(call)?;
    let now = call.hub().clock().now();
    let body = call.json(move |body| BoardLinkInput::read(body, now)).await;
    let input = after(call.hub().allow_board_link(call.caller()?, id, board), body).await?;
    let (link, secret) = call.hub().board_link_create(call.caller()?, id, board, input).await?;
    let site = &call.hub().config().public_url;
    response::created(&NewBoardLinkJson {
        id: Id(link.id.0),
        url: format!("{site}/wall#{}.{}", link.id, secret.reveal()),
        name: link.name,
        created_by_id: Id(link.maker.0),
        created_at: Time(link.created_at),
        expires_at: Time(link.expires_at),
    })
}

pub(crate) async fn board_link_delete(call: &mut Call) -> Answer {
    let (id, board) = board(call)?;
    let link: Result<BoardLinkId, Error> = call.id("linkId", "link");
    let link = after(call.hub().allow_board(call.caller()?, id, board), link).await?;
    call.hub().board_link_delete(call.caller()?, id, board, link).await?;
    response::no_content()
}

/// Reads the dashboard that the path names.
fn board(call: &Call) -> Result<(OrganizationId, DashboardId), Error> {
    Ok((call.id("id", "organization")?, call.id("dashboardId", "dashboard")?))
}

/// A link that shows a dashboard until its end, without its secret.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BoardLink)]
pub(crate) struct BoardLinkJson {
    id: Id,
    name: String,
    /// The user who made it, and by whose rights it reads.
    created_by_id: Id,
    created_at: Time,
    /// The time from which it is refused.
    expires_at: Time,
}

impl From<BoardLink> for BoardLinkJson {
    fn from(link: BoardLink) -> Self {
        Self {
            id: Id(link.id.0),
            name: link.name,
            created_by_id: Id(link.maker.0),
            created_at: Time(link.created_at),
            expires_at: Time(link.expires_at),
        }
    }
}

/// A new link with its secret, shown this once.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = NewBoardLink)]
pub(crate) struct NewBoardLinkJson {
    id: Id,
    name: String,
    /// The address at which the console shows the dashboard: the part after the `#` is `<id>.<secret>`, as
    /// `Authorization: Wall` takes it.
    url: String,
    /// The user who made it, and by whose rights it reads.
    created_by_id: Id,
    created_at: Time,
    /// The time from which it is refused.
    expires_at: Time,
}

/// Creates a link that shows a dashboard on screens.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = BoardLinkInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct BoardLinkInputJson {
    /// By which its makers know it; "Screen" where it is left out.
    #[schema(required = false, min_length = 1, max_length = 80)]
    name: String,
    /// The time from which it is refused: within a year.
    expires_at: Time,
}
