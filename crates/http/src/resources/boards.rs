//! Dashboards of organizations.

use axum::http::header::{IF_MATCH, IF_NONE_MATCH};
use isobar_model::access::Action;
use isobar_model::appearance::{Dashboard, DashboardInput};
use isobar_model::board::{Board, BoardHead};
use isobar_model::error::Error;
use isobar_model::ids::{DashboardId, OrganizationId};
use isobar_model::version::IfMatch;
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Id, Raw, Time};
use crate::request::{Call, after, both};
use crate::response::{self, Answer, EntityTags};

pub(crate) const BOARDS_SORTED_BY: &[&str] = &["createdAt", "name", "updatedAt"];

pub(crate) async fn dashboard_fetch(call: &mut Call) -> Answer {
    let dashboard = call.hub().dashboard_fetch(call.caller()?, call.id("id", "organization")?).await?;
    response::ok(&DashboardJson::from(dashboard))
}

pub(crate) async fn dashboard_update(call: &mut Call) -> Answer {
    let id: OrganizationId = call.id("id", "organization")?;
    let body = call.json(DashboardInput::read).await;
    let input = after(call.hub().allow_organization(call.caller()?, id, Action::OrganizationUpdate), body).await?;
    response::ok(&DashboardJson::from(call.hub().dashboard_update(call.caller()?, id, input).await?))
}

pub(crate) async fn board_list(call: &mut Call) -> Answer {
    let id: OrganizationId = call.id("id", "organization")?;
    let mut query = call.query();
    let list = query.list(BOARDS_SORTED_BY);
    let allowed = call.hub().allow_organization(call.caller()?, id, Action::OrganizationRead);
    let list = after(allowed, query.end(list)).await?;
    let page = call.hub().board_list(call.caller()?, id, list).await?;
    call.page(page, |_| 0, BoardHeadJson::from).await
}

pub(crate) async fn board_create(call: &mut Call) -> Answer {
    let id: OrganizationId = call.id("id", "organization")?;
    let body = call.json(DashboardInput::read).await;
    let input = after(call.hub().allow_organization(call.caller()?, id, Action::OrganizationUpdate), body).await?;
    response::created(&BoardJson::from(call.hub().board_create(call.caller()?, id, input).await?))
}

pub(crate) async fn board_fetch(call: &mut Call) -> Answer {
    let (id, board) = board(call)?;
    let board = call.hub().board_fetch(call.caller()?, id, board).await?;
    let tag = board.head.tag().to_string();
    // A malformed list of tags matches nothing.
    if let Ok(Some(known)) = EntityTags::read(&call.head.headers, &IF_NONE_MATCH)
        && let Some(known_by) = known.name_by(&tag)
    {
        return Ok(response::not_modified(&known_by));
    }
    Ok(response::tagged(response::ok(&BoardJson::from(board))?, &tag))
}

pub(crate) async fn board_update(call: &mut Call) -> Answer {
    let (id, board) = board(call)?;
    let read = both(required(call), call.json(DashboardInput::read).await);
    let (required, input) = after(call.hub().allow_board(call.caller()?, id, board), read).await?;
    let board = call.hub().board_update(call.caller()?, id, board, input, required.as_ref()).await?;
    response::ok(&BoardJson::from(board))
}

pub(crate) async fn board_delete(call: &mut Call) -> Answer {
    let (id, board) = board(call)?;
    let required = after(call.hub().allow_board(call.caller()?, id, board), required(call)).await?;
    call.hub().board_delete(call.caller()?, id, board, required.as_ref()).await?;
    response::no_content()
}

/// Reads the dashboard that the path names.
fn board(call: &Call) -> Result<(OrganizationId, DashboardId), Error> {
    Ok((call.id("id", "organization")?, call.id("dashboardId", "dashboard")?))
}

/// Reads the condition (`If-Match`) of a change.
fn required(call: &Call) -> Result<Option<IfMatch>, Error> {
    let named = EntityTags::read(&call.head.headers, &IF_MATCH)
        .map_err(|_| Error::invalid("header.If-Match", "must be * or a list of entity tags"))?;
    Ok(named.map(EntityTags::into_if_match))
}

/// The dashboard that an organization shows first.
#[derive(Serialize, ToSchema)]
#[schema(as = Dashboard)]
pub(crate) struct DashboardJson {
    name: Option<String>,
    options: Raw,
    configuration: Raw,
}

impl From<Dashboard> for DashboardJson {
    fn from(dashboard: Dashboard) -> Self {
        Self { name: dashboard.name, options: Raw(dashboard.options), configuration: Raw(dashboard.configuration) }
    }
}

/// A dashboard of an organization, without what it shows.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = BoardHead)]
pub(crate) struct BoardHeadJson {
    id: Id,
    name: Option<String>,
    /// The project on whose devices' pages it is shown: `projectUuid` of its options, where that is an identifier.
    project_uuid: Option<Id>,
    /// True if an organization above lends it: it is changed there.
    is_inherited: bool,
    created_at: Time,
    updated_at: Time,
}

impl From<BoardHead> for BoardHeadJson {
    fn from(head: BoardHead) -> Self {
        Self {
            id: Id(head.id.0),
            name: head.name,
            project_uuid: head.project.map(|project| Id(project.0)),
            is_inherited: head.is_inherited,
            created_at: Time(head.created_at),
            updated_at: Time(head.updated_at),
        }
    }
}

/// A dashboard of an organization.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Board)]
pub(crate) struct BoardJson {
    id: Id,
    name: Option<String>,
    /// The project on whose devices' pages it is shown: `projectUuid` of its options, where that is an identifier.
    project_uuid: Option<Id>,
    /// True if an organization above lends it: it is changed there.
    is_inherited: bool,
    created_at: Time,
    updated_at: Time,
    options: Raw,
    configuration: Raw,
}

impl From<Board> for BoardJson {
    fn from(Board { head, dashboard }: Board) -> Self {
        Self {
            id: Id(head.id.0),
            name: head.name,
            project_uuid: head.project.map(|project| Id(project.0)),
            is_inherited: head.is_inherited,
            created_at: Time(head.created_at),
            updated_at: Time(head.updated_at),
            options: Raw(dashboard.options),
            configuration: Raw(dashboard.configuration),
        }
    }
}

/// Creates or updates a dashboard of an organization.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = DashboardInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct DashboardInputJson {
    #[schema(max_length = 200)]
    name: Option<String>,
    options: Option<Raw>,
    configuration: Raw,
}
