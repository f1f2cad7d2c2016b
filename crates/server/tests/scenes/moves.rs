//! Organizations that are changed, moved and deleted.

use serde_json::{Value, json};

use crate::support::designs::fridge;
use crate::support::person::text;
use crate::support::{NOBODY, TestApp, on_both_registries};

on_both_registries!(
    updated_organization_keeps_omitted_members,
    moved_branch_is_visible_to_all_at_once,
    move_out_of_sight_or_in_a_circle_is_refused,
    limits_are_set_from_above,
    branch_moves_only_where_its_devices_fit,
    empty_organization_can_be_deleted,
    a_status_moves_with_its_branch,
    project_is_moved_and_deleted,
);

// Holds: organization.times, organization.deviceTable, PUT /v2/organizations/{id}
async fn updated_organization_keeps_omitted_members(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    app.wait_seconds(1);
    let body =
        json!({"name": "South", "description": "warm", "childrenInheritDashboard": true, "deviceTable": {"a": 1.50}});
    let changed = ana.changes(&north, body).await.ok();
    assert_eq!((&changed["name"], &changed["description"]), (&json!("South"), &json!("warm")));
    assert_eq!((&changed["childrenInheritDashboard"], &changed["deviceTable"]), (&json!(true), &json!({"a": 1.50})));
    assert_eq!(changed["updatedAt"], "2027-01-15T08:00:01.000Z");
    // Omitted members are kept, and a body that was read can be sent back.
    let mut again = ana.changes(&north, json!({"name": "South"})).await.ok();
    assert_eq!(again, changed);
    again["unknown"] = json!(5);
    assert_eq!(ana.changes(&north, again).await.ok(), changed);
    let own = ana.organization(&ana.organization).await;
    assert_eq!(ana.changes(&ana.organization, own.clone()).await.ok()["path"], own["path"]);
    let cleared = ana.changes(&north, json!({"name": "x", "description": null, "deviceTable": null})).await.ok();
    assert_eq!((&cleared["description"], &cleared["deviceTable"]), (&json!(null), &json!({})));
    let bad = json!({
        "name": "", "description": 5, "childrenInheritDashboard": "no", "deviceTable": [], "parentId": "x",
        "deviceCountLimit": -1, "dataUsageMbLimit": 1e300,
    });
    let expected = [
        "childrenInheritDashboard",
        "dataUsageMbLimit",
        "description",
        "deviceCountLimit",
        "deviceTable",
        "name",
        "parentId",
    ];
    assert_eq!(ana.put(&format!("/v2/organizations/{north}"), bad).await.faults(), expected);
    assert_eq!(ana.organization(&north).await, cleared);
}

// Holds: c2.reach
async fn moved_branch_is_visible_to_all_at_once(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [left, right] = [ana.founds("Left", &ana.organization).await, ana.founds("Right", &ana.organization).await];
    let branch = ana.founds("Branch", &left).await;
    let leaf = ana.founds("Leaf", &branch).await;
    let lea = ana.invites_into(&left, "lea", "administrator").await;
    let rob = ana.invites_into(&right, "rob", "administrator").await;
    let lou = ana.invites_into(&leaf, "lou", "administrator").await;
    let project = ana.project().await.to_owned();
    let body = json!({"name": "d", "projectUuid": project, "organizationId": leaf});
    let device = ana.creates_device_as(body).await;
    let key = lou.makes_api_key("key").await;
    // All entries are cached.
    device.posts("reading", json!(1)).await.created();
    lea.get(&device.url()).await.ok();
    rob.get(&device.url()).await.not_found();
    lea.organization(&leaf).await;
    lou.get(&device.url()).await.ok();

    let moved = ana.changes(&branch, json!({"name": "Branch", "parentId": right})).await.ok();
    assert_eq!((text(&moved, "parentId"), text(&moved, "parentName")), (right.as_str(), "Right"));
    let path: Vec<Value> = moved["path"].as_array().unwrap().iter().map(|step| step["name"].clone()).collect();
    assert_eq!(path, ["ana's company", "Right", "Branch"]);
    lea.get(&device.url()).await.not_found();
    lea.get(&format!("/v2/organizations/{leaf}")).await.not_found();
    assert_eq!(lea.get("/v2/devices?depth=all").await.names(), [""; 0]);
    rob.get(&device.url()).await.ok();
    assert_eq!(rob.get("/v2/devices?depth=all").await.names(), ["d"]);
    assert_eq!(rob.get("/v2/organizations?depth=all").await.names(), ["Branch", "Leaf", "Right"]);
    device.posts("reading", json!(2)).await.created();
    assert_eq!(rob.get(&device.at("data/reading")).await.list_of("/payload"), [json!(2), json!(1)]);
    // Resources that moved along stay visible.
    lou.get(&device.url()).await.ok();
    app.send(app.request(reqwest::Method::GET, &device.url()).header("api_auth_token", key)).await.ok();
    lou.get(&format!("/v2/users/{}", rob.id)).await.not_found();
    rob.get(&format!("/v2/users/{}", lou.id)).await.ok();
    lea.get(&format!("/v2/users/{}", lou.id)).await.not_found();

    // A project of the old branch is hidden from below, and its devices still run it.
    let lower = lea.creates_project("left's own").await;
    rob.get(&format!("/v2/projects/{lower}")).await.not_found();
    // Only a system administrator moves an organization to the top.
    ana.changes(&branch, json!({"parentId": null})).await.forbidden();
    let top = app.admin().await.changes(&branch, json!({"parentId": null})).await.ok();
    assert_eq!((&top["parentId"], top["path"].as_array().unwrap().len()), (&json!(null), 1));
    ana.get(&device.url()).await.not_found();
    lou.get(&device.url()).await.ok();
}

// Holds: organization.parentId, c2.moves
async fn move_out_of_sight_or_in_a_circle_is_refused(app: &TestApp) {
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let branch = ana.founds("Branch", &ana.organization).await;
    let leaf = ana.founds("Leaf", &branch).await;
    let before = ana.organization(&leaf).await;
    let lou = ana.invites_into(&branch, "lou", "administrator").await;
    let moves = async |id: &str, to: &str| ana.changes(id, json!({"parentId": to})).await;
    for circle in [&branch, &leaf] {
        assert_eq!(moves(&branch, circle).await.faults(), ["parentId"]);
    }
    for nowhere in [bob.organization.as_str(), NOBODY] {
        assert_eq!(moves(&leaf, nowhere).await.faults(), ["parentId"]);
    }
    // The own organization cannot be moved, and those above are hidden.
    assert_eq!(moves(&ana.organization, &branch).await.faults(), ["parentId"]);
    assert_eq!(lou.changes(&leaf, json!({"parentId": ana.organization})).await.faults(), ["parentId"]);
    assert_eq!(lou.changes(&branch, json!({"parentId": bob.organization})).await.faults(), ["parentId"]);
    lou.changes(&ana.organization, json!({})).await.not_found();
    let mut lowest = ana.organization.clone();
    for level in 2..=31 {
        lowest = ana.founds(&format!("level {level}"), &lowest).await;
    }
    assert_eq!(moves(&branch, &lowest).await.faults(), ["parentId"]);
    assert_eq!(ana.organization(&leaf).await, before);
    moves(&leaf, &lowest).await.ok();
    // Of two organizations that move beneath each other, one is refused.
    let [a, b] = [ana.founds("a", &ana.organization).await, ana.founds("b", &ana.organization).await];
    let (first, second) = tokio::join!(moves(&a, &b), moves(&b, &a));
    let mut statuses = [first.status.as_u16(), second.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 400]);
}

// Holds: organization.figures, c5.limits
async fn limits_are_set_from_above(app: &TestApp) {
    let ana = app.developer("ana").await;
    let low = ana.founds("Low", &ana.organization).await;
    let lou = ana.invites_into(&low, "lou", "developer").await;
    let limits = json!({"name": "Low", "deviceCountLimit": 1, "dataUsageMbLimit": 0.5});
    let changed = ana.changes(&low, limits.clone()).await.ok();
    assert_eq!((&changed["deviceCountLimit"], &changed["dataUsageMbLimit"]), (&json!(1.0), &json!(0.5)));
    // A user of the organization can only send them back unchanged.
    lou.changes(&low, limits.clone()).await.ok();
    lou.changes(&low, json!({"deviceCountLimit": 2})).await.forbidden();
    lou.changes(&low, json!({"dataUsageMbLimit": 0})).await.forbidden();
    ana.changes(&ana.organization, json!({"deviceCountLimit": 2})).await.forbidden();
    let admin = app.admin().await;
    let own = admin.changes(&ana.organization, json!({"name": "ana's company", "deviceCountLimit": 2})).await.ok();
    assert_eq!(own["deviceCountLimit"], 2.0);
    let new = |name: &str| json!({"name": name, "projectUuid": null, "organizationId": low});
    let project = ana.project().await;
    let device = |name: &str| {
        let mut body = new(name);
        body["projectUuid"] = json!(project);
        body
    };
    ana.post("/v2/devices", device("a")).await.created();
    assert_eq!(ana.post("/v2/devices", device("b")).await.faults(), ["organizationId"]);
    ana.creates_device("c").await;
    assert_eq!(
        ana.post("/v2/devices", json!({"name": "d", "projectUuid": project})).await.faults(),
        ["organizationId"]
    );
}

async fn branch_moves_only_where_its_devices_fit(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [left, right] = [ana.founds("Left", &ana.organization).await, ana.founds("Right", &ana.organization).await];
    let branch = ana.founds("Branch", &left).await;
    let project = ana.project().await;
    for organization in [&branch, &branch, &right] {
        let body = json!({"name": "d", "projectUuid": project, "organizationId": organization});
        ana.creates_device_as(body).await;
    }
    ana.changes(&right, json!({"deviceCountLimit": 2})).await.ok();
    assert_eq!(ana.changes(&branch, json!({"parentId": right})).await.faults(), ["parentId"]);
    assert_eq!(text(&ana.organization(&branch).await, "parentId"), left);
    ana.changes(&right, json!({"deviceCountLimit": 3})).await.ok();
    ana.changes(&branch, json!({"parentId": right})).await.ok();
    assert_eq!(ana.organization(&right).await["deviceCount"], 3);
    assert_eq!(ana.organization(&left).await["deviceCount"], 0);
}

// Holds: DELETE /v2/organizations/{id}, c7.delete
async fn empty_organization_can_be_deleted(app: &TestApp) {
    let ana = app.developer("ana").await;
    let low = ana.founds("Low", &ana.organization).await;
    let url = format!("/v2/organizations/{low}");
    let child = ana.founds("Child", &low).await;
    assert_eq!(ana.delete(&url).await.faults(), ["body"]);
    ana.delete(&format!("/v2/organizations/{child}")).await.no_content();
    let body = json!({"name": "d", "projectUuid": ana.project().await, "organizationId": low});
    let device = ana.creates_device_as(body).await;
    assert_eq!(ana.delete(&url).await.faults(), ["body"]);
    ana.delete(&device.url()).await.no_content();
    let project = ana.post("/v2/projects", json!({"name": "p", "organizationId": low})).await.created();
    assert_eq!(ana.delete(&url).await.faults(), ["body"]);
    ana.delete(&format!("/v2/projects/{}", text(&project, "id"))).await.no_content();
    ana.put(&format!("{url}/dashboard"), json!({"configuration": {}})).await.ok();
    ana.put(&format!("{url}/branding"), json!({"companyName": "x"})).await.ok();
    ana.delete(&url).await.no_content();
    ana.get(&url).await.not_found();
    ana.delete(&url).await.not_found();
    assert_eq!(ana.post("/v2/organizations", json!({"name": "x", "parentId": low})).await.faults(), ["parentId"]);
    // The own organization has at least one user.
    assert_eq!(ana.delete(&format!("/v2/organizations/{}", ana.organization)).await.faults(), ["body"]);
}

async fn a_status_moves_with_its_branch(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [left, right] = [ana.founds("Left", &ana.organization).await, ana.founds("Right", &ana.organization).await];
    let branch = ana.founds("Branch", &left).await;
    let project = ana.designs(fridge()).await;
    let body = json!({"name": "f", "projectUuid": project, "organizationId": branch});
    let device = ana.creates_device_as(body).await;
    device.posts("reading", json!({"temp": 20})).await.created();
    assert_eq!(ana.get(&device.url()).await.ok()["statusText"], "critical");
    let statuses = async || {
        let mut found = Vec::new();
        for id in [&left, &right, &ana.organization] {
            found.push(ana.organization(id).await["statusText"].clone());
        }
        found
    };
    assert_eq!(statuses().await, ["critical", "none", "critical"]);
    ana.changes(&branch, json!({"parentId": right})).await.ok();
    assert_eq!(statuses().await, ["none", "critical", "critical"]);
    let mut body = json!({"name": "f", "projectUuid": project});
    body["organizationId"] = json!(left);
    ana.put(&device.url(), body).await.ok();
    assert_eq!(statuses().await, ["critical", "none", "critical"]);
}

// Holds: DELETE /v2/projects/{id}, c2.projects, c2.moves, c7.delete
async fn project_is_moved_and_deleted(app: &TestApp) {
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let [left, right] = [ana.founds("Left", &ana.organization).await, ana.founds("Right", &ana.organization).await];
    let lea = ana.invites_into(&left, "lea", "administrator").await;
    let project = ana.designs(fridge()).await;
    let url = format!("/v2/projects/{project}");
    let body = json!({"name": "f", "projectUuid": project, "organizationId": left});
    let device = ana.creates_device_as(body).await;
    // From below it is visible, but cannot be changed.
    lea.put(&url, json!({"name": "mine"})).await.forbidden();
    lea.delete(&url).await.forbidden();
    assert_eq!(
        ana.put(&url, json!({"name": "p", "organizationId": bob.organization})).await.faults(),
        ["organizationId"]
    );
    ana.put(&url, json!({"name": "p", "organizationId": right})).await.ok();
    lea.get(&url).await.not_found();
    // Its devices stay, run its design, and can be changed by users who no longer see it.
    device.posts("reading", json!({"temp": 20})).await.created();
    assert_eq!(lea.get(&device.url()).await.ok()["statusText"], "critical");
    assert_eq!(lea.put(&device.url(), json!({"name": "g", "projectUuid": project})).await.ok()["name"], "g");
    assert_eq!(ana.delete(&url).await.faults(), ["body"]);
    device.posts("reading", json!({"temp": 4})).await.created();
    ana.delete(&device.url()).await.no_content();
    ana.delete(&url).await.no_content();
    ana.get(&url).await.not_found();
    ana.get(&format!("{url}/specification")).await.not_found();
    let body = json!({"name": "h", "projectUuid": project});
    assert_eq!(ana.post("/v2/devices", body).await.faults(), ["projectUuid"]);
}
