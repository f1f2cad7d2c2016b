//! Appearance of organizations: branding and device table.

use axum::http::StatusCode;
use isobar_model::access::Action;
use isobar_model::appearance::{Branding, BrandingInput, Column, DeviceTable, DeviceTableInput};
use isobar_model::ids::OrganizationId;
use isobar_model::project::empty_object;
use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Id, Raw};
use crate::request::{Call, after};
use crate::response::{self, Answer};

/// An organization's branding.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Branding)]
pub(crate) struct BrandingJson {
    organization_id: Id,
    company_name: Option<String>,
    #[serde(rename = "addressLine1")]
    address_line_1: Option<String>,
    #[serde(rename = "addressLine2")]
    address_line_2: Option<String>,
    domain: Option<String>,
    #[serde(rename = "domainHTTPFileOverrides")]
    domain_http_file_overrides: Raw,
    domain_public_configuration: Raw,
    email: Option<String>,
    email_sender_name: Option<String>,
}

impl BrandingJson {
    fn of(organization: OrganizationId, branding: Branding) -> Self {
        Self {
            organization_id: Id(organization.0),
            company_name: branding.company_name,
            address_line_1: branding.address_line_1,
            address_line_2: branding.address_line_2,
            domain: branding.domain,
            domain_http_file_overrides: Raw(branding.domain_http_file_overrides.unwrap_or_else(empty_object)),
            domain_public_configuration: Raw(branding.domain_public_configuration.unwrap_or_else(empty_object)),
            email: branding.email,
            email_sender_name: branding.email_sender_name,
        }
    }
}

/// A column of the device table.
#[derive(Serialize, ToSchema)]
#[schema(as = Column)]
pub(crate) struct ColumnJson {
    path: String,
    r#type: Option<String>,
}

impl From<Column> for ColumnJson {
    fn from(column: Column) -> Self {
        Self { path: column.path, r#type: column.kind }
    }
}

/// The device table of an organization: its columns.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DeviceTable)]
pub(crate) struct DeviceTableJson {
    organization_id: Id,
    device_id: Option<String>,
    columns: Vec<ColumnJson>,
}

impl DeviceTableJson {
    fn of(organization: OrganizationId, table: DeviceTable) -> Self {
        let columns = table.columns.into_iter().map(ColumnJson::from).collect();
        Self { organization_id: Id(organization.0), device_id: table.device, columns }
    }
}

pub(crate) async fn branding_fetch(call: &mut Call) -> Answer {
    let id: OrganizationId = call.id("id", "organization")?;
    response::ok(&BrandingJson::of(id, call.hub().branding_fetch(call.caller()?, id).await?))
}

pub(crate) async fn branding_update(call: &mut Call) -> Answer {
    let id: OrganizationId = call.id("id", "organization")?;
    let body = call.json(move |body| BrandingInput::read(body, id)).await;
    let input = after(call.hub().allow_organization(call.caller()?, id, Action::OrganizationUpdate), body).await?;
    response::ok(&BrandingJson::of(id, call.hub().branding_update(call.caller()?, id, input).await?))
}

pub(crate) async fn device_table_fetch(call: &mut Call) -> Answer {
    let id: OrganizationId = call.id("id", "organization")?;
    response::ok(&DeviceTableJson::of(id, call.hub().device_table_fetch(call.caller()?, id).await?))
}

pub(crate) async fn device_table_update(call: &mut Call) -> Answer {
    let id: OrganizationId = call.id("id", "organization")?;
    let body = call.json(move |body| DeviceTableInput::read(body, id)).await;
    let input = after(call.hub().allow_organization(call.caller()?, id, Action::OrganizationUpdate), body).await?;
    response::ok(&DeviceTableJson::of(id, call.hub().device_table_update(call.caller()?, id, input).await?))
}

pub(crate) async fn device_table_delete(call: &mut Call) -> Answer {
    call.hub().device_table_delete(call.caller()?, call.id("id", "organization")?).await?;
    response::message(StatusCode::OK, "the device table was deleted")
}

/// Updates an organization's branding.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = BrandingInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct BrandingInputJson {
    /// The organization of the path; may be left out.
    organization_id: Option<Id>,
    #[schema(max_length = 200)]
    company_name: Option<String>,
    #[schema(rename = "addressLine1", max_length = 200)]
    address_line_1: Option<String>,
    #[schema(rename = "addressLine2", max_length = 200)]
    address_line_2: Option<String>,
    /// A fully qualified domain name.
    #[schema(max_length = 253)]
    domain: Option<String>,
    #[schema(rename = "domainHTTPFileOverrides")]
    domain_http_file_overrides: Option<Raw>,
    domain_public_configuration: Option<Raw>,
    #[schema(min_length = 3, max_length = 254)]
    email: Option<String>,
    #[schema(max_length = 200)]
    email_sender_name: Option<String>,
}

/// Updates an organization's device table.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = DeviceTableInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct DeviceTableInputJson {
    /// The organization of the path.
    organization_id: Id,
    /// A device in the caller's reach.
    #[schema(max_length = 36)]
    device_id: Option<String>,
    #[schema(max_items = 200)]
    columns: Vec<ColumnInputJson>,
}

/// A column of the device table.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase", as = ColumnInput)]
#[expect(dead_code, reason = "describes a body; `isobar_model` reads it")]
pub(crate) struct ColumnInputJson {
    #[schema(min_length = 1, max_length = 256)]
    path: String,
    #[schema(max_length = 80)]
    r#type: Option<String>,
}
