//! Organizations.

use isobar_model::access::Action;
use isobar_model::ids::OrganizationId;
use isobar_model::organization::{Organization, OrganizationInput};
use isobar_model::project::empty_object;
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Id, Raw, Time};
use super::words::StatusText;
use crate::request::{Call, after};
use crate::response::{self, Answer};

pub(crate) const ORGANIZATIONS_SORTED_BY: &[&str] = isobar_hub::sortable::ORGANIZATIONS;

pub(crate) async fn organization_list(call: &mut Call) -> Answer {
    let mut query = call.query();
    let asked = (query.tree("parentId"), query.list_with_after(ORGANIZATIONS_SORTED_BY));
    let (tree, list) = query.end(asked)?;
    call.page(call.hub().organization_list(call.caller()?, tree, list).await?, |_| 0, OrganizationJson::from).await
}

pub(crate) async fn organization_create(call: &mut Call) -> Answer {
    let body = call.json(OrganizationInput::read).await;
    let input = after(call.hub().allow(call.caller()?, Action::OrganizationCreate), body).await?;
    let organization = call.hub().organization_create(call.caller()?, input).await?;
    response::created(&OrganizationJson::from(organization))
}

pub(crate) async fn organization_fetch(call: &mut Call) -> Answer {
    let organization = call.hub().organization_fetch(call.caller()?, call.id("id", "organization")?).await?;
    response::ok(&OrganizationJson::from(organization))
}

pub(crate) async fn organization_update(call: &mut Call) -> Answer {
    let id: OrganizationId = call.id("id", "organization")?;
    let body = call.json(OrganizationInput::read).await;
    let input = after(call.hub().allow_organization(call.caller()?, id, Action::OrganizationUpdate), body).await?;
    let organization = call.hub().organization_update(call.caller()?, id, input).await?;
    response::ok(&OrganizationJson::from(organization))
}

pub(crate) async fn organization_delete(call: &mut Call) -> Answer {
    call.hub().organization_delete(call.caller()?, call.id("id", "organization")?).await?;
    response::no_content()
}

pub(crate) async fn usage_fetch(call: &mut Call) -> Answer {
    let organization = call.hub().usage_fetch(call.caller()?, call.id("id", "organization")?).await?;
    response::ok(&OrganizationJson::from(organization))
}

/// One step of the path to an organization.
#[derive(Serialize, ToSchema)]
pub(crate) struct PathStep {
    id: Id,
    name: String,
}

/// An organization.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Organization)]
pub(crate) struct OrganizationJson {
    id: Id,
    name: String,
    parent_id: Option<Id>,
    description: Option<String>,
    path: Vec<PathStep>,
    image_url: String,
    parent_name: Option<String>,
    created_at: Time,
    updated_at: Time,
    has_children: bool,
    #[schema(value_type = StatusText)]
    status_text: &'static str,
    #[schema(maximum = 5)]
    status_int: u8,
    /// The most urgent status of its devices and of those beneath it: critical, warning, missing, then the others.
    #[schema(value_type = StatusText)]
    urgent_status: &'static str,
    device_count: u64,
    data_usage_mb: f64,
    device_count_limit: f64,
    data_usage_mb_limit: f64,
    children_inherit_dashboard: bool,
    device_table: Raw,
}

impl From<Organization> for OrganizationJson {
    fn from(organization: Organization) -> Self {
        let data_usage_mb = organization.data_usage_mb();
        let ids = organization.lineage.ids().iter().map(|id| Id(id.0));
        let path: Vec<_> = ids.zip(organization.names).map(|(id, name)| PathStep { id, name }).collect();
        let parent = path.len().checked_sub(2).and_then(|index| path.get(index));
        Self {
            id: Id(organization.id.0),
            name: organization.name,
            parent_id: parent.map(|step| Id(step.id.0)),
            parent_name: parent.map(|step| step.name.clone()),
            description: organization.description,
            path,
            image_url: format!("/v2/organizations/{}/image.png", organization.id),
            created_at: Time(organization.created_at),
            updated_at: Time(organization.updated_at),
            has_children: organization.has_children,
            status_text: organization.status.name(),
            status_int: organization.status.number(),
            urgent_status: organization.urgent_status.name(),
            device_count: organization.device_count,
            data_usage_mb,
            device_count_limit: organization.device_count_limit,
            data_usage_mb_limit: organization.data_usage_mb_limit,
            children_inherit_dashboard: organization.children_inherit_dashboard,
            device_table: Raw(organization.device_table.unwrap_or_else(empty_object)),
        }
    }
}

/// Creates or updates an organization.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = OrganizationInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct OrganizationInputJson {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// The organization above it in the tree; null on update: the top.
    #[schema(max_length = 36)]
    parent_id: Option<String>,
    #[schema(max_length = 200)]
    description: Option<String>,
    #[schema(required = false)]
    children_inherit_dashboard: bool,
    device_table: Option<Raw>,
    /// Taken by update alone, from an organization above; 0: unlimited.
    #[schema(required = false, minimum = 0, maximum = 1_000_000_000_000_000_i64)]
    device_count_limit: f64,
    /// Taken by update alone, from an organization above; 0: unlimited.
    #[schema(required = false, minimum = 0, maximum = 1_000_000_000_000_000_i64)]
    data_usage_mb_limit: f64,
}
