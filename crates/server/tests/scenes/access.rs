//! Every operation refuses whom it should: a table over every route.

use std::collections::HashMap;

use isobar_http::{Entry, RouteRow, table};
use isobar_model::ids::DeviceId;
use isobar_model::role::Role;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::images::TINY_PNG;
use crate::support::app::{new_user, with_json};
use crate::support::person::text;
use crate::support::{Answer, Device, NOBODY, Person, TestApp};

/// How one operation is called.
#[derive(Clone)]
pub struct Case {
    /// Its path, with names in it.
    pub path: String,
    pub body: Option<Value>,
    /// Whether the body is a text, sent as such.
    is_text: bool,
    /// What somebody hears from whom the named thing is hidden; none: it names nothing.
    pub hidden: Option<u16>,
    /// What somebody hears whose role is high enough.
    pub success: u16,
}

fn case(path: &str, body: Option<Value>, success: u16) -> Case {
    let names = path.split(['/', '?', '=', '&']).any(|part| part.parse::<DeviceId>().is_ok());
    let hidden = names.then_some(404);
    Case { path: path.to_owned(), body, is_text: false, hidden, success }
}

/// The case of an image of something that has one.
fn case_of_image(row: &RouteRow, owner: &str) -> Case {
    let body = (row.method.name() == "POST").then(|| json!(TINY_PNG));
    let is_device = row.path.starts_with("/v2/devices");
    let success = if is_device && row.method.name() != "GET" { 204 } else { 200 };
    Case { is_text: true, ..case(&row.path.replace("{id}", owner), body, success) }
}

/// What paths and bodies can name.
pub struct Things<'a> {
    pub fridge: Device<'a>,
    /// It has a setting, `limit`.
    thermostat: Device<'a>,
    project: String,
    organization: String,
    /// An organization that nothing hangs on, and a project that no device uses.
    empty: String,
    unused: String,
    /// A user of the lowest rank, and a key of its own.
    user: String,
    key: String,
    /// A user whom nobody misses.
    leaver: String,
    event: String,
    cloud_event: String,
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
        let user = user.id.clone();
        Self { fridge, thermostat, project, organization, empty, unused, user, key, leaver, event, cloud_event }
    }

    /// What a path may begin with: the things themselves, not their parts.
    pub fn ids(&self) -> [&str; 8] {
        let Self { fridge, thermostat, project, organization, empty, unused, user, leaver, .. } = self;
        [&fridge.id, &thermostat.id, project, organization, empty, unused, user, leaver]
    }

    /// The case of a row. A row without one fails the scene.
    pub fn case(&self, row: &RouteRow) -> Case {
        let Self { fridge, thermostat, project, organization, empty, unused, user, key, leaver, event, cloud_event } =
            self;
        let device = &fridge.id;
        let new_device = json!({"name": "new", "projectUuid": project});
        let own = |rest: &str| format!("/v2/devices/{device}{rest}");
        let named = |body: &str| Some(json!({"name": body}));
        let everything = |path: &str| format!("{path}?to=2100-01-01T00:00:00Z");
        match (row.method.name(), row.path) {
            ("GET", "/health/live" | "/health/ready" | "/metrics" | "/v2/spec" | "/v2/docs") => {
                case(row.path, None, 200)
            }
            ("POST", "/v2/auth/register") => case(row.path, Some(new_user(&format!("r{device}"), "basicUser")), 201),
            ("POST", "/v2/auth/login") => {
                let body = json!({"usernameOrEmail": "ana", "password": "secret of ana"});
                case(row.path, Some(body), 201)
            }
            ("POST", "/v2/auth/logout") => case(row.path, None, 204),
            ("GET", "/v2/auth/refreshToken") => case(row.path, None, 201),
            ("GET", "/v2/auth/user") => case(row.path, None, 200),
            ("GET", "/v2/auth/verify") => case(&format!("{}?emailOrUsername=ana", row.path), None, 204),
            // Whoever has the link is let in: there are no credentials beside it.
            ("GET", "/v2/auth/verify/{nonce}") => case("/v2/auth/verify/rubbish", None, 404),
            ("POST", "/v2/auth/forgot") => case(row.path, Some(json!({"emailOrUsername": "ana"})), 204),
            ("POST", "/v2/auth/reset") => {
                let body = json!({"token": "x", "password": "new secret", "passwordConfirmation": "new secret"});
                case(row.path, Some(body), 400)
            }
            ("GET", "/v2/organizations") => case(&format!("{}?parentId={organization}", row.path), None, 200),
            ("POST", "/v2/organizations") => case(row.path, named("new"), 201),
            ("GET", "/v2/organizations/{id}") => case(&format!("/v2/organizations/{organization}"), None, 200),
            ("PUT", "/v2/organizations/{id}") => {
                case(&format!("/v2/organizations/{organization}"), named("renamed"), 200)
            }
            ("DELETE", "/v2/organizations/{id}") => case(&format!("/v2/organizations/{empty}"), None, 204),
            ("GET", path @ "/v2/organizations/{id}/usage") => case(&path.replace("{id}", organization), None, 200),
            (
                "GET",
                path @ ("/v2/organizations/{id}/branding"
                | "/v2/organizations/{id}/dashboard"
                | "/v2/organizations/{id}/deviceTable"),
            ) => case(&path.replace("{id}", organization), None, 200),
            ("PUT", path @ "/v2/organizations/{id}/branding") => {
                case(&path.replace("{id}", organization), Some(json!({"companyName": "Cold"})), 200)
            }
            ("PUT", path @ "/v2/organizations/{id}/dashboard") => {
                case(&path.replace("{id}", organization), Some(json!({"configuration": {}})), 200)
            }
            ("PUT", path @ "/v2/organizations/{id}/deviceTable") => {
                let body = json!({"organizationId": organization, "columns": []});
                case(&path.replace("{id}", organization), Some(body), 200)
            }
            ("DELETE", path @ "/v2/organizations/{id}/deviceTable") => {
                case(&path.replace("{id}", organization), None, 200)
            }
            ("GET", "/v2/projects" | "/v2/users" | "/v2/devices") => {
                case(&format!("{}?organizationId={organization}", row.path), None, 200)
            }
            ("POST", "/v2/projects") => case(row.path, named("new"), 201),
            ("GET", "/v2/projects/{id}") => case(&format!("/v2/projects/{project}"), None, 200),
            ("PUT", "/v2/projects/{id}") => case(&format!("/v2/projects/{project}"), named("renamed"), 200),
            ("DELETE", "/v2/projects/{id}") => case(&format!("/v2/projects/{unused}"), None, 204),
            ("GET", "/v2/projects/{id}/specification") => {
                case(&format!("/v2/projects/{project}/specification"), None, 200)
            }
            ("PUT", "/v2/projects/{id}/specification") => {
                case(&format!("/v2/projects/{project}/specification"), named("designed"), 200)
            }
            ("POST", "/v2/projects/{id}/specification/test") => {
                let body = json!({"elementName": "reading", "payload": {"temp": 4}});
                case(&format!("/v2/projects/{project}/specification/test"), Some(body), 200)
            }
            ("POST", "/v2/users") => {
                case(row.path, Some(new_user(&format!("u{}{device}", row.method.name()), "basicUser")), 201)
            }
            ("GET", "/v2/users/{id}") => case(&format!("/v2/users/{user}"), None, 200),
            ("PUT", "/v2/users/{id}") => {
                case(&format!("/v2/users/{user}"), Some(json!({"role": "basicUser", "company": "Acme"})), 200)
            }
            ("DELETE", "/v2/users/{id}") => case(&format!("/v2/users/{leaver}"), None, 204),
            ("GET", "/v2/users/{id}/apiKeys") => case(&format!("/v2/users/{user}/apiKeys"), None, 200),
            ("POST", "/v2/users/{id}/apiKeys") => case(&format!("/v2/users/{user}/apiKeys"), named("key"), 201),
            ("DELETE", "/v2/users/{id}/apiKeys/{keyId}") => case(&format!("/v2/users/{user}/apiKeys/{key}"), None, 204),
            ("GET", "/v2/notifications") => case(row.path, None, 200),
            ("PUT", "/v2/notifications") => case(&everything(row.path), Some(json!({"read": true})), 200),
            ("DELETE", "/v2/notifications") => case(&everything(row.path), None, 200),
            ("POST", "/v2/notifications/system") => case(row.path, Some(json!({"message": "hello"})), 201),
            // Each user has its own, and nobody has this one.
            ("GET", "/v2/notifications/{id}") => case(&format!("/v2/notifications/{NOBODY}"), None, 404),
            ("PUT", "/v2/notifications/{id}") => {
                case(&format!("/v2/notifications/{NOBODY}"), Some(json!({"read": true})), 404)
            }
            (_, "/v2/organizations/{id}/image" | "/v2/organizations/{id}/image.png") => {
                case_of_image(row, organization)
            }
            (_, "/v2/projects/{id}/image" | "/v2/projects/{id}/image.png") => case_of_image(row, project),
            (_, "/v2/users/{id}/image" | "/v2/users/{id}/image.png") => case_of_image(row, user),
            (_, "/v2/devices/{id}/image" | "/v2/devices/{id}/image.png") => case_of_image(row, device),
            ("GET", "/v2/devices/locations") => case(&format!("{}?organizationId={organization}", row.path), None, 200),
            ("POST", "/v2/devices") => case(row.path, Some(new_device), 201),
            ("GET", "/v2/devices/{id}") => case(&own(""), None, 200),
            ("PUT", "/v2/devices/{id}") => case(&own(""), Some(new_device), 200),
            ("DELETE", "/v2/devices/{id}") => case(&own(""), None, 204),
            ("POST", "/v2/devices/{id}/token") => case(&own("/token"), None, 201),
            ("GET", "/v2/devices/{id}/data/{elementName}") => case(&own("/data/reading"), None, 200),
            ("GET", "/v2/devices/{id}/last/{elementName}") => case(&own("/last/reading"), None, 200),
            ("GET", "/v2/devices/{id}/storage") => case(&own("/storage"), None, 200),
            ("DELETE", "/v2/devices/{id}/storage") => case(&own("/storage"), None, 204),
            ("GET", "/v2/devices/{id}/storage/{elementName}") => case(&own("/storage/reading"), None, 200),
            ("DELETE", "/v2/devices/{id}/storage/{elementName}") => case(&own("/storage/reading"), None, 204),
            ("GET" | "DELETE", "/v2/devices/{id}/settings") => {
                case(&thermostat.at("settings"), None, if row.method.name() == "GET" { 200 } else { 204 })
            }
            ("GET", "/v2/devices/{id}/settings/history") => case(&thermostat.at("settings/history"), None, 200),
            ("GET", "/v2/devices/{id}/settings/{settingName}") => case(&thermostat.at("settings/limit"), None, 200),
            ("PUT", "/v2/devices/{id}/settings/{settingName}") => {
                case(&thermostat.at("settings/limit"), Some(json!(4)), 200)
            }
            ("DELETE", "/v2/devices/{id}/settings/{settingName}") => case(&thermostat.at("settings/limit"), None, 204),
            ("POST", "/v2/devices/settings") => {
                case(row.path, Some(json!([{"deviceId": thermostat.id, "name": "limit", "value": 5}])), 200)
            }
            ("POST", "/v2/devices/settings/defaults") => case(row.path, Some(json!([thermostat.id])), 200),
            ("GET", "/v2/devices/{deviceId}/events") => case(&own("/events"), None, 200),
            ("GET", "/v2/devices/{deviceId}/events/{id}") => case(&own(&format!("/events/{event}")), None, 200),
            ("POST", "/v2/events/device") => {
                // The one operation that lists no 404: what is out of reach is a fault of the parameters.
                Case { hidden: Some(400), ..case(&fridge.door("reading"), Some(json!({"temp": 4})), 201) }
            }
            ("POST", "/v2/events/integrations") => {
                // What is out of reach is a fault of the parameters here too.
                let path = format!(
                    "{}?organizationId={organization}&deviceTag=eui&deviceTagValue=1&projectUuid={project}",
                    row.path
                );
                Case { hidden: Some(400), ..case(&path, Some(json!({"temp": 4})), 200) }
            }
            ("GET", "/v2/events/cloud") => case(&fridge.queue(), None, 200),
            ("POST", "/v2/events/cloud") => case(&format!("{}&elementName=alarm", fridge.queue()), Some(json!(2)), 201),
            ("GET", "/v2/events/cloud/next") => {
                case(&format!("/v2/events/cloud/next?deviceId={device}&peek=true"), None, 200)
            }
            ("DELETE", "/v2/events/cloud/{id}") => {
                case(&format!("/v2/events/cloud/{cloud_event}?deviceId={device}"), None, 204)
            }
            ("GET", "/v2/events/stream") => case(&format!("/v2/events/stream?deviceId={device}"), None, 200),
            (method, path) => panic!("{method} {path} has no case: say how it refuses"),
        }
    }
}

/// One user of every role in one organization, and a stranger in another.
struct Cast<'a> {
    by_role: HashMap<Role, Person<'a>>,
    stranger: Person<'a>,
}

impl<'a> Cast<'a> {
    async fn of(ana: &Person<'a>) -> Self {
        let mut by_role = HashMap::new();
        for role in &Role::ALL[..5] {
            by_role.insert(*role, ana.invites(role.name(), role.name()).await);
        }
        by_role.insert(Role::SystemAdmin, ana.app.admin().await);
        Self { by_role, stranger: ana.app.stranger("bob").await }
    }

    fn just_below(&self, role: Role) -> Option<&Person<'a>> {
        Role::ALL.iter().rev().find(|lower| **lower < role).map(|lower| &self.by_role[lower])
    }
}

/// The request of a case, without credentials.
pub fn request(app: &TestApp, row: &RouteRow, case: &Case) -> RequestBuilder {
    let method: Method = row.method.name().parse().unwrap();
    let request = app.request(method, &case.path);
    match &case.body {
        Some(Value::String(text)) if case.is_text => request.header("content-type", "text/plain").body(text.clone()),
        body => body.iter().fold(request, with_json),
    }
}

/// Whether a user calls it, by whatever credentials.
fn is_a_users(row: &RouteRow) -> bool {
    matches!(row.entry, Entry::User | Entry::UserOrDevice | Entry::ApiKey)
}

/// The request with credentials of a person that the operation takes.
async fn with_credentials(request: RequestBuilder, row: &RouteRow, person: &Person<'_>) -> RequestBuilder {
    match row.entry {
        Entry::ApiKey => request.header("api_auth_token", person.makes_api_key("for the webhook").await),
        _ => request.bearer_auth(&person.jwt),
    }
}

/// The status of an answer, read to its end unless it is a success, which may have none.
pub async fn status(request: RequestBuilder) -> u16 {
    let (client, request) = request.build_split();
    let request = request.unwrap();
    let question = format!("{} {}", request.method(), request.url());
    let response = client.execute(request).await.unwrap();
    if response.status().is_success() {
        return response.status().as_u16();
    }
    Answer::of(question, response).await.status.as_u16()
}

/// What an operation is called when it fails a scene.
pub fn name(row: &RouteRow) -> String {
    format!("{} {}", row.method.name(), row.path)
}

#[tokio::test]
async fn without_credentials_or_with_bad_ones_nothing_is_told() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let user = ana.invites("user", "basicUser").await;
    let things = Things::made_by(&ana, &user).await;
    for row in table() {
        let case = things.case(&row);
        let ask = || request(&app, &row, &case);
        let open = matches!(row.entry, Entry::Probe | Entry::Open | Entry::Optional);
        assert_eq!(status(ask()).await, if open { case.success } else { 401 }, "{}", name(&row));
        if open {
            continue;
        }
        let mut rubbish = vec![
            ask().bearer_auth("rubbish"),
            ask().header("authorization", "Basic YTpi"),
            ask().header("api_auth_token", "rubbish"),
            ask().header("authorization", "rubbish"),
            ask().header("cloud", "rubbish"),
            // The first credential that is present decides.
            ask().bearer_auth(&ana.jwt).header("cloud", "rubbish"),
        ];
        if !matches!(row.entry, Entry::UserOrDevice) {
            rubbish.push(ask().header("cloud", &things.fridge.token));
        }
        if matches!(row.entry, Entry::Cookie | Entry::ApiKey) {
            rubbish.push(ask().bearer_auth(&ana.jwt));
        } else {
            rubbish.push(ask().bearer_auth(&things.fridge.token));
        }
        if is_a_users(&row) {
            rubbish.push(ask().header("cookie", &ana.cookie));
        } else {
            rubbish.push(ask().header("cookie", "refreshToken=rubbish"));
        }
        for (index, rubbish) in rubbish.into_iter().enumerate() {
            assert_eq!(status(rubbish).await, 401, "{} with bad credential {index}", name(&row));
        }
    }
}

#[tokio::test]
async fn a_role_too_low_is_forbidden_and_one_that_is_high_enough_is_not() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let user = ana.invites("user", "basicUser").await;
    let cast = Cast::of(&ana).await;
    for row in table() {
        let Some(action) = row.action else { continue };
        let things = Things::made_by(&ana, &user).await;
        let case = things.case(&row);
        let as_person = async |person: &Person<'_>| with_credentials(request(&app, &row, &case), &row, person).await;
        if let Some(too_low) = cast.just_below(action.minimum_role()) {
            assert_eq!(status(as_person(too_low).await).await, 403, "{} below its role", name(&row));
        }
        let enough = as_person(&cast.by_role[&action.minimum_role()]).await;
        assert_eq!(status(enough).await, case.success, "{} with its role", name(&row));
    }
}

#[tokio::test]
async fn what_belongs_to_a_sibling_organization_does_not_exist() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let user = ana.invites("user", "basicUser").await;
    let cast = Cast::of(&ana).await;
    let things = Things::made_by(&ana, &user).await;
    for row in table() {
        let case = things.case(&row);
        let (Some(hidden), true) = (case.hidden, is_a_users(&row)) else { continue };
        let asked = with_credentials(request(&app, &row, &case), &row, &cast.stranger).await;
        assert_eq!(status(asked).await, hidden, "{} from a sibling", name(&row));
    }
    // Nothing came of it.
    ana.get(&things.fridge.at("data/reading")).await.ok();
    assert_eq!(ana.get(&things.fridge.url()).await.ok()["name"], "fridge");
}

#[tokio::test]
async fn what_does_not_exist_and_what_is_hidden_look_the_same() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let fridge = ana.creates_device("fridge").await;
    let project = ana.project().await;
    for (kind, id) in [
        ("devices", fridge.id.as_str()),
        ("projects", project),
        ("users", ana.id.as_str()),
        ("organizations", ana.organization.as_str()),
    ] {
        let hidden = bob.get(&format!("/v2/{kind}/{id}")).await.is(404);
        let missing = bob.get(&format!("/v2/{kind}/{NOBODY}")).await.is(404);
        assert_eq!(hidden.text, missing.text);
        bob.get(&format!("/v2/{kind}/not-an-id")).await.not_found();
    }
}

#[tokio::test]
async fn the_thing_comes_before_the_role_and_the_role_before_the_body() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let admin = app.admin().await;
    let user = ana.invites("user", "basicUser").await;
    let things = Things::made_by(&ana, &user).await;
    for row in table().into_iter().filter(is_a_users) {
        let mut case = things.case(&row);
        case.body = case.body.map(|_| json!("no object, and no null"));
        let is_event = row.path.starts_with("/v2/events/");
        let Some(action) = row.action.filter(|_| case.body.is_some() && !is_event) else { continue };
        if action.minimum_role() > Role::BasicUser && !row.path.starts_with("/v2/users/{id}") {
            let refused = request(&app, &row, &case).bearer_auth(&user.jwt);
            assert_eq!(status(refused).await, 403, "{} tells its faults", name(&row));
        }
        let enough = if action.minimum_role() > Role::Developer { &admin.jwt } else { &ana.jwt };
        let refused = request(&app, &row, &case).bearer_auth(enough);
        assert_eq!(status(refused).await, 400, "{} takes anything", name(&row));
    }
}

/// The contract's own list of who may call what, by method and path: what a route says of itself is held against it.
#[test]
fn the_table_of_routes() {
    let line = |row: RouteRow| {
        let role = row.action.map_or("-", |action| action.minimum_role().name());
        format!("{:<6} {:<46} {:<12} {role}", row.method.name(), row.path, format!("{:?}", row.entry))
    };
    insta::assert_snapshot!(table().into_iter().map(line).collect::<Vec<_>>().join("\n"));
}

#[test]
fn the_table_of_roles() {
    insta::assert_snapshot!(isobar_model::access::table());
}
