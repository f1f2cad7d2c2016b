//! Alarms: raised by designs, listed, and changed by users.

use futures::future::join_all;
use isobar_power::settled;
use serde_json::{Value, json};

use crate::support::designs::{to, to_with};
use crate::support::person::text;
use crate::support::stream::Stream;
use crate::support::{Device, NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    alarm_lives_until_it_is_cleared_and_acknowledged,
    alarms_are_listed_active_worst_newest_first,
    alarms_are_filtered_by_each_field,
    alarms_of_other_tenants_are_not_found,
    viewer_reads_alarms_and_does_not_acknowledge_them,
    assignee_is_a_user_who_can_see_the_alarm,
    assignee_who_no_longer_sees_the_alarm_is_null,
    invalid_fields_of_an_alarm_are_each_named,
    acknowledgements_at_once_run_the_design_once,
    devices_count_their_active_alarms,
    notification_names_its_device_and_alarm,
);

/// Returns a design that raises and clears three alarms, one of each severity, under the key of the event, and stores
/// acknowledgements.
pub fn raising() -> Value {
    let raised = |element: &str| to_with(element, "raise", json!({"key": "payload.key", "value": "payload.value"}));
    let cleared = |element: &str| to_with(element, "clear", json!({"key": "payload.key"}));
    let alarm = |severity: &str| {
        json!({
            "type": "alarm",
            "properties": {"title": "{{ device.name }} is {{ payload.value }}", "severity": severity},
            "triggers": {"acknowledged": [to("acknowledged", "store")]},
        })
    };
    let event = |link: Value| json!({"type": "deviceEvent", "triggers": {"eventReceived": [link]}});
    json!({
        "cold": event(raised("isCold")),
        "warm": event(raised("isWarm")),
        "hot": event(raised("isHot")),
        "warmEnds": event(cleared("isWarm")),
        "hotEnds": event(cleared("isHot")),
        "isCold": alarm("info"),
        "isWarm": alarm("warning"),
        "isHot": alarm("critical"),
        "acknowledged": {"type": "storage"},
    })
}

/// Raises an alarm of a device, and returns it as it is listed.
pub async fn raises(person: &Person<'_>, device: &Device<'_>, event: &str, key: &str) -> Value {
    device.posts(event, json!({"key": key, "value": 9.5})).await.created();
    let query = format!("/v2/alarms?depth=all&filter[deviceId][eq]={}&sortBy=-updatedAt,-raisedAt&limit=1", device.id);
    person.get(&query).await.ok()["data"][0].clone()
}

fn url_of(alarm: &Value) -> String {
    format!("/v2/alarms/{}", text(alarm, "id"))
}

/// Returns the events in an alarm's history, in order.
async fn history(person: &Person<'_>, alarm: &Value) -> Vec<String> {
    let alarm = person.get(&url_of(alarm)).await.ok();
    alarm["history"].as_array().unwrap().iter().map(|entry| text(entry, "what").to_owned()).collect()
}

/// Returns the keys of the alarms in a list.
async fn keys(person: &Person<'_>, query: &str) -> Vec<Value> {
    person.get(&format!("/v2/alarms?{query}")).await.list_of("/key")
}

// Holds: GET /v2/alarms/{id}, c18.alarms
async fn alarm_lives_until_it_is_cleared_and_acknowledged(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(raising()).await;
    let fridge = ana.creates_device_of(&project, "fridge").await;
    let first = raises(&ana, &fridge, "warm", "door").await;
    let expected = json!({
        "id": first["id"],
        "organizationId": ana.organization,
        "projectId": project,
        "deviceId": fridge.id,
        "deviceName": "fridge",
        "elementName": "isWarm",
        "key": "door",
        "title": "fridge is 9.5",
        "severity": "warning",
        "state": "active",
        "acknowledged": false,
        "raisedAt": "2027-01-15T08:00:00.000Z",
        "clearedAt": null,
        "acknowledgedAt": null,
        "acknowledgedBy": null,
        "assigneeId": null,
        "count": 1,
        "value": 9.5,
        "createdAt": first["createdAt"],
        "updatedAt": first["updatedAt"],
    });
    assert_eq!(first, expected);
    app.wait_seconds(1);
    let again = raises(&ana, &fridge, "warm", "door").await;
    assert_eq!((&again["id"], &again["count"]), (&first["id"], &json!(2)));
    fridge.posts("warmEnds", json!({"key": "door"})).await.created();
    assert_eq!(keys(&ana, "filter[state][eq]=cleared").await, ["door"]);
    let over = ana.put(&url_of(&first), json!({"acknowledged": true, "comment": "shut"})).await.ok();
    assert_eq!((&over["state"], &over["acknowledgedBy"]), (&json!("cleared"), &json!(ana.id)));
    assert_eq!(history(&ana, &first).await, ["raised", "cleared", "acknowledged"]);
    assert_eq!(over["history"][2]["comment"], "shut");
    // It stays as it is, and a later one is another alarm.
    assert_eq!(ana.put(&url_of(&first), json!({"acknowledged": false})).await.faults(), ["acknowledged"]);
    let other = raises(&ana, &fridge, "warm", "door").await;
    assert_eq!((other["id"] == first["id"], &other["count"]), (false, &json!(1)));
}

// Holds: GET /v2/alarms, GET /v2/alarms/summary, c18.alarmsList
async fn alarms_are_listed_active_worst_newest_first(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(raising()).await, "fridge").await;
    for (event, key) in [("cold", "a"), ("hot", "b"), ("warm", "c"), ("hot", "d"), ("warm", "e")] {
        raises(&ana, &device, event, key).await;
        app.wait_seconds(1);
    }
    device.posts("hotEnds", json!({"key": "d"})).await.created();
    assert_eq!(keys(&ana, "").await, ["b", "e", "c", "a", "d"]);
    for (sort, expected) in [
        ("raisedAt", ["a", "b", "c", "d", "e"]),
        ("-raisedAt", ["e", "d", "c", "b", "a"]),
        ("severity,raisedAt", ["a", "c", "e", "b", "d"]),
        ("-state,-raisedAt", ["d", "e", "c", "b", "a"]),
        ("deviceName,elementName,raisedAt", ["a", "b", "d", "c", "e"]),
    ] {
        assert_eq!(keys(&ana, &format!("sortBy={sort}")).await, expected, "{sort}");
    }
    let page = ana.get("/v2/alarms?sortBy=raisedAt&limit=2&page=3").await.ok();
    let meta = json!({
        "totalDocs": 5, "page": 3, "limit": 2, "hasPrevPage": true, "hasNextPage": false, "totalPages": 3,
    });
    assert_eq!((&page["meta"], &page["data"][0]["key"]), (&meta, &json!("e")));
    assert_eq!(keys(&ana, "limit=2&page=4").await, [] as [Value; 0]);
    let (mut after, mut seen) = (String::new(), Vec::new());
    loop {
        let page = ana.get(&format!("/v2/alarms?sortBy=-createdAt&limit=2{after}")).await.ok();
        seen.extend(page["data"].as_array().unwrap().iter().map(|alarm| text(alarm, "key").to_owned()));
        let Some(next) = page["meta"]["after"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, ["e", "d", "c", "b", "a"]);
    let summary = json!({"critical": 1, "warning": 2, "info": 1, "unacknowledged": 5});
    assert_eq!(ana.get("/v2/alarms/summary").await.ok(), summary);
    let wrong = ana.get("/v2/alarms?page=0&limit=0&sortBy=value&depth=0&organizationId=x").await;
    assert_eq!(wrong.faults(), ["query.depth", "query.limit", "query.organizationId", "query.page", "query.sortBy"]);
}

// Holds: GET /v2/alarms, c18.alarmsList
async fn alarms_are_filtered_by_each_field(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [one, two] = [ana.designs(raising()).await, ana.designs(raising()).await];
    let [fridge, oven] = [ana.creates_device_of(&one, "fridge").await, ana.creates_device_of(&two, "oven").await];
    raises(&ana, &fridge, "cold", "a").await;
    app.wait_seconds(1);
    let taken = raises(&ana, &fridge, "warm", "b").await;
    ana.put(&url_of(&taken), json!({"acknowledged": true, "assigneeId": ana.id})).await.ok();
    app.wait_seconds(1);
    raises(&ana, &oven, "hot", "c").await;
    oven.posts("hotEnds", json!({"key": "c"})).await.created();
    for (filter, expected) in [
        ("state][eq]=active", &["b", "a"][..]),
        ("state][ne]=active", &["c"]),
        ("severity][eq]=critical", &["c"]),
        ("severity][gte]=warning", &["b", "c"]),
        ("severity][in]=info,critical", &["a", "c"]),
        (&format!("deviceId][eq]={}", oven.id), &["c"]),
        (&format!("deviceId][nin]={},{NOBODY}", oven.id), &["b", "a"]),
        (&format!("projectId][eq]={one}"), &["b", "a"]),
        ("elementName][eq]=isWarm", &["b"]),
        ("key][in]=a,c", &["a", "c"]),
        ("acknowledged][eq]=true", &["b"]),
        ("acknowledged][eq]=false", &["a", "c"]),
        (&format!("assigneeId][eq]={}", ana.id), &["b"]),
        ("assigneeId][eq]=null", &["a", "c"]),
        ("raisedAt][gt]=2027-01-15T08:00:00Z", &["b", "c"]),
        ("raisedAt][lt]=2027-01-15T08:00:01Z", &["a"]),
    ] {
        assert_eq!(keys(&ana, &format!("filter[{filter}")).await, expected, "{filter}");
    }
    let both = "filter[state][eq]=active&filter[severity][lt]=warning";
    assert_eq!(keys(&ana, both).await, ["a"]);
    let id = text(&taken, "id");
    assert_eq!(keys(&ana, &format!("entityList={id},{NOBODY}")).await, ["b"]);
    for wrong in ["state][eq]=over", "severity][gt]=3", "deviceId][eq]=x", "acknowledged][eq]=1", "raisedAt][lt]=soon"]
    {
        let field = wrong.split('=').next().unwrap();
        assert_eq!(ana.get(&format!("/v2/alarms?filter[{wrong}")).await.faults(), [format!("query.filter[{field}")]);
    }
    assert_eq!(ana.get("/v2/alarms?filter[value][eq]=1").await.faults(), ["query.filter[value][eq]"]);
}

// Holds: GET /v2/alarms, GET /v2/alarms/summary
async fn alarms_of_other_tenants_are_not_found(app: &TestApp) {
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let north = ana.founds("North", &ana.organization).await;
    let project = ana.designs(raising()).await;
    let body = json!({"name": "fridge", "projectUuid": project, "organizationId": north});
    let device = ana.creates_device_as(body).await;
    let alarm = raises(&ana, &device, "warm", "a").await;
    for query in ["", "depth=all", "filter[state][eq]=active&depth=all", &format!("entityList={}", text(&alarm, "id"))]
    {
        assert_eq!(keys(&bob, query).await, [] as [Value; 0], "{query}");
    }
    let nothing = json!({"critical": 0, "warning": 0, "info": 0, "unacknowledged": 0});
    assert_eq!(bob.get("/v2/alarms/summary?depth=all").await.ok(), nothing);
    bob.get(&url_of(&alarm)).await.not_found();
    bob.put(&url_of(&alarm), json!({"acknowledged": 7})).await.not_found();
    for list in ["alarms", "alarms/summary"] {
        bob.get(&format!("/v2/{list}?organizationId={}", ana.organization)).await.not_found();
    }
    // By default a list covers the caller's own organization.
    assert_eq!(keys(&ana, "").await, [] as [Value; 0]);
    assert_eq!(keys(&ana, &format!("organizationId={north}")).await, ["a"]);
    assert_eq!(ana.get("/v2/alarms/summary?depth=2").await.ok()["warning"], 1);
    // A moved device takes its alarms along, and so does a deleted one.
    let body = json!({"name": "fridge", "projectUuid": project, "organizationId": ana.organization});
    ana.put(&device.url(), body).await.ok();
    assert_eq!(keys(&ana, "").await, ["a"]);
    ana.delete(&device.url()).await.no_content();
    ana.get(&url_of(&alarm)).await.not_found();
    assert_eq!(keys(&ana, "depth=all").await, [] as [Value; 0]);
}

// Holds: GET /v2/alarms/{id}, PUT /v2/alarms/{id}, c18.alarmsPut
async fn viewer_reads_alarms_and_does_not_acknowledge_them(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [viewer, tom] = [ana.invites("viewer", "basicUser").await, ana.invites("tom", "technician").await];
    let device = ana.creates_device_of(&ana.designs(raising()).await, "fridge").await;
    let alarm = raises(&ana, &device, "warm", "a").await;
    assert_eq!(keys(&viewer, "").await, ["a"]);
    assert_eq!(viewer.get(&url_of(&alarm)).await.ok()["history"][0]["what"], "raised");
    viewer.get("/v2/alarms/summary").await.ok();
    // The role comes before the body.
    viewer.put(&url_of(&alarm), json!({"acknowledged": 7})).await.forbidden();
    viewer.put(&url_of(&alarm), json!({"acknowledged": true})).await.forbidden();
    assert_eq!(ana.get(&url_of(&alarm)).await.ok()["acknowledged"], false);
    let done = tom.put(&url_of(&alarm), json!({"acknowledged": true})).await.ok();
    assert_eq!((&done["acknowledged"], &done["acknowledgedBy"]), (&json!(true), &json!(tom.id)));
    // While it is active the acknowledgement can be withdrawn.
    let back = tom.put(&url_of(&alarm), json!({"acknowledged": false})).await.ok();
    assert_eq!((&back["acknowledgedAt"], &back["acknowledgedBy"]), (&Value::Null, &Value::Null));
    assert_eq!(history(&ana, &alarm).await, ["raised", "acknowledged", "unacknowledged"]);
    ana.put(&format!("/v2/alarms/{NOBODY}"), json!({})).await.not_found();
    ana.get("/v2/alarms/nonsense").await.not_found();
}

// Holds: PUT /v2/alarms/{id}, c18.alarmsPut
async fn assignee_is_a_user_who_can_see_the_alarm(app: &TestApp) {
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let [north, south] = [ana.founds("North", &ana.organization).await, ana.founds("South", &ana.organization).await];
    let nora = ana.invites_into(&north, "nora", "technician").await;
    let simon = ana.invites_into(&south, "simon", "technician").await;
    let project = ana.designs(raising()).await;
    let body = json!({"name": "fridge", "projectUuid": project, "organizationId": north});
    let device = ana.creates_device_as(body).await;
    let url = url_of(&raises(&ana, &device, "warm", "a").await);
    // No user, a user out of sight, and a user who cannot see the device.
    for wrong in [NOBODY, "nonsense", &bob.id, &simon.id] {
        assert_eq!(ana.put(&url, json!({"assigneeId": wrong})).await.faults(), ["assigneeId"], "{wrong}");
    }
    // A caller cannot name a user whom it cannot see.
    assert_eq!(nora.put(&url, json!({"assigneeId": ana.id})).await.faults(), ["assigneeId"]);
    let given = ana.put(&url, json!({"assigneeId": nora.id, "comment": "please"})).await.ok();
    assert_eq!((&given["assigneeId"], &given["acknowledged"]), (&json!(nora.id), &json!(false)));
    let entry = given["history"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&entry["what"], &entry["by"], &entry["assigneeId"]),
        (&json!("assigned"), &json!(ana.id), &json!(nora.id))
    );
    assert_eq!(entry["comment"], "please");
    // An unchanged alarm can be sent back, and adds nothing to the history.
    let count = given["history"].as_array().unwrap().len();
    let same = ana.put(&url, given.clone()).await.ok();
    assert_eq!(same["history"].as_array().unwrap().len(), count);
    assert_eq!(ana.put(&url, json!({"assigneeId": null})).await.ok()["assigneeId"], Value::Null);
}

// Holds: PUT /v2/alarms/{id}, c18.alarmsAssignee
async fn assignee_who_no_longer_sees_the_alarm_is_null(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [north, south] = [ana.founds("North", &ana.organization).await, ana.founds("South", &ana.organization).await];
    let project = ana.designs(raising()).await;
    let in_north = json!({"name": "fridge", "projectUuid": project, "organizationId": north});
    let device = ana.creates_device_as(in_north.clone()).await;
    let other = ana.creates_device_of(&project, "other").await;
    let sees = ana.invites("sees", "technician").await;
    let with = |change: Value| {
        let mut body = json!({"role": "technician", "company": "North"});
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        body
    };
    let [alarm, kept] = [raises(&ana, &device, "warm", "a").await, raises(&ana, &other, "warm", "b").await];
    ana.put(&url_of(&kept), json!({"assigneeId": sees.id})).await.ok();
    for (number, change) in ["delete", "disable", "move", "move the device", "move its organization"].iter().enumerate()
    {
        let nora = ana.invites_into(&north, &format!("nora{number}"), "technician").await;
        let given = ana.put(&url_of(&alarm), json!({"assigneeId": nora.id})).await.ok();
        assert_eq!(given["assigneeId"], json!(nora.id), "{change}");
        app.wait_seconds(1);
        let user = format!("/v2/users/{}", nora.id);
        match *change {
            "delete" => ana.delete(&user).await.no_content(),
            "disable" => drop(ana.put(&user, with(json!({"disabled": true}))).await.ok()),
            "move" => drop(ana.put(&user, with(json!({"organizationId": south}))).await.ok()),
            "move the device" => {
                let body = json!({"name": "fridge", "projectUuid": project, "organizationId": south});
                ana.put(&device.url(), body).await.ok();
                ana.put(&device.url(), in_north.clone()).await.ok();
            }
            _ => {
                // Who is above a device sees it, and does no longer when its organization moves away.
                let below = ana.founds("Below", &north).await;
                let body = json!({"name": "fridge", "projectUuid": project, "organizationId": below});
                ana.put(&device.url(), body).await.ok();
                assert_eq!(ana.get(&url_of(&alarm)).await.ok()["assigneeId"], json!(nora.id));
                ana.put(&format!("/v2/organizations/{below}"), json!({"name": "Below", "parentId": south})).await.ok();
            }
        }
        let after = ana.get(&url_of(&alarm)).await.ok();
        let entry = after["history"].as_array().unwrap().last().unwrap();
        let expected = json!({"at": after["updatedAt"], "what": "assigned", "by": null});
        assert_eq!((&after["assigneeId"], entry), (&Value::Null, &expected), "{change}");
    }
    assert_eq!(keys(&ana, "depth=all&filter[assigneeId][eq]=null").await, ["a"]);
    assert_eq!(ana.get(&url_of(&kept)).await.ok()["assigneeId"], json!(sees.id));
}

// Holds: PUT /v2/alarms/{id}
async fn invalid_fields_of_an_alarm_are_each_named(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(raising()).await, "fridge").await;
    let url = url_of(&raises(&ana, &device, "warm", "a").await);
    let all = ["acknowledged", "assigneeId", "comment", "state"];
    let wrong = json!({"acknowledged": "yes", "assigneeId": 1, "comment": "", "state": "over"});
    assert_eq!(ana.put(&url, wrong).await.faults(), all);
    assert_eq!(ana.put(&url, json!({"comment": "x".repeat(1001)})).await.faults(), ["comment"]);
    assert_eq!(
        ana.put(&url, json!({"assigneeId": NOBODY, "state": "cleared", "acknowledged": 1})).await.faults(),
        ["acknowledged"]
    );
    assert_eq!(ana.put(&url, json!([])).await.faults(), ["body"]);
    let told = ana.put(&url, json!({"comment": "looked at it"})).await.ok();
    assert_eq!(told["history"][1]["what"], "comment");
    let cleared = ana.put(&url, json!({"state": "cleared"})).await.ok();
    assert_eq!(cleared["state"], "cleared");
    // No user can make an alarm active.
    assert_eq!(ana.put(&url, json!({"state": "active"})).await.ok()["state"], "cleared");
}

// Holds: c18.alarmsPut
async fn acknowledgements_at_once_run_the_design_once(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(raising()).await, "fridge").await;
    let alarm = raises(&ana, &device, "warm", "a").await;
    let url = url_of(&alarm);
    let answers = join_all((0..8).map(|_| ana.put(&url, json!({"acknowledged": true})))).await;
    for answer in answers {
        assert_eq!(answer.ok()["acknowledged"], true);
    }
    assert_eq!(history(&ana, &alarm).await, ["raised", "acknowledged"]);
    assert_eq!(ana.get(&device.at("data/acknowledged")).await.ok()["meta"]["totalDocs"], 1);
}

// Holds: c18.alarmsDevices
async fn devices_count_their_active_alarms(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(raising()).await;
    let [fridge, oven] =
        [ana.creates_device_of(&project, "fridge").await, ana.creates_device_of(&project, "oven").await];
    for (event, key) in [("hot", "a"), ("hot", "b"), ("warm", "a")] {
        raises(&ana, &fridge, event, key).await;
    }
    let alarm = raises(&ana, &oven, "warm", "a").await;
    let counts = |critical, warning| json!({"critical": critical, "warning": warning, "info": 0});
    let listed = ana.get("/v2/devices?sortBy=name").await.list_of("/alarms");
    assert_eq!(listed, [counts(2, 1), counts(0, 1)]);
    assert_eq!(ana.get(&fridge.url()).await.ok()["alarms"], counts(2, 1));
    for (filter, names) in [
        ("filter[alarms.critical][gt]=0", &["fridge"][..]),
        ("filter[alarms.critical][eq]=0", &["oven"]),
        ("filter[alarms.critical][lt]=2", &["oven"]),
        ("filter[alarms.warning][gte]=1&sortBy=-name", &["oven", "fridge"]),
        ("filter[alarms.warning][in]=1,7&filter[alarms.critical][ne]=2", &["oven"]),
        ("filter[alarms.info][nin]=0,1", &[]),
    ] {
        assert_eq!(ana.get(&format!("/v2/devices?{filter}")).await.names(), names, "{filter}");
    }
    assert_eq!(ana.get("/v2/devices/summary?filter[alarms.critical][gt]=0").await.ok()["total"], 1);
    let csv =
        ana.get_as("text/csv", "/v2/devices?columns=name,alarms.critical,alarms.warning&sortBy=name").await.is(200);
    assert_eq!(csv.text, "name,alarms.critical,alarms.warning\r\nfridge,2,1\r\noven,0,1\r\n");
    // The map shows the worst of them, and the number of devices with active alarms.
    for device in [&fridge, &oven] {
        ana.patch(&format!("{}/meta", device.url()), json!({"latitude": 46, "longitude": 7})).await.ok();
    }
    let clusters = ana.get("/v2/devices/locations/clusters?cellSize=30").await.ok();
    let told = (&clusters["data"][0]["alarmSeverity"], &clusters["data"][0]["alarmDevices"]);
    assert_eq!(told, (&json!("critical"), &json!(2)));
    assert_eq!(ana.get("/v2/devices/locations").await.list_of("/alarmSeverity"), ["critical", "warning"]);
    let wrong = ana.get("/v2/devices?filter[alarms.critical][gt]=many&filter[alarms.none][eq]=0").await;
    assert_eq!(wrong.faults(), ["query.filter[alarms.critical][gt]", "query.filter[alarms.none][eq]"]);
    // An acknowledged alarm is still active; a cleared one no longer counts.
    ana.put(&url_of(&alarm), json!({"acknowledged": true})).await.ok();
    assert_eq!(ana.get(&oven.url()).await.ok()["alarms"], counts(0, 1));
    oven.posts("warmEnds", json!({"key": "a"})).await.created();
    assert_eq!(ana.get("/v2/devices?sortBy=name").await.list_of("/alarms"), [counts(2, 1), counts(0, 0)]);
    assert_eq!(ana.get(&oven.url()).await.ok()["alarms"], counts(0, 0));
}

// Holds: c18.alarmsTold
async fn notification_names_its_device_and_alarm(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device_of(&ana.designs(raising()).await, "fridge").await;
    let alarm = raises(&ana, &device, "warm", "a").await;
    let told = settled("a notification", async || {
        let told = ana.get("/v2/notifications").await.ok()["data"][0].clone();
        told.is_object().then_some(told)
    });
    let told = told.await;
    assert_eq!((&told["deviceId"], &told["alarmId"]), (&json!(device.id), &alarm["id"]));
    assert_eq!(told["translations"]["en"]["message"], "fridge is 9.5");
}

// Holds: c18.alarmsTold
#[tokio::test]
async fn stream_carries_changed_alarms_to_permitted_users() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let bob = app.stranger("bob").await;
    let project = ana.designs(raising()).await;
    let [fridge, oven] =
        [ana.creates_device_of(&project, "fridge").await, ana.creates_device_of(&project, "oven").await];
    let mut all = Stream::open(&ana, "", None).await;
    let mut one = Stream::open(&ana, &format!("?deviceId={}", oven.id), None).await;
    let mut foreign = Stream::open(&bob, "", None).await;
    let alarm = raises(&ana, &fridge, "warm", "a").await;
    // The event that raised it comes before or after it.
    let mut next_alarm = async || {
        loop {
            let sent = all.next().await;
            if sent.event == "alarm" {
                break sent.data;
            }
        }
    };
    assert_eq!(next_alarm().await, alarm);
    ana.put(&url_of(&alarm), json!({"acknowledged": true})).await.ok();
    assert_eq!(next_alarm().await["acknowledged"], true);
    // Other followers receive nothing of it: their next message is one of their own.
    oven.posts("cold", json!({"key": "b", "value": 1})).await.created();
    let mut events = [one.next().await.data, one.next().await.data];
    events.sort_by_key(|data| data["key"].is_null());
    assert_eq!((&events[0]["key"], &events[1]["deviceId"]), (&json!("b"), &json!(oven.id)));
    let theirs = bob.creates_device("theirs").await;
    theirs.posts("reading", json!(1)).await.created();
    assert_eq!(foreign.next().await.data["deviceId"], json!(theirs.id));
}
