//! Access: a table over every route checks who is refused.

use std::collections::HashMap;

use isobar_http::{RouteAccess, RouteRow, Verb, table};
use isobar_model::role::Role;
use reqwest::RequestBuilder;
use serde_json::json;

use crate::cases::{Things, name, request};
use crate::support::{Answer, NOBODY, Person, TestApp};

/// One user of every role in one organization, and a user of another organization.
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

/// Returns true if a user may call it, with any kind of credential.
fn is_a_users(row: &RouteRow) -> bool {
    matches!(row.access, RouteAccess::User | RouteAccess::UserOrDevice | RouteAccess::ApiKey)
}

/// Adds credentials of a person that the operation accepts.
async fn with_credentials(request: RequestBuilder, row: &RouteRow, person: &Person<'_>) -> RequestBuilder {
    match row.access {
        RouteAccess::ApiKey => request.header("api_auth_token", person.makes_api_key("for the webhook").await),
        _ => request.bearer_auth(&person.jwt),
    }
}

/// Sends a request and returns its status; the answer is read to its end unless it is a success, which may be endless.
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

// Holds: webhook.credentials, auth.refreshToken, auth.open, auth.401, status.401, c1.open
#[tokio::test]
async fn missing_and_bad_credentials_are_refused() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let user = ana.invites("user", "basicUser").await;
    let things = Things::made_by(&ana, &user).await;
    for row in table() {
        let case = things.case(&row);
        let ask = || request(&app, &row, &case);
        let open = matches!(row.access, RouteAccess::Probe | RouteAccess::Open | RouteAccess::Optional);
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
        if !matches!(row.access, RouteAccess::UserOrDevice) {
            rubbish.push(ask().header("cloud", &things.fridge.token));
        }
        if matches!(row.access, RouteAccess::Cookie | RouteAccess::ApiKey) {
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

// Holds: c1.403, c1.deletes, c2.table, c4.paths
#[tokio::test]
async fn only_a_sufficient_role_is_allowed() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let user = ana.invites("user", "basicUser").await;
    let cast = Cast::of(&ana).await;
    let mut things = Things::made_by(&ana, &user).await;
    for row in table() {
        let Some(action) = row.action else { continue };
        let case = things.case(&row);
        let as_person = async |person: &Person<'_>| with_credentials(request(&app, &row, &case), &row, person).await;
        if let Some(too_low) = cast.just_below(action.minimum_role()) {
            assert_eq!(status(as_person(too_low).await).await, 403, "{} below its role", name(&row));
        }
        let enough = as_person(&cast.by_role[&action.minimum_role()]).await;
        assert_eq!(status(enough).await, case.success, "{} with its role", name(&row));
        // A call that changed something may have removed resources that other cases need.
        if row.method != Verb::Get {
            things = Things::made_by(&ana, &user).await;
        }
    }
}

// Holds: c1.reach, c2.reach
#[tokio::test]
async fn resource_of_a_sibling_organization_is_not_found() {
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
    // Nothing was stored.
    ana.get(&things.fridge.at("data/reading")).await.ok();
    assert_eq!(ana.get(&things.fridge.url()).await.ok()["name"], "fridge");
}

// Holds: status.404
#[tokio::test]
async fn hidden_resource_is_refused_like_a_missing_one() {
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

// Holds: c1.order
#[tokio::test]
async fn resource_is_checked_before_role_and_role_before_body() {
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

/// Checks the contract's list of who may call what, by method and path, against the routes.
// Holds: auth.deviceToken, auth.open, version.prefix, c1.open, c2.table, c3.deviceToken, c4.paths
#[test]
fn the_table_of_routes() {
    let line = |row: RouteRow| {
        let role = row.action.map_or("-", |action| action.minimum_role().name());
        format!("{:<6} {:<46} {:<12} {role}", row.method.name(), row.path, format!("{:?}", row.access))
    };
    insta::assert_snapshot!(table().into_iter().map(line).collect::<Vec<_>>().join("\n"));
}

// Holds: c2.rank, c2.table
#[test]
fn the_table_of_roles() {
    insta::assert_snapshot!(isobar_model::access::table());
}
