//! Shapes of the bodies that change branding, dashboards and device tables, for the OpenAPI document only.
#![expect(dead_code, reason = "shapes are described, never made")]

use utoipa::ToSchema;

use crate::resources::values::{Id, Raw, Time};

/// Updates an organization's branding.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct BrandingInput {
    /// When it is there, the organization of the path.
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

/// Creates or updates a dashboard of an organization.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct DashboardInput {
    #[schema(max_length = 200)]
    name: Option<String>,
    options: Option<Raw>,
    configuration: Raw,
}

/// Creates a link that shows a dashboard on screens.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct BoardLinkInput {
    /// By which its makers know it; "Screen" where it is left out.
    #[schema(required = false, min_length = 1, max_length = 80)]
    name: String,
    /// When it is refused from: within a year.
    expires_at: Time,
}

/// Updates an organization's device table.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct DeviceTableInput {
    /// The organization of the path.
    organization_id: Id,
    /// A device in the caller's reach.
    #[schema(max_length = 36)]
    device_id: Option<String>,
    #[schema(max_items = 200)]
    columns: Vec<ColumnInput>,
}

/// A column of the device table.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(crate) struct ColumnInput {
    #[schema(min_length = 1, max_length = 256)]
    path: String,
    #[schema(max_length = 80)]
    r#type: Option<String>,
}
