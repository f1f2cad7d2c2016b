//! Devices: created, listed, changed, deleted.

use serde_json::json;

use crate::support::designs::to_with;
use crate::support::person::text;
use crate::support::{NOBODY, TestApp, on_both_registries};

on_both_registries!(
    a_device_is_created_and_fetched,
    update_keeps_omitted_members_and_null_clears,
    label_survives_a_concurrent_rename_of_its_device,
    a_list_is_searched_sorted_and_narrowed,
    a_list_comes_in_pages_that_never_overlap,
    device_list_includes_last_values_on_request,
    deleted_device_is_gone_with_its_data,
    a_device_moves_to_another_organization,
);

// Holds: device.name, device.projectUuid, device.versionUuid, device.protocol, device.protocols, device.meta,
// device.description, device.streetAddress, device.output, device.token, POST /v2/devices, GET /v2/devices/{id},
// c1.ids
async fn a_device_is_created_and_fetched(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.project().await.to_owned();
    let body = json!({
        "name": "fridge",
        "projectUuid": project,
        "versionUuid": "1.2",
        "protocol": "http",
        "protocols": ["http", "lora", "a protocol with a longer name than protocol may have"],
        "meta": {"floor": 3, "big": 12345678901234567890123456789_u128.to_string()},
        "description": "cold",
        "streetAddress": {"address": "Main Street 1", "city": "Delft", "region": "ZH", "postalCode": 2600, "country": "NL"},
        "id": "a read-only member",
        "unknown": "ignored",
    });
    let mut made = ana.post("/v2/devices", body).await.created();
    let (id, token) = (text(&made, "id").to_owned(), text(&made, "token").to_owned());
    assert!(token.len() >= 43, "256 bits");
    made.as_object_mut().unwrap().remove("token");
    let expected = json!({
        "id": id,
        "uuid": id,
        "name": "fridge",
        "projectUuid": project,
        "versionUuid": "1.2",
        "protocol": "http",
        "protocols": ["http", "lora", "a protocol with a longer name than protocol may have"],
        "meta": {"floor": 3, "big": "12345678901234567890123456789"},
        "description": "cold",
        "streetAddress": {"address": "Main Street 1", "city": "Delft", "region": "ZH", "postalCode": 2600, "country": "NL"},
        "organizationId": ana.organization,
        "organizationName": "ana's company",
        "createdBy": ana.id,
        "lastValues": [],
        "lastActive": null,
        "createdAt": "2027-01-15T08:00:00.000Z",
        "updatedAt": "2027-01-15T08:00:00.000Z",
        "statusText": "none",
        "statusInt": 0,
        "alarms": {"critical": 0, "warning": 0, "info": 0},
        "imageUrl": format!("/v2/devices/{id}/image.png"),
    });
    assert_eq!(made, expected);
    let fetched = ana.get(&format!("/v2/devices/{id}")).await;
    assert!(!fetched.text.contains(&token), "the token is shown once");
    assert_eq!(fetched.ok(), expected);
    assert_eq!(ana.get("/v2/devices").await.ok()["data"], json!([expected]));
    // Omitted members have their defaults.
    let bare = ana.post("/v2/devices", json!({"name": "bare", "projectUuid": project})).await.created();
    let defaults = json!({
        "versionUuid": null, "protocol": null, "protocols": [], "meta": {}, "description": null, "streetAddress": null,
        "organizationId": ana.organization,
    });
    for (member, value) in defaults.as_object().unwrap() {
        assert_eq!(&bare[member], value, "{member}");
    }
    ana.delete(&format!("/v2/devices/{}", text(&bare, "id"))).await.no_content();
    assert_eq!(ana.get(&format!("/v2/organizations/{}", ana.organization)).await.ok()["deviceCount"], 1);
}

// Holds: device.versionUuid, device.protocol, PUT /v2/devices/{id}, c1.put
async fn update_keeps_omitted_members_and_null_clears(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.project().await.to_owned();
    let full = json!({
        "name": "fridge", "projectUuid": project, "versionUuid": "1", "protocol": "http", "protocols": ["http"],
        "meta": {"floor": 3, "wing": "b"}, "description": "cold", "streetAddress": {"city": "Delft", "country": "NL"},
    });
    let device = ana.creates_device_as(full).await;
    let before = ana.get(&device.url()).await.ok();
    app.wait_seconds(5);
    let mut expected = before.clone();
    let bare = json!({"name": "icebox", "projectUuid": project});
    (expected["name"], expected["updatedAt"]) = (json!("icebox"), json!("2027-01-15T08:00:05.000Z"));
    assert_eq!(ana.put(&device.url(), bare).await.ok(), expected);
    // A body that was read can be sent back.
    assert_eq!(ana.put(&device.url(), expected.clone()).await.ok(), expected);
    let cleared = json!({
        "name": "icebox", "projectUuid": project, "versionUuid": null, "protocol": null, "description": null,
        "streetAddress": null, "meta": {"floor": 4},
    });
    for (member, value) in cleared.as_object().unwrap() {
        expected[member] = value.clone();
    }
    assert_eq!(ana.put(&device.url(), cleared).await.ok(), expected);
    assert_eq!(ana.get(&device.url()).await.ok(), expected);
    assert_eq!(ana.put(&device.url(), json!({})).await.faults(), ["name", "projectUuid"]);
    assert_eq!(ana.get(&device.url()).await.ok(), expected);
}

async fn label_survives_a_concurrent_rename_of_its_device(app: &TestApp) {
    const EVENTS: usize = 40;
    let ana = app.developer("ana").await;
    let setting = json!({"tag": "'n' + string(payload.n)", "value": "payload.n"});
    let design = json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to_with("state", "setValue", setting)]}},
        "state": {"type": "deviceMeta"},
    });
    let project = ana.designs(design).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    let url = device.url();
    let renamed = |n: usize| ana.put(&url, json!({"name": format!("fridge {n}"), "projectUuid": project}));
    let posts = async {
        for n in 0..EVENTS {
            device.posts("reading", json!({"n": n})).await.created();
        }
    };
    let puts = async {
        for n in 0..EVENTS {
            let (one, other) = tokio::join!(renamed(n), renamed(n));
            one.ok();
            other.ok();
        }
    };
    tokio::join!(posts, puts);
    let shown = ana.get(&url).await.ok();
    let expected: serde_json::Map<_, _> = (0..EVENTS).map(|n| (format!("n{n}"), json!(n))).collect();
    assert_eq!((&shown["name"], &shown["meta"]), (&json!(format!("fridge {}", EVENTS - 1)), &json!(expected)));
}

// Holds: query.sortBy, query.organizationId, query.searchText, query.entityList, GET /v2/devices, c1.searchText,
// c1.entityList
async fn a_list_is_searched_sorted_and_narrowed(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.project().await.to_owned();
    let mut ids = Vec::new();
    for (name, description, place) in
        [("beta", "Kitchen 100%", "north"), ("Alpha", "cellar", "SOUTH"), ("gamma", "kitchen_2", "Ünder")]
    {
        app.wait_seconds(1);
        let body = json!({"name": name, "projectUuid": project, "description": description, "meta": {"place": place}});
        ids.push(ana.creates_device_as(body).await.id);
    }
    let list = async |query: &str| ana.get(&format!("/v2/devices?{query}")).await.names();
    assert_eq!(list("searchText=KITCHEN").await, ["beta", "gamma"]);
    assert_eq!(list("searchText=south").await, ["Alpha"]);
    assert_eq!(list("searchText=%C3%BCnder").await, ["gamma"]);
    assert_eq!(list("searchText=100%25").await, ["beta"]);
    assert_eq!(list("searchText=n_2").await, ["gamma"]);
    assert_eq!(list("searchText=_").await, ["gamma"]);
    assert_eq!(list("searchText=%27").await, [""; 0]);
    assert_eq!(list(&format!("searchText={}", ids[1])).await, ["Alpha"]);
    assert_eq!(list("searchText=nowhere").await, [""; 0]);
    assert_eq!(list("sortBy=-createdAt").await, ["gamma", "Alpha", "beta"]);
    assert_eq!(list("sortBy=%2BcreatedAt").await, ["beta", "Alpha", "gamma"]);
    assert_eq!(list("sortBy=statusInt,-description").await, ["gamma", "Alpha", "beta"]);
    let names = list("").await;
    assert_eq!(list("sortBy=name").await, names, "by name, unless something else is asked for");
    assert_eq!(list("sortBy=-name").await, names.into_iter().rev().collect::<Vec<_>>());
    assert_eq!(list(&format!("entityList={},{NOBODY}&entityList={}", ids[0], ids[2])).await, ["beta", "gamma"]);
    assert_eq!(list("entityList=").await, [""; 0]);
    assert_eq!(list(&format!("entityList={}&searchText=cellar", ids[0])).await, [""; 0]);
    let bob = app.stranger("bob").await;
    assert_eq!(bob.get(&format!("/v2/devices?entityList={}", ids[0])).await.names(), [""; 0]);
    bob.get(&format!("/v2/devices?organizationId={}", ana.organization)).await.not_found();
}

// Holds: page.totalDocs, page.page, page.limit, page.hasPrevPage, page.hasNextPage, page.totalPages, page.data,
// c1.sortBy
async fn a_list_comes_in_pages_that_never_overlap(app: &TestApp) {
    let ana = app.developer("ana").await;
    for number in 0..7 {
        ana.creates_device(if number % 2 == 0 { "even" } else { "odd" }).await;
    }
    let mut seen = Vec::new();
    for page in 1..=3 {
        let body = ana.get(&format!("/v2/devices?sortBy=-name&limit=3&page={page}")).await.ok();
        let meta = json!({
            "totalDocs": 7, "page": page, "limit": 3, "hasPrevPage": page > 1, "hasNextPage": page < 3, "totalPages": 3,
        });
        assert_eq!(body["meta"], meta);
        seen.extend(body["data"].as_array().unwrap().iter().map(|device| text(device, "id").to_owned()));
    }
    assert_eq!(seen.len(), 7);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 7);
    let past = ana.get("/v2/devices?limit=3&page=4").await.ok();
    assert_eq!((&past["data"], &past["meta"]["totalDocs"]), (&json!([]), &json!(7)));
    assert_eq!(past["meta"]["hasNextPage"], false);
    ana.get("/v2/devices?page=18446744073709551615&limit=10000").await.ok();
    ana.get("/v2/devices?page=99999999999999999999999").await.ok();
}

// Holds: device.lastValues, query.lastValues, c5.lastValues
async fn device_list_includes_last_values_on_request(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (one, other) = (ana.creates_device("a").await, ana.creates_device("b").await);
    one.posts("climate", json!({"temp": 1, "hum": 2})).await.created();
    one.posts("climate", json!({"temp": 3})).await.created();
    one.posts("door%20one", json!("open")).await.created();
    other.posts("climate", json!({"temp": 4})).await.created();
    let last = async |query: &str| ana.get(&format!("/v2/devices?{query}")).await.list_of("/lastValues");
    assert_eq!(last("").await, [json!([]), json!([])]);
    let all = last("lastValues=all").await;
    assert_eq!(all[0][0]["values"], json!({"temp": 3, "hum": 2}));
    assert_eq!(all[0][1]["values"], json!("open"));
    assert_eq!(all[1][0]["values"], json!({"temp": 4}));
    let named = last("lastValues=door%20one,unheard").await;
    assert_eq!(named[0][0]["elementName"], "door one");
    assert_eq!(named[1], json!([]));
    // Names are encoded: a comma in one is no separator.
    other.posts("in%2Cout", json!(7)).await.created();
    let encoded = last("lastValues=in%2Cout,unheard").await;
    assert_eq!((&encoded[0], &encoded[1][0]["elementName"]), (&json!([]), &json!("in,out")));
    assert_eq!(last("lastValues=climate%2Cin%252Cout").await[1].as_array().unwrap().len(), 1);
    let single = ana.get(&format!("{}?lastValues=climate", one.url())).await.ok();
    assert_eq!(single["lastValues"].as_array().unwrap().len(), 1);
    let body = json!({"name": "a", "projectUuid": ana.project().await});
    let changed = ana.put(&format!("{}?lastValues=climate", one.url()), body).await.ok();
    assert_eq!(changed["lastValues"], single["lastValues"]);
}

// Holds: DELETE /v2/devices/{id}
async fn deleted_device_is_gone_with_its_data(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    let event = device.posts("reading", json!(1)).await.created();
    device.queues("alarm", json!(1)).await;
    ana.delete(&device.url()).await.no_content();
    for place in [
        device.url(),
        device.at("data/reading"),
        device.at("last/reading"),
        device.at("storage"),
        device.at("events"),
        device.at(&format!("events/{}", text(&event, "id"))),
        device.queue(),
    ] {
        ana.get(&place).await.not_found();
    }
    ana.delete(&device.url()).await.not_found();
    device.posts("reading", json!(2)).await.unauthenticated();
    device.takes().await.unauthenticated();
    assert_eq!(ana.post(&device.door("reading"), json!(1)).await.faults(), ["query.deviceId"]);
    assert_eq!(ana.get("/v2/devices").await.ok()["meta"]["totalDocs"], 0);
    assert_eq!(ana.get(&format!("/v2/organizations/{}", ana.organization)).await.ok()["deviceCount"], 0);
}

// Holds: device.organizationId, c2.moves
async fn a_device_moves_to_another_organization(app: &TestApp) {
    let ana = app.developer("ana").await;
    let (north, south) = (ana.founds("North", &ana.organization).await, ana.founds("South", &ana.organization).await);
    let nora = ana.invites_into(&north, "nora", "manager").await;
    let sven = ana.invites_into(&south, "sven", "manager").await;
    let project = ana.project().await.to_owned();
    let device = nora.creates_device_of(&project, "truck").await;
    device.posts("reading", json!(1)).await.created();
    sven.get(&device.url()).await.not_found();
    let to = |organization: &str| json!({"name": "truck", "projectUuid": project, "organizationId": organization});
    // A device cannot be moved to an organization that the caller cannot see.
    assert_eq!(nora.put(&device.url(), to(&south)).await.faults(), ["organizationId"]);
    assert_eq!(ana.put(&device.url(), to(&south)).await.ok()["organizationName"], "South");
    nora.get(&device.url()).await.not_found();
    nora.get(&device.at("data/reading")).await.not_found();
    assert_eq!(nora.post(&device.door("reading"), json!(1)).await.faults(), ["query.deviceId"]);
    assert_eq!(sven.get(&device.at("data/reading")).await.list_of("/payload"), [1]);
    device.posts("reading", json!(2)).await.created();
    let count = async |organization: &str| {
        ana.get(&format!("/v2/organizations/{organization}")).await.ok()["deviceCount"].clone()
    };
    assert_eq!(
        (count(&north).await, count(&south).await, count(&ana.organization).await),
        (json!(0), json!(1), json!(1))
    );
}

#[tokio::test]
async fn device_deleted_while_it_posts_is_gone() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.designs(crate::support::designs::fridge()).await;
    for _ in 0..5 {
        let device = ana.creates_device_of(&project, "fridge").await;
        let speaking = futures::future::join_all((0..10).map(|temp| device.posts("reading", json!({"temp": temp}))));
        let url = device.url();
        let (answers, deleted) = tokio::join!(speaking, ana.delete(&url));
        deleted.no_content();
        for answer in answers {
            assert!(matches!(answer.status.as_u16(), 201 | 400 | 401), "{answer:?}");
        }
        device.posts("reading", json!({"temp": 1})).await.unauthenticated();
        ana.get(&device.at("events")).await.not_found();
    }
    assert_eq!(ana.get("/v2/devices").await.ok()["meta"]["totalDocs"], 0);
}
