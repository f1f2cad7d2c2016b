//! Projects and their specifications.

use isobar_hub::ProjectView;
use isobar_model::access::Action;
use isobar_model::ids::ProjectId;
use isobar_model::project::{ProjectInput, SpecificationInput};

use crate::call::{Call, after};
use crate::reply::{self, Answer};
use crate::views::{ProjectJson, SpecificationJson};

pub(crate) const SORTED_BY: &[&str] = isobar_hub::sortable::PROJECTS;

pub(crate) async fn project_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("organizationId"), query.list(SORTED_BY), query.plain_filter("type"));
    let (tree, list, kind) = query.end(asked)?;
    let page = call.hub().project_list(call.caller()?, tree, kind.as_deref(), list).await?;
    // Only what is in reach is listed.
    reply::page(page, |project| ProjectJson::from(ProjectView::from(project))).await
}

pub(crate) async fn project_create(call: &mut Call) -> Answer {
    let body = call.json(ProjectInput::read).await;
    let input = after(call.hub().allow(call.caller()?, Action::ProjectCreate), body).await?;
    let project = call.hub().project_create(call.caller()?, input).await?;
    reply::created(&ProjectJson::from(ProjectView::from(project)))
}

pub(crate) async fn project_fetch(call: &mut Call) -> Answer {
    let project = call.hub().project_fetch(call.caller()?, call.id("id", "project")?).await?;
    reply::ok(&ProjectJson::from(project))
}

pub(crate) async fn project_update(call: &mut Call) -> Answer {
    let id: ProjectId = call.id("id", "project")?;
    let body = call.json(ProjectInput::read).await;
    let input = after(call.hub().allow_project(call.caller()?, id, Action::ProjectUpdate), body).await?;
    let project = call.hub().project_update(call.caller()?, id, input).await?;
    reply::ok(&ProjectJson::from(ProjectView::from(project)))
}

pub(crate) async fn project_delete(call: &mut Call) -> Answer {
    call.hub().project_delete(call.caller()?, call.id("id", "project")?).await?;
    reply::no_content()
}

pub(crate) async fn specification_fetch(call: &mut Call) -> Answer {
    let specification = call.hub().specification_fetch(call.caller()?, call.id("id", "project")?).await?;
    reply::ok(&SpecificationJson::from(specification))
}

pub(crate) async fn specification_write(call: &mut Call) -> Answer {
    let id: ProjectId = call.id("id", "project")?;
    let body = call.json(SpecificationInput::read).await;
    let input = after(call.hub().allow_project(call.caller()?, id, Action::ProjectUpdate), body).await?;
    let specification = call.hub().specification_write(call.caller()?, id, input).await?;
    reply::ok(&SpecificationJson::from(specification))
}
