//! Defines how each operation is called: a case for every route, and the resources that the cases name. The case of an
//! ordinary operation is derived from the OpenAPI document.

use isobar_http::{RouteRow, Verb};
use isobar_model::ids::DeviceId;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::images::TINY_PNG;
use crate::support::app::{new_user, with_json};
use crate::support::document::DOCUMENT;
use crate::support::person::text;
use crate::support::{Device, NOBODY, Person, TestApp};

/// A call of one operation.
#[derive(Clone)]
pub struct Case {
    /// Its path, with names in it.
    pub path: String,
    pub body: Option<Value>,
    /// True if the body is sent as plain text.
    is_text: bool,
    /// The status for a caller from whom the named resource is hidden; `None` if the path names none.
    pub hidden: Option<u16>,
    /// The status for a caller whose role is high enough.
    pub success: u16,
}

fn case(path: &str, body: Option<Value>, success: u16) -> Case {
    let names = path.split(['/', '?', '=', '&']).any(|part| part.parse::<DeviceId>().is_ok());
    let hidden = names.then_some(404);
    Case { path: path.to_owned(), body, is_text: false, hidden, success }
}

/// Returns a body that has only a name.
fn named(name: &str) -> Option<Value> {
    Some(json!({"name": name}))
}

/// Returns the cases of notifications, which cover all of them.
fn of_notifications(row: &RouteRow) -> Option<Case> {
    let body = match (row.method.name(), row.path) {
        ("PUT", "/v2/notifications") => Some(json!({"read": true})),
        ("DELETE", "/v2/notifications") => None,
        _ => return None,
    };
    Some(case(&format!("{}?to=2100-01-01T00:00:00Z", row.path), body, 200))
}

/// Returns the case of posting an image of a resource.
fn case_of_image(row: &RouteRow, owner: &str) -> Case {
    let success = if row.path.starts_with("/v2/devices") { 204 } else { 200 };
    Case { is_text: true, ..case(&row.path.replace("{id}", owner), Some(json!(TINY_PNG)), success) }
}

/// Returns the first noun of a path.
fn noun(row: &RouteRow) -> &'static str {
    row.path.trim_start_matches("/v2").split('/').nth(1).unwrap_or_default()
}

/// The resources that paths and bodies can name.
pub struct Things<'a> {
    pub fridge: Device<'a>,
    /// A device with a setting, `limit`.
    thermostat: Device<'a>,
    project: String,
    organization: String,
    /// An empty organization, and a project without devices.
    empty: String,
    unused: String,
    /// A dashboard of the organization, and a link of it.
    board: String,
    link: String,
    /// A user of the lowest rank, and a key of its own.
    user: String,
    key: String,
    /// A user that no other case needs.
    leaver: String,
    event: String,
    cloud_event: String,
    alarm: String,
}

impl<'a> Things<'a> {
    pub async fn made_by(ana: &Person<'a>, user: &Person<'a>) -> Self {
        let fridge = ana.creates_device("fridge").await;
        let event = text(&fridge.posts("reading", json!({"temp": 9.1})).await.created(), "id").to_owned();
        let cloud_event = fridge.queues("alarm", json!(1)).await;
        let keys = format!("/v2/users/{}/apiKeys", user.id);
        let key = text(&user.post(&keys, json!({"name": "own"})).await.created(), "id").to_owned();
        for owner in [format!("users/{}", user.id), format!("devices/{}", fridge.id)] {
            ana.post_plain(&format!("/v2/{owner}/image"), TINY_PNG).await;
        }
        for owner in [format!("organizations/{}", ana.organization), format!("projects/{}", ana.project().await)] {
            ana.post_plain(&format!("/v2/{owner}/image"), TINY_PNG).await.is(200);
        }
        let leaver = new_user(&format!("l{}", fridge.id), "basicUser");
        let leaver = text(&ana.post("/v2/users", leaver).await.created(), "id").to_owned();
        let (project, organization) = (ana.project().await.to_owned(), ana.organization.clone());
        let limit = json!({"type": "deviceSetting", "properties": {"inputType": "number"}});
        let thermostat = ana.creates_device_of(&ana.designs(json!({"limit": limit})).await, "thermostat").await;
        let (empty, unused) = (ana.founds("empty", &organization).await, ana.creates_project("unused").await);
        let oven = ana.creates_device_of(&ana.designs(crate::alarms::raising()).await, "oven").await;
        let alarm = text(&crate::alarms::raises(ana, &oven, "warm", "door").await, "id").to_owned();
        let boards = format!("/v2/organizations/{organization}/dashboards");
        let board = text(&ana.post(&boards, json!({"configuration": {}})).await.created(), "id").to_owned();
        let links = crate::board_links::links(&organization, &board);
        let link = json!({"name": "hall", "expiresAt": crate::board_links::LATER});
        let link = text(&ana.post(&links, link).await.created(), "id").to_owned();
        let user = user.id.clone();
        Self {
            fridge,
            thermostat,
            project,
            organization,
            empty,
            unused,
            board,
            link,
            user,
            key,
            leaver,
            event,
            cloud_event,
            alarm,
        }
    }

    /// Returns the identifiers at which a path may begin: those of resources, not of their parts.
    pub fn ids(&self) -> [&str; 9] {
        let Self { fridge, thermostat, project, organization, empty, unused, user, leaver, alarm, .. } = self;
        [&fridge.id, &thermostat.id, project, organization, empty, unused, user, leaver, alarm]
    }

    /// Returns the case of a row: its own, or a derived one.
    pub fn case(&self, row: &RouteRow) -> Case {
        let special = match noun(row) {
            "auth" => self.of_auth(row),
            "organizations" => self.of_organizations(row),
            "projects" => self.of_projects(row),
            "users" => self.of_users(row),
            "notifications" => of_notifications(row),
            "devices" => self.of_devices(row).or_else(|| self.of_settings(row)),
            "data" => Some(case(
                &format!("{}?elementName=reading&fields=payload.temp&deviceIds={}", row.path, self.fridge.id),
                None,
                200,
            )),
            "events" => self.of_events(row),
            _ => None,
        };
        special.unwrap_or_else(|| self.derived(row))
    }

    /// Derives the case of a row from the document: the body is its example, the answer its success, and a list is that
    /// of the organization. A resource that belongs to a single user is not found.
    fn derived(&self, row: &RouteRow) -> Case {
        let operation = &DOCUMENT["paths"][row.path][row.method.name().to_lowercase()];
        let statuses =
            operation["responses"].as_object().unwrap().keys().filter_map(|status| status.parse::<u16>().ok());
        let success = statuses.filter(|status| (200..300).contains(status)).min();
        let success = success.unwrap_or_else(|| panic!("{} has no success: say how it is called", name(row)));
        let body = operation["requestBody"]["content"].as_object().and_then(|content| content.values().next());
        let owner = self.owner(row);
        let mut path = row.path.replace("/events/{id}", &format!("/events/{}", self.event));
        for (part, value) in [
            ("{id}", owner),
            ("{deviceId}", owner),
            ("{dashboardId}", self.board.as_str()),
            ("{linkId}", self.link.as_str()),
            ("{keyId}", self.key.as_str()),
            // Every project has a first version.
            ("{number}", "1"),
            ("{elementName}", "reading"),
            ("{settingName}", "limit"),
        ] {
            path = path.replace(part, value);
        }
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let mut names = parameters.filter_map(|parameter| parameter["name"].as_str());
        let of_whom = names.find(|name| ["organizationId", "parentId"].contains(name));
        if let Some(parameter) = of_whom.filter(|_| row.method == Verb::Get) {
            path = format!("{path}?{parameter}={}", self.organization);
        }
        let success = if path.contains(NOBODY) { 404 } else { success };
        case(&path, body.map(|media| media["example"].clone()), success)
    }

    /// Returns the owner in the path of a row.
    fn owner(&self, row: &RouteRow) -> &str {
        match noun(row) {
            "organizations" => &self.organization,
            "projects" => &self.project,
            "users" => &self.user,
            "alarms" => &self.alarm,
            "devices" if row.path.contains("/settings") => &self.thermostat.id,
            "devices" => &self.fridge.id,
            _ => NOBODY,
        }
    }

    fn of_auth(&self, row: &RouteRow) -> Option<Case> {
        let (body, success) = match (row.method.name(), row.path) {
            ("POST", "/v2/auth/register") => (Some(new_user(&format!("r{}", self.fridge.id), "basicUser")), 201),
            ("POST", "/v2/auth/login") => (Some(json!({"usernameOrEmail": "ana", "password": "secret of ana"})), 201),
            ("GET", "/v2/auth/verify") => return Some(case(&format!("{}?emailOrUsername=ana", row.path), None, 204)),
            // The link itself is the credential.
            ("GET", "/v2/auth/verify/{nonce}") => return Some(case("/v2/auth/verify/rubbish", None, 404)),
            ("POST", "/v2/auth/forgot") => (Some(json!({"emailOrUsername": "ana"})), 204),
            ("POST", "/v2/auth/reset") => {
                (Some(json!({"token": "x", "password": "new secret", "passwordConfirmation": "new secret"})), 400)
            }
            _ => return None,
        };
        Some(case(row.path, body, success))
    }

    fn of_organizations(&self, row: &RouteRow) -> Option<Case> {
        let Self { organization, empty, board, .. } = self;
        let (body, success) = match (row.method.name(), row.path) {
            ("POST", "/v2/organizations") => (named("new"), 201),
            ("PUT", "/v2/organizations/{id}") => (named("renamed"), 200),
            ("DELETE", path @ "/v2/organizations/{id}") => return Some(case(&path.replace("{id}", empty), None, 204)),
            ("POST", "/v2/organizations/{id}/image") => return Some(case_of_image(row, organization)),
            ("PUT", "/v2/organizations/{id}/branding") => (Some(json!({"companyName": "Cold"})), 200),
            ("PUT", "/v2/organizations/{id}/dashboard" | "/v2/organizations/{id}/dashboards/{dashboardId}") => {
                (Some(json!({"configuration": {}})), 200)
            }
            ("POST", "/v2/organizations/{id}/dashboards") => (Some(json!({"configuration": {}})), 201),
            ("POST", "/v2/organizations/{id}/dashboards/{dashboardId}/links") => {
                (Some(json!({"name": "door", "expiresAt": crate::board_links::LATER})), 201)
            }
            ("PUT", "/v2/organizations/{id}/deviceTable") => {
                (Some(json!({"organizationId": organization, "columns": []})), 200)
            }
            _ => return None,
        };
        Some(case(&row.path.replace("{id}", organization).replace("{dashboardId}", board), body, success))
    }

    fn of_projects(&self, row: &RouteRow) -> Option<Case> {
        let Self { project, unused, .. } = self;
        let (body, success) = match (row.method.name(), row.path) {
            ("POST", "/v2/projects") => (named("new"), 201),
            ("PUT", "/v2/projects/{id}") => (named("renamed"), 200),
            ("DELETE", path @ "/v2/projects/{id}") => return Some(case(&path.replace("{id}", unused), None, 204)),
            ("PUT", "/v2/projects/{id}/specification") => (named("designed"), 200),
            ("POST", "/v2/projects/{id}/specification/test") => {
                (Some(json!({"elementName": "reading", "payload": {"temp": 4}})), 200)
            }
            ("POST", "/v2/projects/{id}/image") => return Some(case_of_image(row, project)),
            _ => return None,
        };
        Some(case(&row.path.replace("{id}", project), body, success))
    }

    fn of_users(&self, row: &RouteRow) -> Option<Case> {
        let Self { fridge, user, leaver, .. } = self;
        let (body, success) = match (row.method.name(), row.path) {
            ("POST", "/v2/users") => (Some(new_user(&format!("u{}", fridge.id), "basicUser")), 201),
            ("PUT", "/v2/users/{id}") => (Some(json!({"role": "basicUser", "company": "Acme"})), 200),
            ("DELETE", path @ "/v2/users/{id}") => return Some(case(&path.replace("{id}", leaver), None, 204)),
            ("POST", "/v2/users/{id}/apiKeys") => (named("key"), 201),
            ("POST", "/v2/users/{id}/image") => return Some(case_of_image(row, user)),
            _ => return None,
        };
        Some(case(&row.path.replace("{id}", user), body, success))
    }

    fn of_devices(&self, row: &RouteRow) -> Option<Case> {
        let Self { fridge, organization, project, .. } = self;
        let new_device = || Some(json!({"name": "new", "projectUuid": project}));
        let (body, success) = match (row.method.name(), row.path) {
            ("GET", "/v2/devices/locations/clusters") => {
                return Some(case(&format!("{}?cellSize=10&organizationId={organization}", row.path), None, 200));
            }
            ("POST", "/v2/devices") => (new_device(), 201),
            ("POST", "/v2/devices/bulk") => (Some(json!([new_device()])), 200),
            ("PUT", "/v2/devices/{id}") => (new_device(), 200),
            ("PATCH", "/v2/devices/{id}/meta") => (Some(json!({"room": "cellar"})), 200),
            ("POST", "/v2/devices/meta") => (Some(json!([{"deviceId": fridge.id, "meta": {"room": "cellar"}}])), 200),
            ("POST", "/v2/devices/{id}/image") => return Some(case_of_image(row, &fridge.id)),
            ("GET", path @ "/v2/devices/{id}/data/{elementName}/buckets") => {
                let path = path.replace("{id}", &fridge.id).replace("{elementName}", "reading");
                return Some(case(&format!("{path}?fields=payload.temp"), None, 200));
            }
            _ => return None,
        };
        Some(case(&row.path.replace("{id}", &fridge.id), body, success))
    }

    fn of_settings(&self, row: &RouteRow) -> Option<Case> {
        let thermostat = &self.thermostat.id;
        let (body, success) = match (row.method.name(), row.path) {
            ("PUT", "/v2/devices/{id}/settings/{settingName}") => (Some(json!(4)), 200),
            ("POST", "/v2/devices/settings") => {
                (Some(json!([{"deviceId": thermostat, "name": "limit", "value": 5}])), 200)
            }
            ("POST", "/v2/devices/settings/defaults") => (Some(json!([thermostat])), 200),
            _ => return None,
        };
        Some(case(&row.path.replace("{id}", thermostat).replace("{settingName}", "limit"), body, success))
    }

    fn of_events(&self, row: &RouteRow) -> Option<Case> {
        let Self { fridge, project, organization, cloud_event, .. } = self;
        let device = &fridge.id;
        Some(match (row.method.name(), row.path) {
            ("POST", "/v2/events/device") => {
                // The one operation without 404: a hidden device is a fault of the parameters.
                Case { hidden: Some(400), ..case(&fridge.door("reading"), Some(json!({"temp": 4})), 201) }
            }
            ("POST", path @ "/v2/events/device/batch") => {
                // A hidden device is an error of its item.
                case(path, Some(json!([{"deviceId": device, "elementName": "reading", "payload": {"temp": 4}}])), 200)
            }
            ("POST", "/v2/events/integrations") => {
                // A hidden device is a fault of the parameters here too.
                let path = format!(
                    "{}?organizationId={organization}&deviceTag=eui&deviceTagValue=1&projectUuid={project}",
                    row.path
                );
                Case { hidden: Some(400), ..case(&path, Some(json!({"temp": 4})), 200) }
            }
            ("GET", "/v2/events/cloud") => case(&fridge.queue(), None, 200),
            ("POST", "/v2/events/cloud") => case(&format!("{}&elementName=alarm", fridge.queue()), Some(json!(2)), 201),
            ("GET", path @ "/v2/events/cloud/next") => case(&format!("{path}?deviceId={device}&peek=true"), None, 200),
            ("DELETE", path @ "/v2/events/cloud/{id}") => {
                case(&format!("{}?deviceId={device}", path.replace("{id}", cloud_event)), None, 204)
            }
            ("GET", path @ "/v2/events/stream") => case(&format!("{path}?deviceId={device}"), None, 200),
            _ => return None,
        })
    }
}

/// Returns the request of a case, without credentials.
pub fn request(app: &TestApp, row: &RouteRow, case: &Case) -> RequestBuilder {
    let method: Method = row.method.name().parse().unwrap();
    let request = app.request(method, &case.path);
    match &case.body {
        Some(Value::String(text)) if case.is_text => request.header("content-type", "text/plain").body(text.clone()),
        body => body.iter().fold(request, with_json),
    }
}

/// Returns the name of an operation for a failed scene.
pub fn name(row: &RouteRow) -> String {
    format!("{} {}", row.method.name(), row.path)
}
