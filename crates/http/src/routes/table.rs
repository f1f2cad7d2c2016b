//! The table of operations: a row for each, with method, path, credentials, action, handler, and its description in the
//! OpenAPI document.

use isobar_model::access::Action;
use isobar_model::ids::{DeviceId, OrganizationId, ProjectId, UserId};

use super::RouteAccess::{ApiKey, Cookie, JwtOrCookie, Link, Open, Optional, Probe, User, UserOrDevice};
use super::Verb::{Delete, Get, Patch, Post, Put};
use super::{Handler, RouteAccess, RouteRow, Verb};
use crate::openapi::operations::Success::{Array, Empty, Json, JsonOr, Other, Page, PageOr};
use crate::openapi::operations::{OperationDocs, of};
use crate::openapi::parameters::*;
use crate::openapi::webhook::WEBHOOK;
use crate::openapi::{self, JSON_TYPE};
use crate::problem::ErrorBody;
use crate::request::MERGE_PATCH_TYPE;
use crate::resources::about::AboutJson;
use crate::resources::alarms::{AlarmDetailJson, AlarmInputJson, AlarmJson, AlarmSummaryJson};
use crate::resources::appearance::{BrandingInputJson, BrandingJson, DeviceTableInputJson, DeviceTableJson};
use crate::resources::auth::{AccountNameJson, LoginJson, NewUserJson, ResetInputJson, TokensJson};
use crate::resources::board_links::{BoardLinkInputJson, BoardLinkJson, NewBoardLinkJson};
use crate::resources::boards::{BoardHeadJson, BoardJson, DashboardInputJson, DashboardJson};
use crate::resources::buckets::{BucketsJson, FleetBucketsJson};
use crate::resources::data::{LastValuesJson, StorageElementJson, StorageListJson, StoredValueJson};
use crate::resources::devices::{
    DeviceInputJson, DeviceInputsJson, DeviceJson, DeviceSummaryJson, DevicesOutcomeJson, LabelsOutcomeJson,
    MetaItemsJson, MetaPatchJson, NewDeviceJson, TokenJson,
};
use crate::resources::dry_runs::{DryRunInputJson, DryRunJson};
use crate::resources::event_batches::{BatchEventsJson, BatchJson};
use crate::resources::events::{EventJson, IdJson};
use crate::resources::images::ImageText;
use crate::resources::locations::{DeviceClustersJson, DeviceLocationJson};
use crate::resources::notifications::{NotificationJson, ReadMarkJson, SystemMessageJson};
use crate::resources::organizations::{OrganizationInputJson, OrganizationJson};
use crate::resources::platform::PlatformJson;
use crate::resources::projects::{ProjectInputJson, ProjectJson};
use crate::resources::settings::{
    DefaultsOutcomeJson, DeviceIds, DeviceSettingJson, SettingItemsJson, SettingValue, SettingsOutcomeJson,
};
use crate::resources::specifications::{
    SpecificationInputJson, SpecificationJson, SpecificationVersionJson, WholeVersionJson,
};
use crate::resources::users::{ApiKeyInputJson, ApiKeyJson, NewApiKeyJson, UserCreationJson, UserInputJson, UserJson};
use crate::resources::values::{AnyButNull, AnyJson};
use crate::resources::views::{ViewInputJson, ViewJson};
use crate::resources::wall::{WallBoardJson, WallWidgetDataJson};
use crate::resources::webhook::WebhookAnswer;
use crate::resources::{
    about, alarms, appearance, auth, board_links, boards, buckets, data, devices, dry_runs, event_batches, events,
    health, images, locations, notifications, organizations, platform, projects, settings, specifications, users,
    views, wall, webhook,
};
use crate::response::Reply;

/// Names a handler and its function, as a row needs them.
macro_rules! by {
    ($file:ident::$handler:ident) => {
        (
            stringify!($handler),
            Handler::Boxed(|call| Box::pin(async move { $file::$handler(call).await.map(Reply::from) })),
        )
    };
    ($file:ident::$handler:ident::<$noun:ident>) => {
        (
            concat!(noun!($noun), "_", stringify!($handler)),
            Handler::Boxed(|call| Box::pin(async move { $file::$handler::<$noun>(call).await.map(Reply::from) })),
        )
    };
}

/// Names the noun of a handler that serves several.
macro_rules! noun {
    (OrganizationId) => {
        "organization"
    };
    (ProjectId) => {
        "project"
    };
    (UserId) => {
        "user"
    };
    (DeviceId) => {
        "device"
    };
}

/// Makes a row: `operation!(method path, access, action, handler, tag, summary, [parameters], body, [successes])`. For a
/// body other than JSON, `text <shape>`; for a JSON merge patch, or a list of them, `merge <shape>`.
macro_rules! operation {
    ($method:ident $path:literal, $access:ident, $action:expr, $handler:expr, $tag:literal, $summary:literal,
        [$($parameter:ident),*], text $body:expr, [$($success:expr),*]) => {
        operation!(@ &["text/plain"], $method $path, $access, $action, $handler, $tag, $summary,
            [$($parameter),*], Some($body), [$($success),*])
    };
    ($method:ident $path:literal, $access:ident, $action:expr, $handler:expr, $tag:literal, $summary:literal,
        [$($parameter:ident),*], merge $body:expr, [$($success:expr),*]) => {
        operation!(@ &[JSON_TYPE, MERGE_PATCH_TYPE], $method $path, $access, $action, $handler, $tag, $summary,
            [$($parameter),*], Some($body), [$($success),*])
    };
    ($method:ident $path:literal, $access:ident, $action:expr, $handler:expr, $tag:literal, $summary:literal,
        [$($parameter:ident),*], $body:expr, [$($success:expr),*]) => {
        operation!(@ &[JSON_TYPE], $method $path, $access, $action, $handler, $tag, $summary,
            [$($parameter),*], $body, [$($success),*])
    };
    (@ $types:expr, $method:ident $path:literal, $access:ident, $action:expr, $handler:expr, $tag:literal, $summary:literal,
        [$($parameter:ident),*], $body:expr, [$($success:expr),*]) => {
        row(
            $method,
            $path,
            $access,
            $action,
            $handler,
            &OperationDocs {
                tag: $tag,
                summary: $summary,
                parameters: &[$($parameter),*],
                body: $body,
                body_types: $types,
                successes: &[$($success),*],
            },
        )
    };
}

const fn row(
    method: Verb,
    path: &'static str,
    access: RouteAccess,
    action: Option<Action>,
    (name, handler): (&'static str, Handler),
    docs: &'static OperationDocs,
) -> RouteRow {
    RouteRow { method, path, access, action, name, handler, docs }
}

/// The operation that receives device events.
#[rustfmt::skip]
pub(crate) const MAIN_ROAD: RouteRow =
    operation!(Post "/v2/events/device", UserOrDevice, Some(Action::DeviceEventCreate), ("device_event_create", Handler::MainRoad), "events",
        "Post a device event; 201 means durable",
        [DEVICE_ID, ELEMENT_NAME_REQUIRED, IDEMPOTENCY_KEY_PARAMETER], Some(of::<AnyButNull>), [Json(201, of::<IdJson>)]);

/// Operations whose responses contain a secret.
pub(super) const SHOW_SECRETS: [&str; 7] = [
    "session_login",
    "session_refresh",
    "api_key_create",
    "board_link_create",
    "device_create",
    "devices_create",
    "device_token_rotate",
];

/// Returns every operation, in the order of the documentation. Router, OpenAPI document and refusal tests are built
/// from this table: an operation that is not here does not exist.
pub fn table() -> Vec<RouteRow> {
    TABLE.to_vec()
}

#[rustfmt::skip]
const TABLE: &[RouteRow] = &[
    operation!(Get "/health/live", Probe, None, by!(health::live), "operations",
        "Whether the process answers", [], None, [Json(200, of::<AnyJson>)]),
    operation!(Get "/health/ready", Probe, None, by!(health::ready), "operations",
        "Whether the databases answer too", [], None, [Json(200, of::<AnyJson>)]),
    operation!(Get "/metrics", Probe, None, by!(health::metrics), "operations",
        "What was measured, for Prometheus", [], None, [Other(200, "text/plain")]),

    operation!(Get "/v2/spec", Open, None, by!(openapi::spec), "operations",
        "This document", [], None, [Json(200, of::<AnyJson>)]),
    operation!(Get "/v2/docs", Open, None, by!(openapi::docs), "operations",
        "This document, to be browsed", [], None, [Other(200, "text/html")]),
    operation!(Get "/v2/about", Open, None, by!(about::about), "operations",
        "What this server is", [], None, [Json(200, of::<AboutJson>)]),
    operation!(Get "/v2/platform", User, Some(Action::PlatformRead), by!(platform::platform_fetch), "operations",
        "Fetch the state of the nodes and databases of this platform", [], None, [Json(200, of::<PlatformJson>)]),

    operation!(Post "/v2/auth/register", Optional, None, by!(auth::user_register), "auth",
        "Register a user", [], Some(of::<NewUserJson>), [Json(201, of::<UserJson>)]),
    operation!(Post "/v2/auth/login", Open, None, by!(auth::session_login), "auth",
        "Log in", [], Some(of::<LoginJson>), [Json(201, of::<TokensJson>)]),
    operation!(Post "/v2/auth/logout", JwtOrCookie, None, by!(auth::session_logout), "auth",
        "End the tokens that are given", [], None, [Empty(204)]),
    operation!(Get "/v2/auth/refreshToken", Cookie, None, by!(auth::session_refresh), "auth",
        "Get a new access token", [], None, [Json(201, of::<TokensJson>)]),
    operation!(Get "/v2/auth/verify", Open, None, by!(auth::verification_send), "auth",
        "Send the verification e-mail again", [EMAIL_OR_USERNAME], None, [Empty(204)]),
    operation!(Get "/v2/auth/verify/{nonce}", Open, None, by!(auth::user_verify), "auth",
        "Verify an e-mail address by the link of an e-mail; leads to the console", [], None, [Empty(302)]),
    operation!(Post "/v2/auth/forgot", Open, None, by!(auth::reset_send), "auth",
        "Send an e-mail with a link to set a new password", [], Some(of::<AccountNameJson>), [Empty(204)]),
    operation!(Post "/v2/auth/reset", Open, None, by!(auth::password_reset), "auth",
        "Set a new password by the link of an e-mail; ends all sessions", [], Some(of::<ResetInputJson>), [Json(200, of::<ErrorBody>)]),
    operation!(Get "/v2/auth/user", User, None, by!(auth::user_current), "auth",
        "Fetch the current user", [], None, [Json(200, of::<UserJson>)]),

    operation!(Get "/v2/organizations", User, Some(Action::OrganizationRead), by!(organizations::organization_list), "organizations",
        "List organizations", [DEPTH, LIMIT, PAGE, AFTER, PARENT_ID, SEARCH_TEXT, SORT_ORGANIZATIONS, ENTITY_LIST], None, [Page(200, of::<OrganizationJson>)]),
    operation!(Post "/v2/organizations", User, Some(Action::OrganizationCreate), by!(organizations::organization_create), "organizations",
        "Create an organization", [], Some(of::<OrganizationInputJson>), [Json(201, of::<OrganizationJson>)]),
    operation!(Get "/v2/organizations/{id}", User, Some(Action::OrganizationRead), by!(organizations::organization_fetch), "organizations",
        "Fetch an organization", [], None, [Json(200, of::<OrganizationJson>)]),
    operation!(Get "/v2/organizations/{id}/image", User, Some(Action::OrganizationRead), by!(images::image_posted::<OrganizationId>), "organizations",
        "Fetch an organization's image as it was posted", [], None, [Other(200, "text/plain")]),
    operation!(Post "/v2/organizations/{id}/image", User, Some(Action::OrganizationUpdate), by!(images::image_set::<OrganizationId>), "organizations",
        "Update an organization's image: a PNG, JPEG or WebP in Base64, bare or as a data URI", [], text of::<ImageText>, [Json(200, of::<ErrorBody>)]),
    operation!(Get "/v2/organizations/{id}/image.png", User, Some(Action::OrganizationRead), by!(images::image_png::<OrganizationId>), "organizations",
        "Fetch an organization's image as a picture", [IF_NONE_MATCH], None, [Other(200, "image/png"), Empty(304)]),
    operation!(Put "/v2/organizations/{id}", User, Some(Action::OrganizationUpdate), by!(organizations::organization_update), "organizations",
        "Update an organization; another parentId moves it with all that hangs on it", [], Some(of::<OrganizationInputJson>), [Json(200, of::<OrganizationJson>)]),
    operation!(Delete "/v2/organizations/{id}", User, Some(Action::OrganizationDelete), by!(organizations::organization_delete), "organizations",
        "Delete an organization that nothing hangs on", [], None, [Empty(204)]),
    operation!(Get "/v2/organizations/{id}/usage", User, Some(Action::OrganizationRead), by!(organizations::usage_fetch), "organizations",
        "Fetch an organization with what it and those beneath it use now", [], None, [Json(200, of::<OrganizationJson>)]),
    operation!(Get "/v2/organizations/{id}/branding", User, Some(Action::OrganizationRead), by!(appearance::branding_fetch), "organizations",
        "Fetch the branding", [], None, [Json(200, of::<BrandingJson>)]),
    operation!(Put "/v2/organizations/{id}/branding", User, Some(Action::OrganizationUpdate), by!(appearance::branding_update), "organizations",
        "Update the branding", [], Some(of::<BrandingInputJson>), [Json(200, of::<BrandingJson>)]),
    operation!(Get "/v2/organizations/{id}/dashboard", User, Some(Action::OrganizationRead), by!(boards::dashboard_fetch), "organizations",
        "Fetch the dashboard, its own or an inherited one", [], None, [Json(200, of::<DashboardJson>)]),
    operation!(Put "/v2/organizations/{id}/dashboard", User, Some(Action::OrganizationUpdate), by!(boards::dashboard_update), "organizations",
        "Update the organization's own dashboard", [], Some(of::<DashboardInputJson>), [Json(200, of::<DashboardJson>)]),
    operation!(Get "/v2/organizations/{id}/dashboards", User, Some(Action::OrganizationRead), by!(boards::board_list), "organizations",
        "List the dashboards, its own or inherited ones, oldest first: the oldest is the first",
        [PAGE, LIMIT, SORT_BOARDS], None, [Page(200, of::<BoardHeadJson>)]),
    operation!(Post "/v2/organizations/{id}/dashboards", User, Some(Action::OrganizationUpdate), by!(boards::board_create), "organizations",
        "Create one more dashboard: at most 100", [], Some(of::<DashboardInputJson>), [Json(201, of::<BoardJson>)]),
    operation!(Get "/v2/organizations/{id}/dashboards/{dashboardId}", User, Some(Action::OrganizationRead), by!(boards::board_fetch), "organizations",
        "Fetch a dashboard", [IF_NONE_MATCH], None, [Json(200, of::<BoardJson>), Empty(304)]),
    operation!(Put "/v2/organizations/{id}/dashboards/{dashboardId}", User, Some(Action::OrganizationUpdate), by!(boards::board_update), "organizations",
        "Update a dashboard of the organization's own", [IF_MATCH], Some(of::<DashboardInputJson>), [Json(200, of::<BoardJson>)]),
    operation!(Delete "/v2/organizations/{id}/dashboards/{dashboardId}", User, Some(Action::OrganizationUpdate), by!(boards::board_delete), "organizations",
        "Delete a dashboard of the organization's own", [IF_MATCH], None, [Empty(204)]),
    operation!(Get "/v2/organizations/{id}/dashboards/{dashboardId}/links", User, Some(Action::OrganizationUpdate), by!(board_links::board_link_list), "organizations",
        "List the links that show a dashboard on screens, without their secrets", [PAGE, LIMIT], None, [Page(200, of::<BoardLinkJson>)]),
    operation!(Post "/v2/organizations/{id}/dashboards/{dashboardId}/links", User, Some(Action::OrganizationUpdate), by!(board_links::board_link_create), "organizations",
        "Create a link that shows a dashboard on screens until its end: at most 20; its secret is shown this once",
        [], Some(of::<BoardLinkInputJson>), [Json(201, of::<NewBoardLinkJson>)]),
    operation!(Delete "/v2/organizations/{id}/dashboards/{dashboardId}/links/{linkId}", User, Some(Action::OrganizationUpdate), by!(board_links::board_link_delete), "organizations",
        "Delete a link: it is refused at once", [], None, [Empty(204)]),
    operation!(Get "/v2/organizations/{id}/deviceTable", User, Some(Action::OrganizationRead), by!(appearance::device_table_fetch), "organizations",
        "Fetch the device table configuration", [], None, [Json(200, of::<DeviceTableJson>)]),
    operation!(Put "/v2/organizations/{id}/deviceTable", User, Some(Action::OrganizationUpdate), by!(appearance::device_table_update), "organizations",
        "Update the device table configuration", [], Some(of::<DeviceTableInputJson>), [Json(200, of::<DeviceTableJson>)]),
    operation!(Delete "/v2/organizations/{id}/deviceTable", User, Some(Action::OrganizationUpdate), by!(appearance::device_table_delete), "organizations",
        "Delete the device table configuration", [], None, [Json(200, of::<ErrorBody>)]),

    operation!(Get "/v2/wall", Link, None, by!(wall::wall_fetch), "wall",
        "Fetch the dashboard that a link shows", [IF_NONE_MATCH], None, [Json(200, of::<WallBoardJson>), Empty(304)]),
    operation!(Get "/v2/wall/widgets/{widgetId}", Link, None, by!(wall::wall_widget_fetch), "wall",
        "Read what a widget of that dashboard shows, by the rights of whoever made the link", [], None, [Json(200, of::<WallWidgetDataJson>)]),

    operation!(Get "/v2/projects", User, Some(Action::ProjectRead), by!(projects::project_list), "projects",
        "List projects",
        [DEPTH, PAGE, AFTER, LIMIT, ORGANIZATION_ID, SEARCH_TEXT, SORT_PROJECTS, ENTITY_LIST, FILTER_TYPE, USABLE], None, [Page(200, of::<ProjectJson>)]),
    operation!(Post "/v2/projects", User, Some(Action::ProjectCreate), by!(projects::project_create), "projects",
        "Create a project", [], Some(of::<ProjectInputJson>), [Json(201, of::<ProjectJson>)]),
    operation!(Get "/v2/projects/{id}", User, Some(Action::ProjectRead), by!(projects::project_fetch), "projects",
        "Fetch a project", [], None, [Json(200, of::<ProjectJson>)]),
    operation!(Put "/v2/projects/{id}", User, Some(Action::ProjectUpdate), by!(projects::project_update), "projects",
        "Update a project", [], Some(of::<ProjectInputJson>), [Json(200, of::<ProjectJson>)]),
    operation!(Delete "/v2/projects/{id}", User, Some(Action::ProjectDelete), by!(projects::project_delete), "projects",
        "Delete a project that no device uses", [], None, [Empty(204)]),
    operation!(Get "/v2/projects/{id}/specification", User, Some(Action::ProjectRead), by!(specifications::specification_fetch), "projects",
        "Fetch a project's specification", [IF_NONE_MATCH], None, [Json(200, of::<SpecificationJson>), Empty(304)]),
    operation!(Put "/v2/projects/{id}/specification", User, Some(Action::ProjectUpdate), by!(specifications::specification_write), "projects",
        "Overwrite a project's specification", [IF_MATCH], Some(of::<SpecificationInputJson>), [Json(200, of::<SpecificationJson>)]),
    operation!(Get "/v2/projects/{id}/specification/versions", User, Some(Action::ProjectRead), by!(specifications::specification_versions), "projects",
        "List the specifications that were written, newest first: the newest 100",
        [PAGE, LIMIT, SORT_VERSIONS], None, [Page(200, of::<SpecificationVersionJson>)]),
    operation!(Get "/v2/projects/{id}/specification/versions/{number}", User, Some(Action::ProjectRead), by!(specifications::specification_version_fetch), "projects",
        "Fetch a specification as it was written", [], None, [Json(200, of::<WholeVersionJson>)]),
    operation!(Post "/v2/projects/{id}/specification/versions/{number}/restore", User, Some(Action::ProjectUpdate), by!(specifications::specification_version_restore), "projects",
        "Put a specification in force again, as a new version", [IF_MATCH], None, [Json(201, of::<SpecificationVersionJson>)]),
    operation!(Get "/v2/projects/{id}/image", User, Some(Action::ProjectRead), by!(images::image_posted::<ProjectId>), "projects",
        "Fetch a project's image as it was posted", [], None, [Other(200, "text/plain")]),
    operation!(Post "/v2/projects/{id}/image", User, Some(Action::ProjectUpdate), by!(images::image_set::<ProjectId>), "projects",
        "Update a project's image: a PNG, JPEG or WebP in Base64, bare or as a data URI", [], text of::<ImageText>, [Json(200, of::<ErrorBody>)]),
    operation!(Get "/v2/projects/{id}/image.png", User, Some(Action::ProjectRead), by!(images::image_png::<ProjectId>), "projects",
        "Fetch a project's image as a picture", [IF_NONE_MATCH], None, [Other(200, "image/png"), Empty(304)]),
    operation!(Post "/v2/projects/{id}/specification/test", User, Some(Action::ProjectDryRun), by!(dry_runs::specification_test), "projects",
        "Try a design out: what would happen, step by step", [], Some(of::<DryRunInputJson>), [Json(200, of::<DryRunJson>)]),

    operation!(Get "/v2/users", User, Some(Action::UserRead), by!(users::user_list), "users",
        "List users", [DEPTH, PAGE, AFTER, LIMIT, ORGANIZATION_ID, SEARCH_TEXT, SORT_USERS, ENTITY_LIST], None, [Page(200, of::<UserJson>)]),
    operation!(Post "/v2/users", User, Some(Action::UserCreate), by!(users::user_create), "users",
        "Create a user", [], Some(of::<UserCreationJson>), [Json(201, of::<UserJson>)]),
    operation!(Get "/v2/users/{id}", User, Some(Action::UserRead), by!(users::user_fetch), "users",
        "Fetch a user", [], None, [Json(200, of::<UserJson>)]),
    // A user's own profile needs no rank: the action covers those of others.
    operation!(Put "/v2/users/{id}", User, Some(Action::UserUpdate), by!(users::user_update), "users",
        "Update a user; a new password ends its other sessions", [], Some(of::<UserInputJson>), [Json(200, of::<UserJson>)]),
    operation!(Delete "/v2/users/{id}", User, Some(Action::UserDelete), by!(users::user_delete), "users",
        "Delete a user", [], None, [Empty(204)]),
    // A user's own keys need no rank: the action covers those of others.
    operation!(Get "/v2/users/{id}/apiKeys", User, Some(Action::ApiKeyManage), by!(users::api_key_list), "users",
        "List a user's API keys", [PAGE, LIMIT], None, [Page(200, of::<ApiKeyJson>)]),
    operation!(Post "/v2/users/{id}/apiKeys", User, Some(Action::ApiKeyManage), by!(users::api_key_create), "users",
        "Create an API key, shown this once", [], Some(of::<ApiKeyInputJson>), [Json(201, of::<NewApiKeyJson<'static>>)]),
    operation!(Delete "/v2/users/{id}/apiKeys/{keyId}", User, Some(Action::ApiKeyManage), by!(users::api_key_delete), "users",
        "Delete an API key", [], None, [Empty(204)]),
    // A user's own image needs no rank: the action covers those of others.
    operation!(Get "/v2/users/{id}/image", User, Some(Action::UserRead), by!(images::image_posted::<UserId>), "users",
        "Fetch a user's image as it was posted", [], None, [Other(200, "text/plain")]),
    operation!(Post "/v2/users/{id}/image", User, Some(Action::UserUpdate), by!(images::image_set::<UserId>), "users",
        "Update a user's image: a PNG, JPEG or WebP in Base64, bare or as a data URI", [], text of::<ImageText>, [Json(200, of::<ErrorBody>)]),
    operation!(Get "/v2/users/{id}/image.png", User, Some(Action::UserRead), by!(images::image_png::<UserId>), "users",
        "Fetch a user's image as a picture", [IF_NONE_MATCH], None, [Other(200, "image/png"), Empty(304)]),

    // A user's own notifications need no rank.
    operation!(Get "/v2/notifications", User, None, by!(notifications::notification_list), "notifications",
        "List the caller's notifications, newest first", [PAGE, LIMIT, UNREAD], None, [Page(200, of::<NotificationJson>)]),
    operation!(Put "/v2/notifications", User, None, by!(notifications::notifications_update), "notifications",
        "Mark the caller's notifications of a range of time", [FROM, TO_REQUIRED], Some(of::<ReadMarkJson>), [Json(200, of::<ErrorBody>)]),
    operation!(Delete "/v2/notifications", User, None, by!(notifications::notifications_delete), "notifications",
        "Delete the caller's notifications of a range of time", [FROM, TO_REQUIRED], None, [Json(200, of::<ErrorBody>)]),
    operation!(Post "/v2/notifications/system", User, Some(Action::SystemNotificationEmit), by!(notifications::system_notification_emit), "notifications",
        "Tell every user something", [], Some(of::<SystemMessageJson>), [Json(201, of::<ErrorBody>)]),
    operation!(Get "/v2/notifications/{id}", User, None, by!(notifications::notification_fetch), "notifications",
        "Fetch one of the caller's notifications", [], None, [Json(200, of::<NotificationJson>)]),
    operation!(Put "/v2/notifications/{id}", User, None, by!(notifications::notification_update), "notifications",
        "Mark one of the caller's notifications", [], Some(of::<ReadMarkJson>), [Json(200, of::<ErrorBody>)]),

    operation!(Get "/v2/views", User, None, by!(views::view_list), "views",
        "List the caller's views of the device list, by name", [PAGE, LIMIT], None, [Page(200, of::<ViewJson>)]),
    operation!(Post "/v2/views", User, None, by!(views::view_create), "views",
        "Create a view: at most 50", [], Some(of::<ViewInputJson>), [Json(201, of::<ViewJson>)]),
    operation!(Put "/v2/views/{id}", User, None, by!(views::view_update), "views",
        "Update one of the caller's views", [], Some(of::<ViewInputJson>), [Json(200, of::<ViewJson>)]),
    operation!(Delete "/v2/views/{id}", User, None, by!(views::view_delete), "views",
        "Delete one of the caller's views", [], None, [Empty(204)]),

    operation!(Get "/v2/devices", User, Some(Action::DeviceRead), by!(devices::device_list), "devices",
        "List devices; as CSV: all of them",
        [DEPTH, PAGE, AFTER, LIMIT, ORGANIZATION_ID, SEARCH_TEXT, SORT_DEVICES, LAST_VALUES, ENTITY_LIST, DEVICE_FILTER, DEVICE_COLUMNS],
        None, [PageOr(200, of::<DeviceJson>, &["text/csv"])]),
    operation!(Post "/v2/devices", User, Some(Action::DeviceCreate), by!(devices::device_create), "devices",
        "Create a device; its token is shown this once", [], Some(of::<DeviceInputJson>), [Json(201, of::<NewDeviceJson<'static>>)]),
    operation!(Get "/v2/devices/summary", User, Some(Action::DeviceRead), by!(devices::device_summary), "devices",
        "Count devices: by status, by project, by when they were last heard",
        [DEPTH, ORGANIZATION_ID, DEVICE_FILTER], None, [Json(200, of::<DeviceSummaryJson>)]),
    operation!(Post "/v2/devices/bulk", User, Some(Action::DeviceCreate), by!(devices::devices_create), "devices",
        "Create up to 10,000 devices, each by itself; their tokens are shown this once",
        [TEST], Some(of::<DeviceInputsJson>), [Json(200, of::<DevicesOutcomeJson>)]),
    operation!(Get "/v2/devices/locations", User, Some(Action::DeviceRead), by!(locations::device_places), "devices",
        "List the devices that have coordinates, in the order they were made",
        [DEPTH, PAGE, LIMIT, ORGANIZATION_ID, BOX], None, [Page(200, of::<DeviceLocationJson>)]),
    operation!(Get "/v2/devices/locations/clusters", User, Some(Action::DeviceRead), by!(locations::device_clusters), "devices",
        "Count the devices that have coordinates, by the cells of a grid",
        [DEPTH, ORGANIZATION_ID, BOX, CELL_SIZE], None, [Json(200, of::<DeviceClustersJson>)]),
    operation!(Get "/v2/devices/{id}", UserOrDevice, Some(Action::DeviceRead), by!(devices::device_fetch), "devices",
        "Fetch a device", [LAST_VALUES], None, [Json(200, of::<DeviceJson>)]),
    operation!(Put "/v2/devices/{id}", User, Some(Action::DeviceUpdate), by!(devices::device_update), "devices",
        "Update a device", [LAST_VALUES], Some(of::<DeviceInputJson>), [Json(200, of::<DeviceJson>)]),
    operation!(Delete "/v2/devices/{id}", User, Some(Action::DeviceDelete), by!(devices::device_delete), "devices",
        "Delete a device with everything it said", [], None, [Empty(204)]),
    operation!(Patch "/v2/devices/{id}/meta", User, Some(Action::DeviceUpdate), by!(devices::meta_update), "devices",
        "Change labels of a device one by one: null removes one, what is not named stays", [LAST_VALUES], merge of::<MetaPatchJson>, [Json(200, of::<DeviceJson>)]),
    operation!(Post "/v2/devices/meta", User, Some(Action::DeviceUpdate), by!(devices::metas_update), "devices",
        "Change labels of many devices, each item by itself", [], merge of::<MetaItemsJson>, [Json(200, of::<LabelsOutcomeJson>)]),
    operation!(Post "/v2/devices/{id}/token", User, Some(Action::DeviceTokenRotate), by!(devices::device_token_rotate), "devices",
        "Issue a new device token, which ends the old one", [], None, [Json(201, of::<TokenJson<'static>>)]),
    operation!(Get "/v2/devices/{id}/image", User, Some(Action::DeviceRead), by!(images::image_posted::<DeviceId>), "devices",
        "Fetch a device's image as it was posted", [], None, [Other(200, "text/plain")]),
    operation!(Post "/v2/devices/{id}/image", User, Some(Action::DeviceUpdate), by!(images::device_image_set), "devices",
        "Update a device's image: a PNG, JPEG or WebP in Base64, bare or as a data URI", [], text of::<ImageText>, [Empty(204)]),
    operation!(Delete "/v2/devices/{id}/image", User, Some(Action::DeviceUpdate), by!(images::device_image_delete), "devices",
        "Delete a device's image", [], None, [Empty(204)]),
    operation!(Get "/v2/devices/{id}/image.png", User, Some(Action::DeviceRead), by!(images::image_png::<DeviceId>), "devices",
        "Fetch a device's image as a picture", [IF_NONE_MATCH], None, [Other(200, "image/png"), Empty(304)]),

    operation!(Get "/v2/devices/{id}/data/{elementName}", User, Some(Action::DeviceRead), by!(data::values), "data",
        "List stored values, newest first; as CSV or NDJSON: all of them",
        [PAGE, LIMIT, FROM, TO, SORT_VALUES, FILTER, COLUMNS], None, [PageOr(200, of::<StoredValueJson>, &["text/csv", "application/x-ndjson"])]),
    operation!(Get "/v2/devices/{id}/data/{elementName}/buckets", UserOrDevice, Some(Action::DeviceRead), by!(buckets::buckets), "data",
        "Tell what stored numbers come to in buckets of time",
        [BUCKET_FIELDS, FUNCTIONS, EVERY, POINTS, ZONE, FROM, TO, FILTER, FILL, TIME_FIELD, LATE], None, [JsonOr(200, of::<BucketsJson>, &["text/csv"])]),
    operation!(Get "/v2/data/buckets", User, Some(Action::DeviceRead), by!(buckets::fleet_buckets), "data",
        "Tell the same of many devices, each for itself or all together",
        [SERIES_NAME, DEVICE_IDS, PROJECT_UUID, BUCKETS_ORGANIZATION_ID, DEPTH, GROUP_BY,
         BUCKET_FIELDS, FUNCTIONS, EVERY, POINTS, ZONE, FROM, TO, FILTER, FILL, TIME_FIELD, LATE],
        None, [JsonOr(200, of::<FleetBucketsJson>, &["text/csv"])]),
    operation!(Get "/v2/devices/{id}/last/{elementName}", UserOrDevice, Some(Action::DeviceRead), by!(data::last_values), "data",
        "Fetch the last values", [], None, [Json(200, of::<LastValuesJson>)]),
    operation!(Get "/v2/devices/{id}/storage", User, Some(Action::DeviceRead), by!(data::storage_list), "data",
        "List storage elements", [PAGE, LIMIT, SORT_STORAGE], None, [Json(200, of::<StorageListJson>)]),
    operation!(Delete "/v2/devices/{id}/storage", User, Some(Action::StorageDelete), by!(data::storage_delete_all), "data",
        "Delete all storage elements, for good", [], None, [Empty(204)]),
    operation!(Get "/v2/devices/{id}/storage/{elementName}", User, Some(Action::DeviceRead), by!(data::storage_fetch), "data",
        "Fetch a storage element", [], None, [Json(200, of::<StorageElementJson>)]),
    operation!(Delete "/v2/devices/{id}/storage/{elementName}", User, Some(Action::StorageDelete), by!(data::storage_delete), "data",
        "Delete a storage element, for good", [], None, [Empty(204)]),

    operation!(Get "/v2/devices/{id}/settings", UserOrDevice, Some(Action::DeviceRead), by!(settings::setting_list), "settings",
        "List the settings of a device, by listOrder and name", [PAGE, LIMIT, SORT_SETTINGS], None, [Page(200, of::<DeviceSettingJson>)]),
    operation!(Delete "/v2/devices/{id}/settings", User, Some(Action::SettingUpdate), by!(settings::settings_reset), "settings",
        "Reset all settings to their defaults", [], None, [Empty(204)]),
    operation!(Get "/v2/devices/{id}/settings/history", User, Some(Action::DeviceRead), by!(settings::setting_history), "settings",
        "List the records of settings that were replaced in the last six months, newest first",
        [PAGE, LIMIT, SORT_SETTING_HISTORY], None, [Page(200, of::<DeviceSettingJson>)]),
    operation!(Get "/v2/devices/{id}/settings/{settingName}", UserOrDevice, Some(Action::DeviceRead), by!(settings::setting_fetch), "settings",
        "Fetch a setting", [], None, [Json(200, of::<DeviceSettingJson>)]),
    operation!(Put "/v2/devices/{id}/settings/{settingName}", User, Some(Action::SettingUpdate), by!(settings::setting_update), "settings",
        "Change a setting: the body is its value", [], Some(of::<SettingValue>), [Json(200, of::<DeviceSettingJson>)]),
    operation!(Delete "/v2/devices/{id}/settings/{settingName}", User, Some(Action::SettingUpdate), by!(settings::setting_reset), "settings",
        "Reset a setting to its default", [], None, [Empty(204)]),
    operation!(Post "/v2/devices/settings", User, Some(Action::SettingUpdate), by!(settings::settings_update), "settings",
        "Change settings of many devices, each item by itself", [], Some(of::<SettingItemsJson>), [Json(200, of::<SettingsOutcomeJson>)]),
    operation!(Post "/v2/devices/settings/defaults", User, Some(Action::DeviceRead), by!(settings::setting_defaults), "settings",
        "Fetch the default settings of the projects of these devices", [], Some(of::<DeviceIds>), [Json(200, of::<DefaultsOutcomeJson>)]),

    operation!(Get "/v2/alarms", User, Some(Action::AlarmRead), by!(alarms::alarm_list), "alarms",
        "List alarms: active ones first, then by severity, then the newest first",
        [DEPTH, PAGE, AFTER, LIMIT, ORGANIZATION_ID, SORT_ALARMS, ENTITY_LIST, ALARM_FILTER], None, [Page(200, of::<AlarmJson>)]),
    operation!(Get "/v2/alarms/summary", User, Some(Action::AlarmRead), by!(alarms::alarm_summary), "alarms",
        "Count active alarms by severity, and those that nobody has acknowledged", [DEPTH, ORGANIZATION_ID], None, [Json(200, of::<AlarmSummaryJson>)]),
    operation!(Get "/v2/alarms/{id}", User, Some(Action::AlarmRead), by!(alarms::alarm_fetch), "alarms",
        "Fetch an alarm with its history", [], None, [Json(200, of::<AlarmDetailJson>)]),
    operation!(Put "/v2/alarms/{id}", User, Some(Action::AlarmUpdate), by!(alarms::alarm_update), "alarms",
        "Acknowledge an alarm, comment on it, assign it, or clear it", [], Some(of::<AlarmInputJson>), [Json(200, of::<AlarmDetailJson>)]),

    operation!(Get "/v2/devices/{deviceId}/events", User, Some(Action::DeviceRead), by!(events::history), "events",
        "List the event history, newest first", [DEVICE_EVENTS, CLOUD_EVENTS, LIMIT, PAGE, FROM, TO], None, [Page(200, of::<EventJson>)]),
    operation!(Get "/v2/devices/{deviceId}/events/{id}", User, Some(Action::DeviceRead), by!(events::history_event), "events",
        "Fetch one event of the history", [], None, [Json(200, of::<EventJson>)]),

    MAIN_ROAD,
    operation!(Post "/v2/events/device/batch", UserOrDevice, Some(Action::DeviceEventCreate), by!(event_batches::device_events_create), "events",
        "Post many device events, each by itself; what is accepted is durable", [], Some(of::<BatchEventsJson>), [Json(200, of::<BatchJson>)]),
    row(Post, "/v2/events/integrations", ApiKey, Some(Action::WebhookReceive), by!(webhook::webhook_receive), &OperationDocs {
        tag: "events",
        summary: "Take a third party's payload: devices are provisioned, events are processed; with debug the answer tells how",
        parameters: &WEBHOOK,
        body: Some(of::<AnyButNull>),
        body_types: &[JSON_TYPE],
        successes: &[Json(200, of::<WebhookAnswer>)],
    }),
    operation!(Get "/v2/events/cloud", UserOrDevice, Some(Action::CloudEventRead), by!(events::cloud_events), "events",
        "Read the cloud-event queue, oldest first", [DEVICE_ID, PEEK, LIMIT, PAGE, ELEMENT_NAME, WAIT], None, [Array(200, of::<EventJson>)]),
    operation!(Post "/v2/events/cloud", User, Some(Action::CloudEventCreate), by!(events::cloud_event_send), "events",
        "Queue a cloud event", [DEVICE_ID_REQUIRED, ELEMENT_NAME_REQUIRED, IDEMPOTENCY_KEY_PARAMETER], Some(of::<AnyButNull>), [Json(201, of::<IdJson>)]),
    operation!(Get "/v2/events/cloud/next", UserOrDevice, Some(Action::CloudEventRead), by!(events::cloud_event_next), "events",
        "Read the payload of the next cloud event", [DEVICE_ID, PEEK, ELEMENT_NAME, WAIT], None, [Json(200, of::<AnyJson>), Empty(204)]),
    operation!(Delete "/v2/events/cloud/{id}", UserOrDevice, Some(Action::CloudEventRead), by!(events::cloud_event_delete), "events",
        "Remove a queued cloud event", [DEVICE_ID], None, [Empty(204)]),
    operation!(Get "/v2/events/stream", User, Some(Action::DeviceRead), by!(events::event_stream), "events",
        "Follow events as they are committed, and alarms as they change (Server-Sent Events), as long as the credentials hold",
        [STREAM_DEVICE_ID, ORGANIZATION_ID, LAST_EVENT_ID_PARAMETER], None, [Other(200, "text/event-stream")]),
];
