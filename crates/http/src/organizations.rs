//! Organizations.

use isobar_model::access::Action;
use isobar_model::ids::OrganizationId;
use isobar_model::organization::OrganizationInput;

use crate::call::{Call, after};
use crate::reply::{self, Answer};
use crate::views::OrganizationJson;

pub(crate) const SORTED_BY: &[&str] = isobar_hub::sortable::ORGANIZATIONS;

pub(crate) async fn organization_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("parentId"), query.list(SORTED_BY));
    let (tree, list) = query.end(asked)?;
    reply::page(call.hub().organization_list(call.caller()?, tree, list).await?, OrganizationJson::from).await
}

pub(crate) async fn organization_create(call: &mut Call) -> Answer {
    let body = call.json(OrganizationInput::read).await;
    let input = after(call.hub().allow(call.caller()?, Action::OrganizationCreate), body).await?;
    let organization = call.hub().organization_create(call.caller()?, input).await?;
    reply::created(&OrganizationJson::from(organization))
}

pub(crate) async fn organization_fetch(call: &mut Call) -> Answer {
    let organization = call.hub().organization_fetch(call.caller()?, call.id("id", "organization")?).await?;
    reply::ok(&OrganizationJson::from(organization))
}

pub(crate) async fn organization_update(call: &mut Call) -> Answer {
    let id: OrganizationId = call.id("id", "organization")?;
    let body = call.json(OrganizationInput::read).await;
    let input = after(call.hub().allow_organization(call.caller()?, id, Action::OrganizationUpdate), body).await?;
    let organization = call.hub().organization_update(call.caller()?, id, input).await?;
    reply::ok(&OrganizationJson::from(organization))
}

pub(crate) async fn organization_delete(call: &mut Call) -> Answer {
    call.hub().organization_delete(call.caller()?, call.id("id", "organization")?).await?;
    reply::no_content()
}

pub(crate) async fn usage_fetch(call: &mut Call) -> Answer {
    let organization = call.hub().usage_fetch(call.caller()?, call.id("id", "organization")?).await?;
    reply::ok(&OrganizationJson::from(organization))
}
