//! Descriptions of the operations for the OpenAPI document, in addition to the table of routes.

use utoipa::ToSchema;
use utoipa::openapi::schema::Schema;
use utoipa::openapi::{Ref, RefOr};

use super::appearance::{BoardLinkInput, BrandingInput, DashboardInput, DeviceTableInput};
use super::bodies::{
    AccountName, AlarmInput, AnyButNull, ApiKeyInput, DeviceInput, DeviceInputs, DryRunInput, ImageText, Login,
    MetaItems, MetaPatch, NewUser, OrganizationInput, ProjectInput, ReadMark, ResetInput, SpecificationInput,
    SystemMessage, UserCreation, UserInput, ViewInput,
};
use super::event_bodies::BatchEvents;
use super::parameters::*;
use super::setting_bodies::{DeviceIds, SettingItems, SettingValue};
use super::webhook::WEBHOOK;
use crate::problem::ErrorBody;
use crate::request::MERGE_PATCH_TYPE;
use crate::resources::about::AboutJson;
use crate::resources::alarms::{AlarmDetailJson, AlarmJson, AlarmSummaryJson};
use crate::resources::appearance::{BrandingJson, DeviceTableJson};
use crate::resources::auth::TokensJson;
use crate::resources::board_links::{BoardLinkJson, NewBoardLinkJson};
use crate::resources::boards::{BoardHeadJson, BoardJson, DashboardJson};
use crate::resources::buckets::{BucketsJson, FleetBucketsJson};
use crate::resources::data::{LastValuesJson, StorageElementJson, StorageListJson, StoredValueJson};
use crate::resources::devices::{
    DeviceJson, DeviceSummaryJson, DevicesOutcomeJson, LabelsOutcomeJson, NewDeviceJson, TokenJson,
};
use crate::resources::dry_runs::DryRunJson;
use crate::resources::event_batches::BatchJson;
use crate::resources::events::{EventJson, IdJson};
use crate::resources::locations::{DeviceClustersJson, DeviceLocationJson};
use crate::resources::notifications::NotificationJson;
use crate::resources::organizations::OrganizationJson;
use crate::resources::projects::ProjectJson;
use crate::resources::settings::{DefaultsOutcomeJson, DeviceSettingJson, SettingsOutcomeJson};
use crate::resources::specifications::{SpecificationJson, SpecificationVersionJson, WholeVersionJson};
use crate::resources::users::{ApiKeyJson, NewApiKeyJson, UserJson};
use crate::resources::values::AnyJson;
use crate::resources::views::ViewJson;
use crate::resources::wall::{WallBoardJson, WallWidgetDataJson};
use crate::resources::webhook::WebhookAnswer;
use crate::routes::Verb::{self, Delete, Get, Patch, Post, Put};

/// Schemas of the document by name.
pub(super) type Schemas = Vec<(String, RefOr<Schema>)>;
/// Function that adds a schema and those that it refers to, and returns it.
pub(super) type Shape = fn(&mut Schemas) -> RefOr<Schema>;

pub(super) fn of<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    T::schemas(schemas);
    schemas.push((T::name().into_owned(), T::schema()));
    Ref::from_schema_name(T::name()).into()
}

/// A success: its status and content.
#[derive(Clone, Copy)]
pub(super) enum Success {
    Json(u16, Shape),
    /// A page of items of this shape, in the envelope.
    Page(u16, Shape),
    /// A page of items of this shape, or all of them as one of these other types.
    PageOr(u16, Shape, &'static [&'static str]),
    /// JSON, or text of one of these other types.
    JsonOr(u16, Shape, &'static [&'static str]),
    /// A JSON array of items of this shape.
    Array(u16, Shape),
    Other(u16, &'static str),
    Empty(u16),
}

/// Description of one operation.
pub(super) struct Operation {
    pub method: Verb,
    pub path: &'static str,
    pub tag: &'static str,
    pub summary: &'static str,
    pub parameters: &'static [Param],
    pub body: Option<Shape>,
    /// Content types that the body may have.
    pub body_types: &'static [&'static str],
    pub successes: &'static [Success],
}

use Success::{Array, Empty, Json, JsonOr, Other, Page, PageOr};

/// `operation!(tag, method path, summary, [parameters], body, [successes])`. For a body other than JSON, `text
/// <shape>`; for a JSON merge patch, or a list of them, `merge <shape>`.
macro_rules! operation {
    ($tag:literal, $method:ident $path:literal, $summary:literal, [$($parameter:ident),*], text $body:expr, [$($success:expr),*]) => {
        Operation {
            body_types: &["text/plain"],
            ..operation!($tag, $method $path, $summary, [$($parameter),*], Some($body), [$($success),*])
        }
    };
    ($tag:literal, $method:ident $path:literal, $summary:literal, [$($parameter:ident),*], merge $body:expr, [$($success:expr),*]) => {
        Operation {
            body_types: &["application/json", MERGE_PATCH_TYPE],
            ..operation!($tag, $method $path, $summary, [$($parameter),*], Some($body), [$($success),*])
        }
    };
    ($tag:literal, $method:ident $path:literal, $summary:literal, [$($parameter:ident),*], $body:expr, [$($success:expr),*]) => {
        Operation {
            method: $method,
            path: $path,
            tag: $tag,
            summary: $summary,
            parameters: &[$($parameter),*],
            body: $body,
            body_types: &["application/json"],
            successes: &[$($success),*],
        }
    };
}

#[rustfmt::skip]
pub(super) const OPERATIONS: &[Operation] = &[
    operation!("operations", Get "/health/live", "Whether the process answers", [], None, [Json(200, of::<AnyJson>)]),
    operation!("operations", Get "/health/ready", "Whether both stores answer too", [], None, [Json(200, of::<AnyJson>)]),
    operation!("operations", Get "/metrics", "What was measured, for Prometheus", [], None, [Other(200, "text/plain")]),
    operation!("operations", Get "/v2/spec", "This document", [], None, [Json(200, of::<AnyJson>)]),
    operation!("operations", Get "/v2/docs", "This document, to be browsed", [], None, [Other(200, "text/html")]),
    operation!("operations", Get "/v2/about", "What this server is", [], None, [Json(200, of::<AboutJson>)]),

    operation!("auth", Post "/v2/auth/register", "Register a user", [], Some(of::<NewUser>), [Json(201, of::<UserJson>)]),
    operation!("auth", Post "/v2/auth/login", "Log in", [], Some(of::<Login>), [Json(201, of::<TokensJson>)]),
    operation!("auth", Post "/v2/auth/logout", "End the tokens that are given", [], None, [Empty(204)]),
    operation!("auth", Get "/v2/auth/refreshToken", "Get a new access token", [], None, [Json(201, of::<TokensJson>)]),
    operation!("auth", Get "/v2/auth/verify", "Send the verification e-mail again", [EMAIL_OR_USERNAME], None, [Empty(204)]),
    operation!("auth", Get "/v2/auth/verify/{nonce}", "Verify an e-mail address by the link of an e-mail; leads to the console",
        [], None, [Empty(302)]),
    operation!("auth", Post "/v2/auth/forgot", "Send an e-mail with a link to set a new password", [], Some(of::<AccountName>), [Empty(204)]),
    operation!("auth", Post "/v2/auth/reset", "Set a new password by the link of an e-mail; ends all sessions",
        [], Some(of::<ResetInput>), [Json(200, of::<ErrorBody>)]),
    operation!("auth", Get "/v2/auth/user", "Fetch the current user", [], None, [Json(200, of::<UserJson>)]),

    operation!("organizations", Get "/v2/organizations", "List organizations",
        [DEPTH, LIMIT, PAGE, PARENT_ID, SEARCH_TEXT, SORT_ORGANIZATIONS, ENTITY_LIST], None, [Page(200, of::<OrganizationJson>)]),
    operation!("organizations", Post "/v2/organizations", "Create an organization",
        [], Some(of::<OrganizationInput>), [Json(201, of::<OrganizationJson>)]),
    operation!("organizations", Get "/v2/organizations/{id}", "Fetch an organization", [], None, [Json(200, of::<OrganizationJson>)]),
    operation!("organizations", Get "/v2/organizations/{id}/image", "Fetch an organization's image as it was posted", [], None, [Other(200, "text/plain")]),
    operation!("organizations", Post "/v2/organizations/{id}/image", "Update an organization's image: a PNG, JPEG or WebP in Base64, bare or as a data URI",
        [], text of::<ImageText>, [Json(200, of::<ErrorBody>)]),
    operation!("organizations", Get "/v2/organizations/{id}/image.png", "Fetch an organization's image as a picture",
        [IF_NONE_MATCH], None, [Other(200, "image/png"), Empty(304)]),

    operation!("organizations", Put "/v2/organizations/{id}", "Update an organization; another parentId moves it with all that hangs on it",
        [], Some(of::<OrganizationInput>), [Json(200, of::<OrganizationJson>)]),
    operation!("organizations", Delete "/v2/organizations/{id}", "Delete an organization that nothing hangs on", [], None, [Empty(204)]),
    operation!("organizations", Get "/v2/organizations/{id}/usage", "Fetch an organization with what it and those beneath it use now",
        [], None, [Json(200, of::<OrganizationJson>)]),
    operation!("organizations", Get "/v2/organizations/{id}/branding", "Fetch the branding", [], None, [Json(200, of::<BrandingJson>)]),
    operation!("organizations", Put "/v2/organizations/{id}/branding", "Update the branding",
        [], Some(of::<BrandingInput>), [Json(200, of::<BrandingJson>)]),
    operation!("organizations", Get "/v2/organizations/{id}/dashboard", "Fetch the dashboard, its own or an inherited one",
        [], None, [Json(200, of::<DashboardJson>)]),
    operation!("organizations", Put "/v2/organizations/{id}/dashboard", "Update the organization's own dashboard",
        [], Some(of::<DashboardInput>), [Json(200, of::<DashboardJson>)]),
    operation!("organizations", Get "/v2/organizations/{id}/dashboards", "List the dashboards, its own or inherited ones, oldest first: the oldest is the first",
        [PAGE, LIMIT, SORT_BOARDS], None, [Page(200, of::<BoardHeadJson>)]),
    operation!("organizations", Post "/v2/organizations/{id}/dashboards", "Create one more dashboard: at most 100",
        [], Some(of::<DashboardInput>), [Json(201, of::<BoardJson>)]),
    operation!("organizations", Get "/v2/organizations/{id}/dashboards/{dashboardId}", "Fetch a dashboard",
        [IF_NONE_MATCH], None, [Json(200, of::<BoardJson>), Empty(304)]),
    operation!("organizations", Put "/v2/organizations/{id}/dashboards/{dashboardId}", "Update a dashboard of the organization's own",
        [IF_MATCH], Some(of::<DashboardInput>), [Json(200, of::<BoardJson>)]),
    operation!("organizations", Delete "/v2/organizations/{id}/dashboards/{dashboardId}", "Delete a dashboard of the organization's own",
        [IF_MATCH], None, [Empty(204)]),
    operation!("organizations", Get "/v2/organizations/{id}/dashboards/{dashboardId}/links", "List the links that show a dashboard on screens, without their secrets",
        [PAGE, LIMIT], None, [Page(200, of::<BoardLinkJson>)]),
    operation!("organizations", Post "/v2/organizations/{id}/dashboards/{dashboardId}/links", "Create a link that shows a dashboard on screens until its end: at most 20; its secret is shown this once",
        [], Some(of::<BoardLinkInput>), [Json(201, of::<NewBoardLinkJson>)]),
    operation!("organizations", Delete "/v2/organizations/{id}/dashboards/{dashboardId}/links/{linkId}", "Delete a link: it is refused at once",
        [], None, [Empty(204)]),
    operation!("organizations", Get "/v2/organizations/{id}/deviceTable", "Fetch the device table configuration",
        [], None, [Json(200, of::<DeviceTableJson>)]),
    operation!("organizations", Put "/v2/organizations/{id}/deviceTable", "Update the device table configuration",
        [], Some(of::<DeviceTableInput>), [Json(200, of::<DeviceTableJson>)]),
    operation!("organizations", Delete "/v2/organizations/{id}/deviceTable", "Delete the device table configuration",
        [], None, [Json(200, of::<ErrorBody>)]),

    operation!("wall", Get "/v2/wall", "Fetch the dashboard that a link shows", [IF_NONE_MATCH], None, [Json(200, of::<WallBoardJson>), Empty(304)]),
    operation!("wall", Get "/v2/wall/widgets/{widgetId}", "Read what a widget of that dashboard shows, by the rights of whoever made the link",
        [], None, [Json(200, of::<WallWidgetDataJson>)]),

    operation!("projects", Get "/v2/projects", "List projects",
        [DEPTH, PAGE, LIMIT, ORGANIZATION_ID, SEARCH_TEXT, SORT_PROJECTS, ENTITY_LIST, FILTER_TYPE, USABLE], None, [Page(200, of::<ProjectJson>)]),
    operation!("projects", Post "/v2/projects", "Create a project", [], Some(of::<ProjectInput>), [Json(201, of::<ProjectJson>)]),
    operation!("projects", Get "/v2/projects/{id}", "Fetch a project", [], None, [Json(200, of::<ProjectJson>)]),
    operation!("projects", Put "/v2/projects/{id}", "Update a project", [], Some(of::<ProjectInput>), [Json(200, of::<ProjectJson>)]),
    operation!("projects", Delete "/v2/projects/{id}", "Delete a project that no device uses", [], None, [Empty(204)]),
    operation!("projects", Get "/v2/projects/{id}/specification", "Fetch a project's specification",
        [IF_NONE_MATCH], None, [Json(200, of::<SpecificationJson>), Empty(304)]),
    operation!("projects", Put "/v2/projects/{id}/specification", "Overwrite a project's specification",
        [IF_MATCH], Some(of::<SpecificationInput>), [Json(200, of::<SpecificationJson>)]),
    operation!("projects", Get "/v2/projects/{id}/specification/versions", "List the specifications that were written, newest first: the newest 100",
        [PAGE, LIMIT, SORT_VERSIONS], None, [Page(200, of::<SpecificationVersionJson>)]),
    operation!("projects", Get "/v2/projects/{id}/specification/versions/{number}", "Fetch a specification as it was written",
        [], None, [Json(200, of::<WholeVersionJson>)]),
    operation!("projects", Post "/v2/projects/{id}/specification/versions/{number}/restore", "Put a specification in force again, as a new version",
        [IF_MATCH], None, [Json(201, of::<SpecificationVersionJson>)]),
    operation!("projects", Get "/v2/projects/{id}/image", "Fetch a project's image as it was posted", [], None, [Other(200, "text/plain")]),
    operation!("projects", Post "/v2/projects/{id}/image", "Update a project's image: a PNG, JPEG or WebP in Base64, bare or as a data URI",
        [], text of::<ImageText>, [Json(200, of::<ErrorBody>)]),
    operation!("projects", Get "/v2/projects/{id}/image.png", "Fetch a project's image as a picture",
        [IF_NONE_MATCH], None, [Other(200, "image/png"), Empty(304)]),
    operation!("projects", Post "/v2/projects/{id}/specification/test", "Try a design out: what would happen, step by step",
        [], Some(of::<DryRunInput>), [Json(200, of::<DryRunJson>)]),

    operation!("users", Get "/v2/users", "List users",
        [DEPTH, PAGE, LIMIT, ORGANIZATION_ID, SEARCH_TEXT, SORT_USERS, ENTITY_LIST], None, [Page(200, of::<UserJson>)]),
    operation!("users", Post "/v2/users", "Create a user", [], Some(of::<UserCreation>), [Json(201, of::<UserJson>)]),
    operation!("users", Get "/v2/users/{id}", "Fetch a user", [], None, [Json(200, of::<UserJson>)]),
    operation!("users", Put "/v2/users/{id}", "Update a user; a new password ends its other sessions",
        [], Some(of::<UserInput>), [Json(200, of::<UserJson>)]),
    operation!("users", Delete "/v2/users/{id}", "Delete a user", [], None, [Empty(204)]),
    operation!("users", Get "/v2/users/{id}/apiKeys", "List a user's API keys", [PAGE, LIMIT], None, [Page(200, of::<ApiKeyJson>)]),
    operation!("users", Post "/v2/users/{id}/apiKeys", "Create an API key, shown this once",
        [], Some(of::<ApiKeyInput>), [Json(201, of::<NewApiKeyJson<'static>>)]),
    operation!("users", Delete "/v2/users/{id}/apiKeys/{keyId}", "Delete an API key", [], None, [Empty(204)]),
    operation!("users", Get "/v2/users/{id}/image", "Fetch a user's image as it was posted", [], None, [Other(200, "text/plain")]),
    operation!("users", Post "/v2/users/{id}/image", "Update a user's image: a PNG, JPEG or WebP in Base64, bare or as a data URI",
        [], text of::<ImageText>, [Json(200, of::<ErrorBody>)]),
    operation!("users", Get "/v2/users/{id}/image.png", "Fetch a user's image as a picture",
        [IF_NONE_MATCH], None, [Other(200, "image/png"), Empty(304)]),

    operation!("notifications", Get "/v2/notifications", "List the caller's notifications, newest first",
        [PAGE, LIMIT, UNREAD], None, [Page(200, of::<NotificationJson>)]),
    operation!("notifications", Put "/v2/notifications", "Mark the caller's notifications of a range of time",
        [FROM, TO_REQUIRED], Some(of::<ReadMark>), [Json(200, of::<ErrorBody>)]),
    operation!("notifications", Delete "/v2/notifications", "Delete the caller's notifications of a range of time",
        [FROM, TO_REQUIRED], None, [Json(200, of::<ErrorBody>)]),
    operation!("notifications", Post "/v2/notifications/system", "Tell every user something",
        [], Some(of::<SystemMessage>), [Json(201, of::<ErrorBody>)]),
    operation!("notifications", Get "/v2/notifications/{id}", "Fetch one of the caller's notifications",
        [], None, [Json(200, of::<NotificationJson>)]),
    operation!("notifications", Put "/v2/notifications/{id}", "Mark one of the caller's notifications",
        [], Some(of::<ReadMark>), [Json(200, of::<ErrorBody>)]),

    operation!("views", Get "/v2/views", "List the caller's views of the device list, by name", [PAGE, LIMIT], None, [Page(200, of::<ViewJson>)]),
    operation!("views", Post "/v2/views", "Create a view: at most 50", [], Some(of::<ViewInput>), [Json(201, of::<ViewJson>)]),
    operation!("views", Put "/v2/views/{id}", "Update one of the caller's views", [], Some(of::<ViewInput>), [Json(200, of::<ViewJson>)]),
    operation!("views", Delete "/v2/views/{id}", "Delete one of the caller's views", [], None, [Empty(204)]),

    operation!("devices", Get "/v2/devices", "List devices; as CSV: all of them",
        [DEPTH, PAGE, LIMIT, ORGANIZATION_ID, SEARCH_TEXT, SORT_DEVICES, LAST_VALUES, ENTITY_LIST, DEVICE_FILTER, DEVICE_COLUMNS], None,
        [PageOr(200, of::<DeviceJson>, &["text/csv"])]),
    operation!("devices", Post "/v2/devices", "Create a device; its token is shown this once",
        [], Some(of::<DeviceInput>), [Json(201, of::<NewDeviceJson<'static>>)]),
    operation!("devices", Get "/v2/devices/summary", "Count devices: by status, by project, by when they were last heard",
        [DEPTH, ORGANIZATION_ID, DEVICE_FILTER], None, [Json(200, of::<DeviceSummaryJson>)]),
    operation!("devices", Post "/v2/devices/bulk", "Create up to 10,000 devices, each by itself; their tokens are shown this once",
        [TEST], Some(of::<DeviceInputs>), [Json(200, of::<DevicesOutcomeJson>)]),
    operation!("devices", Get "/v2/devices/locations", "List the devices that have coordinates, in the order they were made",
        [DEPTH, PAGE, LIMIT, ORGANIZATION_ID, BOX], None, [Page(200, of::<DeviceLocationJson>)]),
    operation!("devices", Get "/v2/devices/locations/clusters", "Count the devices that have coordinates, by the cells of a grid",
        [DEPTH, ORGANIZATION_ID, BOX, CELL_SIZE], None, [Json(200, of::<DeviceClustersJson>)]),
    operation!("devices", Get "/v2/devices/{id}", "Fetch a device", [LAST_VALUES], None, [Json(200, of::<DeviceJson>)]),
    operation!("devices", Put "/v2/devices/{id}", "Update a device", [LAST_VALUES], Some(of::<DeviceInput>), [Json(200, of::<DeviceJson>)]),
    operation!("devices", Patch "/v2/devices/{id}/meta", "Change labels of a device one by one: null removes one, what is not named stays",
        [LAST_VALUES], merge of::<MetaPatch>, [Json(200, of::<DeviceJson>)]),
    operation!("devices", Post "/v2/devices/meta", "Change labels of many devices, each item by itself",
        [], merge of::<MetaItems>, [Json(200, of::<LabelsOutcomeJson>)]),
    operation!("devices", Delete "/v2/devices/{id}", "Delete a device with everything it said", [], None, [Empty(204)]),
    operation!("devices", Post "/v2/devices/{id}/token", "Issue a new device token, which ends the old one",
        [], None, [Json(201, of::<TokenJson<'static>>)]),
    operation!("devices", Get "/v2/devices/{id}/image", "Fetch a device's image as it was posted", [], None, [Other(200, "text/plain")]),
    operation!("devices", Post "/v2/devices/{id}/image", "Update a device's image: a PNG, JPEG or WebP in Base64, bare or as a data URI",
        [], text of::<ImageText>, [Empty(204)]),
    operation!("devices", Delete "/v2/devices/{id}/image", "Delete a device's image", [], None, [Empty(204)]),
    operation!("devices", Get "/v2/devices/{id}/image.png", "Fetch a device's image as a picture",
        [IF_NONE_MATCH], None, [Other(200, "image/png"), Empty(304)]),

    operation!("data", Get "/v2/devices/{id}/data/{elementName}", "List stored values, newest first; as CSV or NDJSON: all of them",
        [PAGE, LIMIT, FROM, TO, SORT_VALUES, FILTER, COLUMNS], None,
        [PageOr(200, of::<StoredValueJson>, &["text/csv", "application/x-ndjson"])]),
    operation!("data", Get "/v2/devices/{id}/data/{elementName}/buckets", "Tell what stored numbers come to in buckets of time",
        [BUCKET_FIELDS, FUNCTIONS, EVERY, POINTS, ZONE, FROM, TO, FILTER, FILL, TIME_FIELD, LATE], None,
        [JsonOr(200, of::<BucketsJson>, &["text/csv"])]),
    operation!("data", Get "/v2/data/buckets", "Tell the same of many devices, each for itself or all together",
        [SERIES_NAME, DEVICE_IDS, PROJECT_UUID, BUCKETS_ORGANIZATION_ID, DEPTH, GROUP_BY,
         BUCKET_FIELDS, FUNCTIONS, EVERY, POINTS, ZONE, FROM, TO, FILTER, FILL, TIME_FIELD, LATE], None,
        [JsonOr(200, of::<FleetBucketsJson>, &["text/csv"])]),
    operation!("data", Get "/v2/devices/{id}/last/{elementName}", "Fetch the last values", [], None, [Json(200, of::<LastValuesJson>)]),
    operation!("data", Get "/v2/devices/{id}/storage", "List storage elements", [PAGE, LIMIT, SORT_STORAGE], None, [Json(200, of::<StorageListJson>)]),
    operation!("data", Delete "/v2/devices/{id}/storage", "Delete all storage elements, for good", [], None, [Empty(204)]),
    operation!("data", Get "/v2/devices/{id}/storage/{elementName}", "Fetch a storage element", [], None, [Json(200, of::<StorageElementJson>)]),
    operation!("data", Delete "/v2/devices/{id}/storage/{elementName}", "Delete a storage element, for good", [], None, [Empty(204)]),

    operation!("settings", Get "/v2/devices/{id}/settings", "List the settings of a device, by listOrder and name",
        [PAGE, LIMIT, SORT_SETTINGS], None, [Page(200, of::<DeviceSettingJson>)]),
    operation!("settings", Delete "/v2/devices/{id}/settings", "Reset all settings to their defaults", [], None, [Empty(204)]),
    operation!("settings", Get "/v2/devices/{id}/settings/history", "List the records of settings that were replaced in the last six months, newest first",
        [PAGE, LIMIT, SORT_SETTING_HISTORY], None, [Page(200, of::<DeviceSettingJson>)]),
    operation!("settings", Get "/v2/devices/{id}/settings/{settingName}", "Fetch a setting", [], None, [Json(200, of::<DeviceSettingJson>)]),
    operation!("settings", Put "/v2/devices/{id}/settings/{settingName}", "Change a setting: the body is its value",
        [], Some(of::<SettingValue>), [Json(200, of::<DeviceSettingJson>)]),
    operation!("settings", Delete "/v2/devices/{id}/settings/{settingName}", "Reset a setting to its default", [], None, [Empty(204)]),
    operation!("settings", Post "/v2/devices/settings", "Change settings of many devices, each item by itself",
        [], Some(of::<SettingItems>), [Json(200, of::<SettingsOutcomeJson>)]),
    operation!("settings", Post "/v2/devices/settings/defaults", "Fetch the default settings of the projects of these devices",
        [], Some(of::<DeviceIds>), [Json(200, of::<DefaultsOutcomeJson>)]),

    operation!("alarms", Get "/v2/alarms", "List alarms: active ones first, then by severity, then the newest first",
        [DEPTH, PAGE, LIMIT, ORGANIZATION_ID, SORT_ALARMS, ENTITY_LIST, ALARM_FILTER], None, [Page(200, of::<AlarmJson>)]),
    operation!("alarms", Get "/v2/alarms/summary", "Count active alarms by severity, and those that nobody has acknowledged",
        [DEPTH, ORGANIZATION_ID], None, [Json(200, of::<AlarmSummaryJson>)]),
    operation!("alarms", Get "/v2/alarms/{id}", "Fetch an alarm with its history", [], None, [Json(200, of::<AlarmDetailJson>)]),
    operation!("alarms", Put "/v2/alarms/{id}", "Acknowledge an alarm, comment on it, assign it, or clear it",
        [], Some(of::<AlarmInput>), [Json(200, of::<AlarmDetailJson>)]),

    operation!("events", Get "/v2/devices/{deviceId}/events", "List the event history, newest first",
        [DEVICE_EVENTS, CLOUD_EVENTS, LIMIT, PAGE, FROM, TO], None, [Page(200, of::<EventJson>)]),
    operation!("events", Get "/v2/devices/{deviceId}/events/{id}", "Fetch one event of the history", [], None, [Json(200, of::<EventJson>)]),
    operation!("events", Post "/v2/events/device", "Post a device event; 201 means durable",
        [DEVICE_ID, ELEMENT_NAME_REQUIRED, IDEMPOTENCY_KEY_PARAMETER], Some(of::<AnyButNull>), [Json(201, of::<IdJson>)]),
    operation!("events", Post "/v2/events/device/batch", "Post many device events, each by itself; what is accepted is durable",
        [], Some(of::<BatchEvents>), [Json(200, of::<BatchJson>)]),
    Operation {
        method: Post,
        path: "/v2/events/integrations",
        tag: "events",
        summary: "Take a third party's payload: devices are provisioned, events are processed; with debug the answer tells how",
        parameters: &WEBHOOK,
        body: Some(of::<AnyButNull>),
        body_types: &["application/json"],
        successes: &[Json(200, of::<WebhookAnswer>)],
    },
    operation!("events", Get "/v2/events/cloud", "Read the cloud-event queue, oldest first",
        [DEVICE_ID, PEEK, LIMIT, PAGE, ELEMENT_NAME, WAIT], None, [Array(200, of::<EventJson>)]),
    operation!("events", Post "/v2/events/cloud", "Queue a cloud event",
        [DEVICE_ID_REQUIRED, ELEMENT_NAME_REQUIRED, IDEMPOTENCY_KEY_PARAMETER], Some(of::<AnyButNull>), [Json(201, of::<IdJson>)]),
    operation!("events", Get "/v2/events/cloud/next", "Read the payload of the next cloud event",
        [DEVICE_ID, PEEK, ELEMENT_NAME, WAIT], None, [Json(200, of::<AnyJson>), Empty(204)]),
    operation!("events", Delete "/v2/events/cloud/{id}", "Remove a queued cloud event", [DEVICE_ID], None, [Empty(204)]),
    operation!("events", Get "/v2/events/stream", "Follow events as they are committed, and alarms as they change (Server-Sent Events), as long as the credentials hold",
        [STREAM_DEVICE_ID, ORGANIZATION_ID, LAST_EVENT_ID_PARAMETER], None, [Other(200, "text/event-stream")]),
];
