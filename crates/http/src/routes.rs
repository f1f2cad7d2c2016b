//! The table of operations: method, path, credentials and handler of each. The router and the admission of calls are
//! built from it.

use futures::future::BoxFuture;
use isobar_hub::Accepts;
use isobar_model::access::Action;
use isobar_model::ids::{DeviceId, OrganizationId, ProjectId, UserId};

use crate::openapi;
use crate::problem::Problem;
use crate::request::Call;
use crate::resources::{
    about, alarms, appearance, auth, board_links, boards, buckets, data, devices, dry_runs, event_batches, events,
    health, images, locations, notifications, organizations, projects, settings, specifications, users, views, wall,
    webhook,
};
use crate::response::Reply;

/// The method of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// GET (and HEAD).
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

impl Verb {
    /// Returns its name in HTTP.
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Get => "GET",
            Verb::Post => "POST",
            Verb::Put => "PUT",
            Verb::Patch => "PATCH",
            Verb::Delete => "DELETE",
        }
    }
}

/// Most bytes of a body that needs no credentials.
pub(crate) const OPEN_BODY_BYTES_MAX: usize = 16 << 10;

/// Credentials that an operation takes (contract: Authentication).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteAccess {
    /// Needs no credentials and is not counted: for monitoring.
    Probe,
    /// Needs no credentials.
    Open,
    /// Needs no credentials; the operation checks those that are sent.
    Optional,
    /// Takes the refresh cookie only.
    Cookie,
    /// Takes a jwt or the refresh cookie, whichever session is to end.
    JwtOrCookie,
    /// Takes credentials of a user: jwt, apiKey or apiKeyAlt.
    User,
    /// Takes credentials of a user, or a device token for its own device.
    UserOrDevice,
    /// Takes apiKey or apiKeyAlt.
    ApiKey,
    /// Takes the link of a dashboard only.
    Link,
}

impl RouteAccess {
    /// Returns the limit of a body in bytes, given the limit with credentials: lower for clients without credentials.
    pub(crate) fn body_bytes_max(self, most: usize) -> usize {
        match self.accepts() {
            Accepts::Nobody | Accepts::Link => most.min(OPEN_BODY_BYTES_MAX),
            Accepts::User | Accepts::UserOrDevice | Accepts::ApiKey => most,
        }
    }

    /// Returns the credentials that the hub accepts. Operations that take cookies check them themselves.
    pub(crate) const fn accepts(self) -> Accepts {
        match self {
            RouteAccess::Probe
            | RouteAccess::Open
            | RouteAccess::Optional
            | RouteAccess::Cookie
            | RouteAccess::JwtOrCookie => Accepts::Nobody,
            RouteAccess::User => Accepts::User,
            RouteAccess::UserOrDevice => Accepts::UserOrDevice,
            RouteAccess::ApiKey => Accepts::ApiKey,
            RouteAccess::Link => Accepts::Link,
        }
    }
}

/// Function that handles an operation.
#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// The handler of device events: nearly all calls, so its future is not boxed.
    MainRoad,
    /// A handler with a boxed future.
    Boxed(fn(&mut Call) -> BoxFuture<'_, Result<Reply, Problem>>),
}

/// One operation.
#[derive(Clone, Copy)]
pub struct RouteRow {
    /// HTTP method.
    pub method: Verb,
    /// Path, with variable parts in braces.
    pub path: &'static str,
    /// Credentials that it takes.
    pub access: RouteAccess,
    /// Action that decides the role it needs; `None`: any user, or anybody, may call it.
    pub action: Option<Action>,
    /// Unique name, `noun_verb` like its handler's.
    pub name: &'static str,
    pub(crate) handler: Handler,
}

impl RouteRow {
    /// Returns true if this is the operation with this method and exactly this path.
    pub(crate) fn is_for(&self, method: &axum::http::Method, path: &str) -> bool {
        self.path == path && self.method.name() == method.as_str()
    }

    /// Returns true if its responses may be compressed. A response with a secret next to text that an attacker may
    /// choose is not: its compressed length would reveal the secret (BREACH). Responses to events are too short.
    pub(crate) fn is_compressed(&self) -> bool {
        !matches!(self.handler, Handler::MainRoad) && !SHOW_SECRETS.contains(&self.name)
    }

    /// Runs its handler.
    pub(crate) async fn handle(&self, call: &mut Call) -> Result<Reply, Problem> {
        match self.handler {
            Handler::MainRoad => events::device_event_create(call).await.map(Reply::from),
            Handler::Boxed(handler) => handler(call).await,
        }
    }
}

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

const fn row(
    method: Verb,
    path: &'static str,
    access: RouteAccess,
    action: Option<Action>,
    (name, handler): (&'static str, Handler),
) -> RouteRow {
    RouteRow { method, path, access, action, name, handler }
}

/// The operation that receives device events.
pub(crate) const MAIN_ROAD: RouteRow = row(
    Post,
    "/v2/events/device",
    UserOrDevice,
    Some(Action::DeviceEventCreate),
    ("device_event_create", Handler::MainRoad),
);

/// Operations whose responses contain a secret.
const SHOW_SECRETS: [&str; 7] = [
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

use RouteAccess::{ApiKey, Cookie, JwtOrCookie, Link, Open, Optional, Probe, User, UserOrDevice};
use Verb::{Delete, Get, Patch, Post, Put};

#[rustfmt::skip]
const TABLE: &[RouteRow] = &[
    row(Get,    "/health/live",                          Probe,        None,                            by!(health::live)),
    row(Get,    "/health/ready",                         Probe,        None,                            by!(health::ready)),
    row(Get,    "/metrics",                              Probe,        None,                            by!(health::metrics)),

    row(Get,    "/v2/spec",                              Open,         None,                            by!(openapi::spec)),
    row(Get,    "/v2/docs",                              Open,         None,                            by!(openapi::docs)),
    row(Get,    "/v2/about",                             Open,         None,                            by!(about::about)),

    row(Post,   "/v2/auth/register",                     Optional,     None,                            by!(auth::user_register)),
    row(Post,   "/v2/auth/login",                        Open,         None,                            by!(auth::session_login)),
    row(Post,   "/v2/auth/logout",                       JwtOrCookie,  None,                            by!(auth::session_logout)),
    row(Get,    "/v2/auth/refreshToken",                 Cookie,       None,                            by!(auth::session_refresh)),
    row(Get,    "/v2/auth/verify",                       Open,         None,                            by!(auth::verification_send)),
    row(Get,    "/v2/auth/verify/{nonce}",               Open,         None,                            by!(auth::user_verify)),
    row(Post,   "/v2/auth/forgot",                       Open,         None,                            by!(auth::reset_send)),
    row(Post,   "/v2/auth/reset",                        Open,         None,                            by!(auth::password_reset)),
    row(Get,    "/v2/auth/user",                         User,         None,                            by!(auth::user_current)),

    row(Get,    "/v2/organizations",                     User,         Some(Action::OrganizationRead),  by!(organizations::organization_list)),
    row(Post,   "/v2/organizations",                     User,         Some(Action::OrganizationCreate), by!(organizations::organization_create)),
    row(Get,    "/v2/organizations/{id}",                User,         Some(Action::OrganizationRead),  by!(organizations::organization_fetch)),
    row(Get,    "/v2/organizations/{id}/image",               User,         Some(Action::OrganizationRead),  by!(images::image_posted::<OrganizationId>)),
    row(Post,   "/v2/organizations/{id}/image",               User,         Some(Action::OrganizationUpdate), by!(images::image_set::<OrganizationId>)),
    row(Get,    "/v2/organizations/{id}/image.png",           User,         Some(Action::OrganizationRead),  by!(images::image_png::<OrganizationId>)),
    row(Put,    "/v2/organizations/{id}",                User,         Some(Action::OrganizationUpdate), by!(organizations::organization_update)),
    row(Delete, "/v2/organizations/{id}",                User,         Some(Action::OrganizationDelete), by!(organizations::organization_delete)),
    row(Get,    "/v2/organizations/{id}/usage",          User,         Some(Action::OrganizationRead),  by!(organizations::usage_fetch)),
    row(Get,    "/v2/organizations/{id}/branding",       User,         Some(Action::OrganizationRead),  by!(appearance::branding_fetch)),
    row(Put,    "/v2/organizations/{id}/branding",       User,         Some(Action::OrganizationUpdate), by!(appearance::branding_update)),
    row(Get,    "/v2/organizations/{id}/dashboard",      User,         Some(Action::OrganizationRead),  by!(boards::dashboard_fetch)),
    row(Put,    "/v2/organizations/{id}/dashboard",      User,         Some(Action::OrganizationUpdate), by!(boards::dashboard_update)),
    row(Get,    "/v2/organizations/{id}/dashboards",     User,         Some(Action::OrganizationRead),  by!(boards::board_list)),
    row(Post,   "/v2/organizations/{id}/dashboards",     User,         Some(Action::OrganizationUpdate), by!(boards::board_create)),
    row(Get,    "/v2/organizations/{id}/dashboards/{dashboardId}", User, Some(Action::OrganizationRead), by!(boards::board_fetch)),
    row(Put,    "/v2/organizations/{id}/dashboards/{dashboardId}", User, Some(Action::OrganizationUpdate), by!(boards::board_update)),
    row(Delete, "/v2/organizations/{id}/dashboards/{dashboardId}", User, Some(Action::OrganizationUpdate), by!(boards::board_delete)),
    row(Get,    "/v2/organizations/{id}/dashboards/{dashboardId}/links", User, Some(Action::OrganizationUpdate), by!(board_links::board_link_list)),
    row(Post,   "/v2/organizations/{id}/dashboards/{dashboardId}/links", User, Some(Action::OrganizationUpdate), by!(board_links::board_link_create)),
    row(Delete, "/v2/organizations/{id}/dashboards/{dashboardId}/links/{linkId}", User, Some(Action::OrganizationUpdate), by!(board_links::board_link_delete)),
    row(Get,    "/v2/organizations/{id}/deviceTable",    User,         Some(Action::OrganizationRead),  by!(appearance::device_table_fetch)),
    row(Put,    "/v2/organizations/{id}/deviceTable",    User,         Some(Action::OrganizationUpdate), by!(appearance::device_table_update)),
    row(Delete, "/v2/organizations/{id}/deviceTable",    User,         Some(Action::OrganizationUpdate), by!(appearance::device_table_delete)),

    row(Get,    "/v2/wall",                              Link,         None,                            by!(wall::wall_fetch)),
    row(Get,    "/v2/wall/widgets/{widgetId}",           Link,         None,                            by!(wall::wall_widget_fetch)),

    row(Get,    "/v2/projects",                          User,         Some(Action::ProjectRead),       by!(projects::project_list)),
    row(Post,   "/v2/projects",                          User,         Some(Action::ProjectCreate),     by!(projects::project_create)),
    row(Get,    "/v2/projects/{id}",                     User,         Some(Action::ProjectRead),       by!(projects::project_fetch)),
    row(Put,    "/v2/projects/{id}",                     User,         Some(Action::ProjectUpdate),     by!(projects::project_update)),
    row(Delete, "/v2/projects/{id}",                     User,         Some(Action::ProjectDelete),     by!(projects::project_delete)),
    row(Get,    "/v2/projects/{id}/specification",       User,         Some(Action::ProjectRead),       by!(specifications::specification_fetch)),
    row(Put,    "/v2/projects/{id}/specification",       User,         Some(Action::ProjectUpdate),     by!(specifications::specification_write)),
    row(Get,    "/v2/projects/{id}/specification/versions", User,      Some(Action::ProjectRead),       by!(specifications::specification_versions)),
    row(Get,    "/v2/projects/{id}/specification/versions/{number}", User, Some(Action::ProjectRead),   by!(specifications::specification_version_fetch)),
    row(Post,   "/v2/projects/{id}/specification/versions/{number}/restore", User, Some(Action::ProjectUpdate), by!(specifications::specification_version_restore)),
    row(Get,    "/v2/projects/{id}/image",                    User,         Some(Action::ProjectRead),       by!(images::image_posted::<ProjectId>)),
    row(Post,   "/v2/projects/{id}/image",                    User,         Some(Action::ProjectUpdate),     by!(images::image_set::<ProjectId>)),
    row(Get,    "/v2/projects/{id}/image.png",                User,         Some(Action::ProjectRead),       by!(images::image_png::<ProjectId>)),
    row(Post,   "/v2/projects/{id}/specification/test",  User,         Some(Action::ProjectDryRun),     by!(dry_runs::specification_test)),

    row(Get,    "/v2/users",                             User,         Some(Action::UserRead),          by!(users::user_list)),
    row(Post,   "/v2/users",                             User,         Some(Action::UserCreate),        by!(users::user_create)),
    row(Get,    "/v2/users/{id}",                        User,         Some(Action::UserRead),          by!(users::user_fetch)),
    // A user's own profile needs no rank: the action covers those of others.
    row(Put,    "/v2/users/{id}",                        User,         Some(Action::UserUpdate),        by!(users::user_update)),
    row(Delete, "/v2/users/{id}",                        User,         Some(Action::UserDelete),        by!(users::user_delete)),
    // A user's own keys need no rank: the action covers those of others.
    row(Get,    "/v2/users/{id}/apiKeys",                User,         Some(Action::ApiKeyManage),      by!(users::api_key_list)),
    row(Post,   "/v2/users/{id}/apiKeys",                User,         Some(Action::ApiKeyManage),      by!(users::api_key_create)),
    row(Delete, "/v2/users/{id}/apiKeys/{keyId}",        User,         Some(Action::ApiKeyManage),      by!(users::api_key_delete)),
    // A user's own image needs no rank: the action covers those of others.
    row(Get,    "/v2/users/{id}/image",                       User,         Some(Action::UserRead),          by!(images::image_posted::<UserId>)),
    row(Post,   "/v2/users/{id}/image",                       User,         Some(Action::UserUpdate),        by!(images::image_set::<UserId>)),
    row(Get,    "/v2/users/{id}/image.png",                   User,         Some(Action::UserRead),          by!(images::image_png::<UserId>)),

    // A user's own notifications need no rank.
    row(Get,    "/v2/notifications",                     User,         None,                            by!(notifications::notification_list)),
    row(Put,    "/v2/notifications",                     User,         None,                            by!(notifications::notifications_update)),
    row(Delete, "/v2/notifications",                     User,         None,                            by!(notifications::notifications_delete)),
    row(Post,   "/v2/notifications/system",              User,         Some(Action::SystemNotificationEmit), by!(notifications::system_notification_emit)),
    row(Get,    "/v2/notifications/{id}",                User,         None,                            by!(notifications::notification_fetch)),
    row(Put,    "/v2/notifications/{id}",                User,         None,                            by!(notifications::notification_update)),

    row(Get,    "/v2/views",                             User,         None,                            by!(views::view_list)),
    row(Post,   "/v2/views",                             User,         None,                            by!(views::view_create)),
    row(Put,    "/v2/views/{id}",                        User,         None,                            by!(views::view_update)),
    row(Delete, "/v2/views/{id}",                        User,         None,                            by!(views::view_delete)),

    row(Get,    "/v2/devices",                           User,         Some(Action::DeviceRead),        by!(devices::device_list)),
    row(Post,   "/v2/devices",                           User,         Some(Action::DeviceCreate),      by!(devices::device_create)),
    row(Get,    "/v2/devices/summary",                   User,         Some(Action::DeviceRead),        by!(devices::device_summary)),
    row(Post,   "/v2/devices/bulk",                      User,         Some(Action::DeviceCreate),      by!(devices::devices_create)),
    row(Get,    "/v2/devices/locations",                 User,         Some(Action::DeviceRead),        by!(locations::device_places)),
    row(Get,    "/v2/devices/locations/clusters",        User,         Some(Action::DeviceRead),        by!(locations::device_clusters)),
    row(Get,    "/v2/devices/{id}",                      UserOrDevice, Some(Action::DeviceRead),        by!(devices::device_fetch)),
    row(Put,    "/v2/devices/{id}",                      User,         Some(Action::DeviceUpdate),      by!(devices::device_update)),
    row(Delete, "/v2/devices/{id}",                      User,         Some(Action::DeviceDelete),      by!(devices::device_delete)),
    row(Patch,  "/v2/devices/{id}/meta",                 User,         Some(Action::DeviceUpdate),      by!(devices::meta_update)),
    row(Post,   "/v2/devices/meta",                      User,         Some(Action::DeviceUpdate),      by!(devices::metas_update)),
    row(Post,   "/v2/devices/{id}/token",                User,         Some(Action::DeviceTokenRotate), by!(devices::device_token_rotate)),
    row(Get,    "/v2/devices/{id}/image",                     User,         Some(Action::DeviceRead),        by!(images::image_posted::<DeviceId>)),
    row(Post,   "/v2/devices/{id}/image",                     User,         Some(Action::DeviceUpdate),      by!(images::device_image_set)),
    row(Delete, "/v2/devices/{id}/image",                     User,         Some(Action::DeviceUpdate),      by!(images::device_image_delete)),
    row(Get,    "/v2/devices/{id}/image.png",                 User,         Some(Action::DeviceRead),        by!(images::image_png::<DeviceId>)),

    row(Get,    "/v2/devices/{id}/data/{elementName}",   User,         Some(Action::DeviceRead),        by!(data::values)),
    row(Get,    "/v2/devices/{id}/data/{elementName}/buckets", UserOrDevice, Some(Action::DeviceRead), by!(buckets::buckets)),
    row(Get,    "/v2/data/buckets",                      User,         Some(Action::DeviceRead),        by!(buckets::fleet_buckets)),
    row(Get,    "/v2/devices/{id}/last/{elementName}",   UserOrDevice, Some(Action::DeviceRead),        by!(data::last_values)),
    row(Get,    "/v2/devices/{id}/storage",              User,         Some(Action::DeviceRead),        by!(data::storage_list)),
    row(Delete, "/v2/devices/{id}/storage",              User,         Some(Action::StorageDelete),     by!(data::storage_delete_all)),
    row(Get,    "/v2/devices/{id}/storage/{elementName}", User,        Some(Action::DeviceRead),        by!(data::storage_fetch)),
    row(Delete, "/v2/devices/{id}/storage/{elementName}", User,        Some(Action::StorageDelete),     by!(data::storage_delete)),

    row(Get,    "/v2/devices/{id}/settings",             UserOrDevice, Some(Action::DeviceRead),        by!(settings::setting_list)),
    row(Delete, "/v2/devices/{id}/settings",             User,         Some(Action::SettingUpdate),     by!(settings::settings_reset)),
    row(Get,    "/v2/devices/{id}/settings/history",     User,         Some(Action::DeviceRead),        by!(settings::setting_history)),
    row(Get,    "/v2/devices/{id}/settings/{settingName}", UserOrDevice, Some(Action::DeviceRead),      by!(settings::setting_fetch)),
    row(Put,    "/v2/devices/{id}/settings/{settingName}", User,       Some(Action::SettingUpdate),     by!(settings::setting_update)),
    row(Delete, "/v2/devices/{id}/settings/{settingName}", User,       Some(Action::SettingUpdate),     by!(settings::setting_reset)),
    row(Post,   "/v2/devices/settings",                  User,         Some(Action::SettingUpdate),     by!(settings::settings_update)),
    row(Post,   "/v2/devices/settings/defaults",         User,         Some(Action::DeviceRead),        by!(settings::setting_defaults)),

    row(Get,    "/v2/alarms",                            User,         Some(Action::AlarmRead),         by!(alarms::alarm_list)),
    row(Get,    "/v2/alarms/summary",                    User,         Some(Action::AlarmRead),         by!(alarms::alarm_summary)),
    row(Get,    "/v2/alarms/{id}",                       User,         Some(Action::AlarmRead),         by!(alarms::alarm_fetch)),
    row(Put,    "/v2/alarms/{id}",                       User,         Some(Action::AlarmUpdate),       by!(alarms::alarm_update)),

    row(Get,    "/v2/devices/{deviceId}/events",         User,         Some(Action::DeviceRead),        by!(events::history)),
    row(Get,    "/v2/devices/{deviceId}/events/{id}",    User,         Some(Action::DeviceRead),        by!(events::history_event)),

    MAIN_ROAD,
    row(Post,   "/v2/events/device/batch",               UserOrDevice, Some(Action::DeviceEventCreate), by!(event_batches::device_events_create)),
    row(Post,   "/v2/events/integrations",               ApiKey,       Some(Action::WebhookReceive),    by!(webhook::webhook_receive)),
    row(Get,    "/v2/events/cloud",                      UserOrDevice, Some(Action::CloudEventRead),    by!(events::cloud_events)),
    row(Post,   "/v2/events/cloud",                      User,         Some(Action::CloudEventCreate),  by!(events::cloud_event_send)),
    row(Get,    "/v2/events/cloud/next",                 UserOrDevice, Some(Action::CloudEventRead),    by!(events::cloud_event_next)),
    row(Delete, "/v2/events/cloud/{id}",                 UserOrDevice, Some(Action::CloudEventRead),    by!(events::cloud_event_delete)),
    row(Get,    "/v2/events/stream",                     User,         Some(Action::DeviceRead),        by!(events::event_stream)),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn operations_are_unique() {
        let mut seen = HashSet::new();
        assert!(table().iter().all(|row| seen.insert((row.method.name(), row.path))));
        let mut names = HashSet::new();
        assert!(table().iter().all(|row| names.insert(row.name)), "two operations have one name");
    }

    #[test]
    fn route_without_credentials_has_no_action() {
        for row in table() {
            let user = matches!(row.access, User | UserOrDevice | ApiKey);
            assert!(user || row.action.is_none(), "{} {}", row.method.name(), row.path);
        }
    }
}
