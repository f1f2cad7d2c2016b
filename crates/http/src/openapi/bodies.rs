//! The shapes of request bodies, for the document alone: `isobar_model` reads and checks them.
#![expect(dead_code, reason = "shapes are described, never made")]

use isobar_model::device::StreetAddress;
use isobar_model::role::Role;
use utoipa::ToSchema;

use crate::views::{AnyJson, Id, Raw};

/// Registers or creates a user.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct NewUser {
    #[schema(min_length = 1, max_length = 254)]
    username: String,
    /// Required on registration.
    #[schema(min_length = 6, max_length = 128)]
    password: Option<String>,
    /// Must match password.
    password_confirmation: Option<String>,
    #[schema(min_length = 1, max_length = 80)]
    first_name: String,
    #[schema(min_length = 1, max_length = 80)]
    last_name: String,
    #[schema(min_length = 3, max_length = 254)]
    email: String,
    #[schema(min_length = 1, max_length = 80)]
    company: String,
    role: Role,
    organization_id: Option<Id>,
    tos_hash: Option<String>,
    language: Option<String>,
}

/// Logs a user in.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct Login {
    username_or_email: String,
    password: String,
}

/// Names an account.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct AccountName {
    /// In any case.
    #[schema(min_length = 1, max_length = 254)]
    email_or_username: String,
}

/// Sets a new password.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct ResetInput {
    /// What the link in the e-mail carries as resetToken: good once, for an hour.
    token: String,
    #[schema(min_length = 6, max_length = 20)]
    password: String,
    /// Must match password.
    #[schema(min_length = 6, max_length = 20)]
    password_confirmation: String,
}

/// Updates a user. What is left out keeps its value.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct UserInput {
    /// As it is: it cannot be changed.
    #[schema(required = false, min_length = 1, max_length = 254)]
    username: String,
    /// As it is: it cannot be changed.
    #[schema(required = false, min_length = 3, max_length = 254)]
    email: String,
    /// At most the caller's own.
    role: Role,
    #[schema(required = false, min_length = 1, max_length = 80)]
    first_name: String,
    #[schema(required = false, min_length = 1, max_length = 80)]
    last_name: String,
    #[schema(min_length = 1, max_length = 80)]
    company: String,
    #[schema(max_length = 80)]
    job_title: Option<String>,
    #[schema(max_length = 80)]
    language: Option<String>,
    #[schema(max_length = 512)]
    tos_hash: Option<String>,
    /// Ends the user's other sessions.
    #[schema(required = false, min_length = 6, max_length = 20)]
    password: String,
    /// Must match password.
    #[schema(required = false, min_length = 6, max_length = 20)]
    password_confirmation: String,
    /// How notifications of each kind come; null: the defaults.
    preferences: Option<Raw>,
    /// Moves the user; within the caller's reach.
    organization_id: Option<Id>,
    /// Ignored: it follows organizationId.
    organization_name: Option<String>,
    /// Why, for the operator alone.
    #[schema(required = false, min_length = 1, max_length = 300)]
    reason: String,
    /// Refused with every credential; needs an administrator.
    #[schema(required = false)]
    disabled: bool,
}

/// Names an API key.
#[derive(ToSchema)]
pub(super) struct ApiKeyInput {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
}

/// Marks notifications.
#[derive(ToSchema)]
pub(super) struct ReadMark {
    /// Whether they are read.
    read: bool,
}

/// Tells every user something.
#[derive(ToSchema)]
pub(super) struct SystemMessage {
    #[schema(min_length = 1, max_length = 10000)]
    message: String,
}

/// Creates or updates an organization.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct OrganizationInput {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// Where it hangs in the tree; null on update: at the top.
    #[schema(max_length = 36)]
    parent_id: Option<String>,
    #[schema(max_length = 200)]
    description: Option<String>,
    #[schema(required = false)]
    children_inherit_dashboard: bool,
    device_table: Option<Raw>,
    /// Taken by update alone, from an organization above; 0: unlimited.
    #[schema(required = false, minimum = 0)]
    device_count_limit: f64,
    /// Taken by update alone, from an organization above; 0: unlimited.
    #[schema(required = false, minimum = 0)]
    data_usage_mb_limit: f64,
}

/// Creates or updates a project.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct ProjectInput {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    organization_id: Option<Id>,
}

/// Overwrites a specification.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct SpecificationInput {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    #[schema(required = false, min_length = 1, max_length = 16, default = "2")]
    create_version: String,
    #[schema(required = false, max_length = 2000, default = "")]
    description: String,
    meta: Option<Raw>,
    planes: Option<Raw>,
}

/// Tries a design out.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct DryRunInput {
    /// The specification to try, of which only `planes` counts; left out: that of the project.
    specification: Option<Raw>,
    /// Where the run begins: a deviceEvent, a deviceSetting or an interval.
    #[schema(min_length = 1, max_length = 128)]
    element_name: String,
    payload: AnyJson,
    /// A device whose metadata, settings, values and states the run sees; left out: one is made up.
    device: Option<Id>,
}

/// Creates or updates a device.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(super) struct DeviceInput {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    project_uuid: Id,
    #[schema(max_length = 36)]
    version_uuid: Option<String>,
    #[schema(max_length = 20)]
    protocol: Option<String>,
    protocols: Option<Vec<String>>,
    /// Deprecated.
    meta: Option<Raw>,
    #[schema(max_length = 200)]
    description: Option<String>,
    street_address: Option<StreetAddress>,
    organization_id: Option<Id>,
}

/// A PNG, a JPEG or a WebP of at most 2 MiB and 4096 by 4096 pixels, in Base64: bare, or as a data URI (`data:image/png;base64,…`).
#[derive(ToSchema)]
#[schema(value_type = String)]
pub(super) struct ImageText(String);
