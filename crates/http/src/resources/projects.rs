//! Projects.

use isobar_hub::ProjectView;
use isobar_model::access::Action;
use isobar_model::ids::ProjectId;
use isobar_model::project::{PROJECT_TYPE, ProjectInput};
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Id, Time};
use super::words::ProjectType;
use crate::request::{Call, after};
use crate::response::{self, Answer};

pub(crate) const PROJECTS_SORTED_BY: &[&str] = isobar_hub::sortable::PROJECTS;

pub(crate) async fn project_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let (tree, list) = (query.tree("organizationId"), query.list_with_after(PROJECTS_SORTED_BY));
    let asked = (tree, list, query.plain_filter("type"), query.boolean("usable", false));
    let (tree, list, kind, usable) = query.end(asked)?;
    let page = call.hub().project_list(call.caller()?, tree, (kind.as_deref(), usable), list).await?;
    call.page(page, |_| 0, ProjectJson::from).await
}

pub(crate) async fn project_create(call: &mut Call) -> Answer {
    let body = call.json(ProjectInput::read).await;
    let input = after(call.hub().allow(call.caller()?, Action::ProjectCreate), body).await?;
    let project = call.hub().project_create(call.caller()?, input).await?;
    response::created(&ProjectJson::from(ProjectView::from(project)))
}

pub(crate) async fn project_fetch(call: &mut Call) -> Answer {
    let project = call.hub().project_fetch(call.caller()?, call.id("id", "project")?).await?;
    response::ok(&ProjectJson::from(project))
}

pub(crate) async fn project_update(call: &mut Call) -> Answer {
    let id: ProjectId = call.id("id", "project")?;
    let body = call.json(ProjectInput::read).await;
    let input = after(call.hub().allow_project(call.caller()?, id, Action::ProjectUpdate), body).await?;
    let project = call.hub().project_update(call.caller()?, id, input).await?;
    response::ok(&ProjectJson::from(ProjectView::from(project)))
}

pub(crate) async fn project_delete(call: &mut Call) -> Answer {
    call.hub().project_delete(call.caller()?, call.id("id", "project")?).await?;
    response::no_content()
}

/// A project.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Project)]
pub(crate) struct ProjectJson {
    id: Id,
    name: String,
    #[schema(value_type = ProjectType)]
    r#type: &'static str,
    uuid: Id,
    /// null when it is out of the caller's reach: then only the project can be seen.
    organization_id: Option<Id>,
    /// null when it is out of the caller's reach.
    organization_name: Option<String>,
    /// null when it is out of the caller's reach, or gone.
    created_by: Option<Id>,
    created_at: Time,
    updated_at: Time,
}

impl From<ProjectView> for ProjectJson {
    fn from(view: ProjectView) -> Self {
        let ProjectView { project, shows_owner, shows_creator } = view;
        Self {
            id: Id(project.id.0),
            name: project.name,
            r#type: PROJECT_TYPE,
            uuid: Id(project.id.0),
            organization_id: shows_owner.then_some(Id(project.organization.0)),
            organization_name: shows_owner.then_some(project.organization_name),
            created_by: project.created_by.filter(|_| shows_creator).map(|user| Id(user.0)),
            created_at: Time(project.created_at),
            updated_at: Time(project.updated_at),
        }
    }
}

/// Creates or updates a project.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = ProjectInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct ProjectInputJson {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    organization_id: Option<Id>,
}
