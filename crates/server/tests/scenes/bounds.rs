//! Bounds: the lengths of texts and of lists.

use std::cell::Cell;
use std::ops::Range;

use serde_json::{Map, Value, json};

use crate::support::app::new_user;
use crate::support::designs::{thermostat, to, to_with};
use crate::support::person::text;
use crate::support::{Answer, NOBODY, TestApp, on_both_registries};

on_both_registries!(
    texts_of_devices_are_bounded,
    metadata_of_a_device_is_bounded,
    data_of_a_design_on_a_device_is_bounded,
    texts_of_organizations_are_bounded,
    texts_of_projects_are_bounded,
    texts_of_users_are_bounded,
    a_password_is_bounded,
    every_list_is_paged_alike,
);

/// Checks that each of these members takes texts of this many characters, and shows them, and that one character less
/// or more is refused.
async fn is_bounded(sends: impl AsyncFn(Value) -> Answer, body: &Value, bounds: &[(&str, usize, usize)]) {
    let with = |member: &str, length: usize| {
        let mut body = body.clone();
        // Characters are counted, not bytes.
        body[member] = json!("é".repeat(length));
        body
    };
    for &(member, min, max) in bounds {
        for length in [min, max] {
            let body = with(member, length);
            let answer = sends(body.clone()).await;
            assert!(answer.status.is_success(), "{member} of {length} characters: {answer:?}");
            let shown = answer.json();
            // Fields for the operator alone are not shown.
            assert!(member == "reason" || shown[member] == body[member], "{member} of {length} characters: {answer:?}");
        }
        for length in [min.checked_sub(1), Some(max + 1)].into_iter().flatten() {
            assert_eq!(sends(with(member, length)).await.faults(), [member], "{length} characters");
        }
    }
}

/// Checks that a text of another length than an identifier's is refused.
async fn is_an_identifier(sends: impl AsyncFn(Value) -> Answer, body: &Value, member: &str) {
    for length in [0, 23, 24, 35, 36, 37] {
        let mut body = body.clone();
        body[member] = json!("0".repeat(length));
        assert_eq!(sends(body).await.faults(), [member], "{length} characters");
    }
}

// Holds: device.name, device.projectUuid, device.versionUuid, device.protocol, device.description,
// device.streetAddress, device.organizationId, limit.deviceName, limit.deviceDescription, limit.deviceProject,
// limit.deviceVersion, limit.deviceProtocol, limit.projectName, limit.specificationDescription, limit.createVersion,
// limit.settingName, limit.reason
async fn texts_of_devices_are_bounded(app: &TestApp) {
    let ana = app.developer("ana").await;
    let url = ana.creates_device("fridge").await.url();
    let body = json!({"name": "fridge", "projectUuid": ana.project().await});
    let bounds = [("name", 1, 80), ("versionUuid", 0, 36), ("protocol", 0, 20), ("description", 0, 200)];
    is_bounded(async |body| ana.post("/v2/devices", body).await, &body, &bounds).await;
    is_bounded(async |body| ana.put(&url, body).await, &body, &bounds).await;
    for member in ["projectUuid", "organizationId"] {
        is_an_identifier(async |body| ana.post("/v2/devices", body).await, &body, member).await;
        is_an_identifier(async |body| ana.put(&url, body).await, &body, member).await;
    }
    let address = ["address", "city", "region", "country"].map(|member| (member, 0, 200));
    let at_address = async |address: Value| {
        let mut body = body.clone();
        body["streetAddress"] = address;
        ana.put(&url, body).await
    };
    for (member, _, max) in address {
        let shown = at_address(json!({member: "é".repeat(max)})).await.ok();
        assert_eq!(shown["streetAddress"], json!({member: "é".repeat(max)}));
        let fault = format!("streetAddress.{member}");
        assert_eq!(at_address(json!({member: "é".repeat(max + 1)})).await.faults(), [fault]);
    }
    // A number, or a text, as in many countries.
    for code in [json!(2600), json!("2600 AB")] {
        assert_eq!(at_address(json!({"postalCode": code})).await.ok()["streetAddress"]["postalCode"], code);
    }
}

/// Returns an object with this many members.
fn numbered(name: &str, numbers: Range<usize>) -> Value {
    numbers.map(|n| (format!("{name}{n}"), json!(n))).collect::<Map<_, _>>().into()
}

// Holds: c11.bounds
async fn metadata_of_a_device_is_bounded(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (url, project) = (ana.creates_device("fridge").await.url(), ana.project().await);
    let body = |meta: Value| json!({"name": "fridge", "projectUuid": project, "meta": meta});
    let labels = |count: usize| numbered("t", 0..count);
    // As JSON: {"a":"…"}
    let long = |bytes: usize| json!({"a": "x".repeat(bytes - 8)});
    for meta in [labels(1_000), long(64 << 10)] {
        assert_eq!(ana.put(&url, body(meta.clone())).await.ok()["meta"], meta);
        assert_eq!(ana.post("/v2/devices", body(meta.clone())).await.created()["meta"], meta);
    }
    for meta in [labels(1_001), long((64 << 10) + 1), long(500_000)] {
        assert_eq!(ana.put(&url, body(meta.clone())).await.faults(), ["meta"]);
        let mut new = body(meta);
        assert_eq!(ana.post("/v2/devices", new.clone()).await.faults(), ["meta"]);
        new["projectUuid"] = json!(NOBODY);
        assert_eq!(ana.post("/v2/devices", new).await.faults(), ["meta", "projectUuid"]);
    }
}

/// Returns a design that stores all events, and a label from each.
fn keeping() -> Value {
    let label = to_with("m", "setValue", json!({"tag": "payload.tag", "value": "payload.value"}));
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("log", "store"), label]}},
        "log": {"type": "storage"}, "m": {"type": "deviceMeta"},
    })
}

// Holds: c11.bounds
async fn data_of_a_design_on_a_device_is_bounded(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(keeping()).await, "fridge").await;
    device.posts("reading", json!({"tag": "a", "value": "x".repeat(60_000)})).await.created();
    device.posts("reading", json!({"tag": "b", "value": "x".repeat(6_000)})).await.created();
    device.posts("reading", json!({"tag": "c", "value": 1})).await.created();
    let shown = ana.get(&device.url()).await.ok();
    assert_eq!((&shown["meta"]["b"], &shown["meta"]["c"]), (&Value::Null, &json!(1)));
    for (numbers, message) in [(0..9_000, ""), (10_000..19_000, "last values: no room for")] {
        let mut payload = numbered("name", numbers);
        (payload["tag"], payload["value"]) = (json!("d"), json!(2));
        let id = device.posts("reading", payload).await.created();
        let event = ana.get(&device.at(&format!("events/{}", text(&id, "id")))).await.ok();
        let told = event["errors"][0]["message"].as_str().unwrap_or_default();
        assert!(told.starts_with(message) && told.is_empty() == message.is_empty(), "{told:?}");
    }
    let last = device.get(&device.at("last/log")).await;
    assert!((200 << 10..257 << 10).contains(&last.text.len()), "{} bytes", last.text.len());
}

// Holds: organization.name, organization.description, branding.organizationId, deviceTable.members, limit.deviceName,
// limit.deviceDescription, limit.deviceProject, limit.deviceVersion, limit.deviceProtocol, limit.organizationName,
// limit.organizationDescription, limit.projectName, limit.specificationDescription, limit.createVersion,
// limit.settingName, limit.reason
async fn texts_of_organizations_are_bounded(app: &TestApp) {
    let ana = app.developer("ana").await;
    let url = format!("/v2/organizations/{}", ana.founds("North", &ana.organization).await);
    let body = json!({"name": "North"});
    let bounds = [("name", 1, 80), ("description", 0, 200)];
    is_bounded(async |body| ana.post("/v2/organizations", body).await, &body, &bounds).await;
    is_bounded(async |body| ana.put(&url, body).await, &body, &bounds).await;
    for place in ["branding", "deviceTable"].map(|place| format!("{url}/{place}")) {
        is_an_identifier(async |body| ana.put(&place, body).await, &json!({"columns": []}), "organizationId").await;
    }
}

// Holds: project.members, specification.name, specification.createVersion, specification.description,
// limit.deviceName, limit.deviceDescription, limit.deviceProject, limit.deviceVersion, limit.deviceProtocol,
// limit.projectName, limit.specificationDescription, limit.createVersion, limit.settingName, limit.reason
async fn texts_of_projects_are_bounded(app: &TestApp) {
    let ana = app.developer("ana").await;
    let url = format!("/v2/projects/{}", ana.project().await);
    let (body, bounds) = (json!({"name": "cold"}), [("name", 1, 80)]);
    is_bounded(async |body| ana.post("/v2/projects", body).await, &body, &bounds).await;
    is_bounded(async |body| ana.put(&url, body).await, &body, &bounds).await;
    is_an_identifier(async |body| ana.post("/v2/projects", body).await, &body, "organizationId").await;
    is_an_identifier(async |body| ana.put(&url, body).await, &body, "organizationId").await;
    let bounds = [("name", 1, 80), ("createVersion", 1, 16), ("description", 0, 2000)];
    is_bounded(async |body| ana.put(&format!("{url}/specification"), body).await, &body, &bounds).await;
}

/// Returns a body that registers or creates a user, with unique names unless it has names already.
fn anew(made: &Cell<u32>, mut body: Value) -> Value {
    made.set(made.get() + 1);
    for (member, usual, own) in [
        ("username", "new", format!("new{}", made.get())),
        ("email", "new@example.com", format!("new{}@example.com", made.get())),
    ] {
        if body[member] == usual {
            body[member] = json!(own);
        }
    }
    body
}

// Holds: user.username, user.email, user.names, user.jobTitle, user.reason, limit.deviceName, limit.deviceDescription,
// limit.deviceProject, limit.deviceVersion, limit.deviceProtocol, limit.projectName, limit.specificationDescription,
// limit.createVersion, limit.settingName, limit.reason
async fn texts_of_users_are_bounded(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (made, body) = (Cell::new(0), new_user("new", "technician"));
    let names = [("firstName", 1, 80), ("lastName", 1, 80), ("company", 1, 80), ("language", 0, 80)];
    let creates = async |body| ana.post("/v2/users", anew(&made, body)).await;
    is_bounded(&creates, &body, &names).await;
    is_bounded(async |body| app.post("/v2/auth/register", anew(&made, body)).await, &body, &names).await;
    is_bounded(&creates, &body, &[("username", 1, 254)]).await;
    let mut body = body;
    for (address, is_one) in [
        ("a@b".to_owned(), true),
        (format!("{}@example.com", "x".repeat(242)), true),
        (format!("{}@example.com", "x".repeat(243)), false),
        ("@b".to_owned(), false),
    ] {
        body["email"] = json!(address);
        let answer = creates(body.clone()).await;
        match is_one {
            true => assert_eq!(answer.created()["email"], address),
            false => assert!(answer.faults().iter().all(|field| field == "email"), "{address}"),
        }
    }

    let tom = ana.invites("tom", "technician").await;
    let url = format!("/v2/users/{}", tom.id);
    let body = json!({"role": "technician", "company": "Acme"});
    let bounds = [
        ("firstName", 1, 80),
        ("lastName", 1, 80),
        ("company", 1, 80),
        ("jobTitle", 0, 80),
        ("language", 0, 80),
        ("reason", 1, 300),
    ];
    is_bounded(async |body| tom.put(&url, body).await, &body, &bounds).await;
}

// Holds: user.password, limit.password, c3.passwords
async fn a_password_is_bounded(app: &TestApp) {
    let ana = app.developer("ana").await;
    let made = Cell::new(0);
    let with = |mut body: Value, length: usize| {
        (body["password"], body["passwordConfirmation"]) = (json!("é".repeat(length)), json!("é".repeat(length)));
        body
    };
    for length in [6, 128] {
        let body = anew(&made, with(new_user("new", "technician"), length));
        app.post("/v2/auth/register", body.clone()).await.created();
        app.login(text(&body, "username"), text(&body, "password")).await.created();
        ana.post("/v2/users", anew(&made, with(new_user("new", "technician"), length))).await.created();
    }
    for length in [5, 129] {
        let body = anew(&made, with(new_user("new", "technician"), length));
        let faults = app.post("/v2/auth/register", body.clone()).await.faults();
        assert_eq!(faults[0], "password");
        assert_eq!(ana.post("/v2/users", body).await.faults(), faults);
    }
    let tom = ana.invites("tom", "technician").await;
    let url = format!("/v2/users/{}", tom.id);
    let mut change = json!({"role": "technician", "company": "Acme", "currentPassword": tom.password});
    for length in [6, 20] {
        tom.put(&url, with(change.clone(), length)).await.ok();
        change["currentPassword"] = json!("é".repeat(length));
        app.login("tom", &"é".repeat(length)).await.created();
    }
    for length in [5, 21] {
        let faults = tom.put(&url, with(change.clone(), length)).await.faults();
        assert_eq!(faults, ["password", "passwordConfirmation"]);
    }
}

// Holds: page.data, query.page, query.limit, limit.pageSize, limit.page, c1.lists, c1.limit
async fn every_list_is_paged_alike(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(thermostat()).await, "thermostat").await;
    let keys = format!("/v2/users/{}/apiKeys", ana.id);
    for list in [
        "/v2/organizations",
        "/v2/projects",
        "/v2/users",
        &keys,
        "/v2/notifications",
        "/v2/alarms",
        "/v2/devices",
        "/v2/devices/locations",
        &device.at("data/limits"),
        &device.at("storage"),
        &device.at("settings"),
        &device.at("settings/history"),
        &device.at("events"),
    ] {
        let body = ana.get(list).await.ok();
        let total = body["meta"]["totalDocs"].as_u64().unwrap();
        let meta = |page: u64, limit: u64| {
            json!({
                "totalDocs": total, "page": page, "limit": limit, "hasPrevPage": page > 1,
                "hasNextPage": total > page * limit, "totalPages": total.div_ceil(limit),
            })
        };
        assert_eq!(body["meta"], meta(1, 100), "{list}");
        for (page, limit) in [(1, 1), (2, 1), (1, 10_000)] {
            let found = ana.get(&format!("{list}?page={page}&limit={limit}")).await.ok();
            assert_eq!(found["meta"], meta(page, limit), "{list}");
            let items = if list.ends_with("/storage") { &found["storageElements"] } else { &found["data"] };
            let left = total.saturating_sub((page - 1) * limit).min(limit);
            assert_eq!(items.as_array().unwrap().len() as u64, left, "{list}");
        }
        for limit in ["0", "10001", "-1", "ten", ""] {
            let faults = ana.get(&format!("{list}?page=0&limit={limit}")).await.faults();
            assert_eq!(faults, ["query.limit", "query.page"], "{list} {limit}");
        }
    }
    // The queue has pages too.
    let queue = device.queue();
    assert_eq!(ana.get(&format!("{queue}&limit=10001&page=0")).await.faults(), ["query.limit", "query.page"]);
    ana.get(&format!("{queue}&limit=10000&page=2")).await.ok();
    ana.get(&format!("/v2/devices/{NOBODY}/events?limit=0")).await.not_found();
}
