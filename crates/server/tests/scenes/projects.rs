//! Projects and their specifications.

use serde_json::{Value, json};

use crate::support::designs::{fridge, to};
use crate::support::person::text;
use crate::support::{Person, TestApp, on_both_registries};

on_both_registries!(
    a_project_is_created_renamed_and_listed,
    inherited_project_hides_its_owner,
    usable_projects_are_listed_with_those_from_above,
    specification_is_stored_unchanged,
    specification_keeps_digits_and_order,
    storage_elements_follow_the_design,
    design_with_faults_leaves_the_old_one_in_force,
);

fn place(project: &str) -> String {
    format!("/v2/projects/{project}/specification")
}

// Holds: project.members, GET /v2/projects, POST /v2/projects, GET /v2/projects/{id}, PUT /v2/projects/{id}, c1.ids,
// c5.project
async fn a_project_is_created_renamed_and_listed(app: &TestApp) {
    let ana = app.developer("ana").await;
    let made = ana.post("/v2/projects", json!({"name": "cold", "type": "ignored"})).await.created();
    let id = text(&made, "id");
    let mut expected = json!({
        "id": id,
        "name": "cold",
        "type": "api",
        "uuid": id,
        "organizationId": ana.organization,
        "organizationName": "ana's company",
        "createdBy": ana.id,
        "createdAt": "2027-01-15T08:00:00.000Z",
        "updatedAt": "2027-01-15T08:00:00.000Z",
    });
    assert_eq!(made, expected);
    app.wait_seconds(1);
    let north = ana.founds("North", &ana.organization).await;
    let url = format!("/v2/projects/{id}");
    (expected["name"], expected["updatedAt"]) = (json!("colder"), json!("2027-01-15T08:00:01.000Z"));
    assert_eq!(ana.put(&url, json!({"name": "colder"})).await.ok(), expected);
    (expected["organizationId"], expected["organizationName"]) = (json!(north), json!("North"));
    assert_eq!(ana.put(&url, json!({"name": "colder", "organizationId": north})).await.ok(), expected);
    assert_eq!(ana.get(&url).await.ok(), expected);
    assert_eq!(ana.put(&url, json!({})).await.faults(), ["name"]);
    ana.creates_project("warm").await;
    let list = async |query: &str| ana.get(&format!("/v2/projects?{query}")).await.names();
    assert_eq!(list("").await, ["warm"]);
    assert_eq!(list("depth=all").await, ["colder", "warm"]);
    assert_eq!(list("depth=all&sortBy=-name").await, ["warm", "colder"]);
    assert_eq!(list("depth=all&searchText=COLD").await, ["colder"]);
    assert_eq!(list(&format!("depth=all&searchText={id}")).await, ["colder"]);
    assert_eq!(list("depth=all&filter[type]=api").await, ["colder", "warm"]);
    assert_eq!(list("depth=all&filter[type]=other").await, [""; 0]);
    for other in ["filter[name]", "filter[type][ne]", "filter"] {
        let refused = ana.get(&format!("/v2/projects?{other}=api&page=0")).await.faults();
        assert_eq!(refused, [format!("query.{other}"), "query.page".to_owned()]);
    }
}

// Holds: c2.projects
async fn inherited_project_hides_its_owner(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    let nora = ana.invites_into(&north, "nora", "developer").await;
    let eve = ana.invites("eve", "developer").await;
    let (hers, eves) = (ana.project().await.to_owned(), eve.creates_project("of eve").await);
    let owner = |project: &Value| ["organizationId", "organizationName", "createdBy"].map(|name| project[name].clone());
    for project in [&hers, &eves] {
        let seen = nora.get(&format!("/v2/projects/{project}")).await.ok();
        assert_eq!(owner(&seen), [json!(null), json!(null), json!(null)]);
        let own = ana.get(&format!("/v2/projects/{project}")).await.ok();
        assert_eq!(owner(&own)[..2], [json!(ana.organization), json!("ana's company")]);
    }
    // Its creator is shown once that user is visible.
    let moved = json!({"role": "developer", "company": "Acme", "organizationId": north});
    ana.put(&format!("/v2/users/{}", eve.id), moved).await.ok();
    let seen = nora.get(&format!("/v2/projects/{eves}")).await.ok();
    assert_eq!(owner(&seen), [json!(null), json!(null), json!(eve.id)]);
    // The caller's own project is shown completely, whoever created it.
    let made = ana.post("/v2/projects", json!({"name": "cold", "organizationId": north})).await.created();
    let seen = nora.get(&format!("/v2/projects/{}", text(&made, "id"))).await.ok();
    assert_eq!(owner(&seen), [json!(north), json!("North"), json!(ana.id)]);
    assert_eq!(nora.get("/v2/projects?depth=all").await.list_of("/organizationId"), [json!(north)]);
}

// Holds: GET /v2/projects, c18.usable
async fn usable_projects_are_listed_with_those_from_above(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    let (far, south) = (ana.founds("Far", &north).await, ana.founds("South", &ana.organization).await);
    let nora = ana.invites_into(&north, "nora", "technician").await;
    app.stranger("bob").await.creates_project("a of bob").await;
    for (name, owner) in [("b top", &ana.organization), ("c north", &north), ("e far", &far), ("d south", &south)] {
        ana.post("/v2/projects", json!({"name": name, "organizationId": owner})).await.created();
    }
    let list = async |query: &str| nora.get(&format!("/v2/projects?{query}")).await.names();
    assert_eq!(list("").await, ["c north"]);
    assert_eq!(list("usable=false").await, ["c north"]);
    assert_eq!(list("usable=true").await, ["b top", "c north"]);
    assert_eq!(list("usable=true&depth=all&sortBy=-name").await, ["e far", "c north", "b top"]);
    assert_eq!(list(&format!("usable=true&organizationId={far}")).await, ["b top", "c north", "e far"]);
    assert_eq!(list("usable=true&searchText=TOP").await, ["b top"]);
    assert_eq!(list("usable=true&filter[type]=other").await, [""; 0]);
    for (page, names) in [(1, &["b top", "c north"][..]), (2, &["e far"]), (3, &[])] {
        let whole = nora.get(&format!("/v2/projects?usable=true&depth=all&limit=2&page={page}")).await.ok();
        assert_eq!((&whole["meta"]["totalDocs"], &whole["meta"]["totalPages"]), (&json!(3), &json!(2)));
        let listed = whole["data"].as_array().unwrap().iter().map(|project| text(project, "name"));
        assert_eq!(listed.collect::<Vec<_>>(), names);
    }
    // An inherited project in the list shows the same as by itself, and a device can use it.
    let top = nora.get("/v2/projects?usable=true&limit=1").await.ok()["data"][0].clone();
    assert_eq!(
        ["organizationId", "organizationName", "createdBy"].map(|name| top[name].clone()),
        [json!(null), json!(null), json!(null)]
    );
    assert_eq!(nora.get(&format!("/v2/projects/{}", text(&top, "id"))).await.ok(), top);
    nora.post("/v2/devices", json!({"name": "fridge", "projectUuid": top["id"]})).await.created();
    // A user who sees the top organization sees everything.
    let seen = ana.get(&format!("/v2/projects?usable=true&organizationId={far}")).await;
    let organizations = [json!(ana.organization), json!(north), json!(far)];
    assert_eq!(seen.list_of("/organizationId"), organizations);
    // A hidden part of the tree is not found.
    nora.get(&format!("/v2/projects?usable=true&organizationId={south}")).await.not_found();
    nora.get(&format!("/v2/projects?usable=true&organizationId={}", ana.organization)).await.not_found();
    assert_eq!(nora.get("/v2/projects?usable=yes&page=0").await.faults(), ["query.page", "query.usable"]);
}

// Holds: specification.createVersion, specification.description, specification.times, specification.meta,
// specification.planes, GET /v2/projects/{id}/specification, PUT /v2/projects/{id}/specification,
// version.createVersion, c1.put
async fn specification_is_stored_unchanged(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("cold").await;
    let first = ana.get(&place(&project)).await.ok();
    assert_eq!((&first["planes"], &first["createVersion"]), (&json!({}), &json!("2")));
    app.wait_seconds(5);
    let mut elements = fridge();
    elements["reading"]["position"] = json!({"x": 1.50, "y": 2});
    let body = json!({
        "name": "cold design", "createVersion": "2.1", "description": "keeps cold", "meta": {"author": "ana"},
        "planes": {"cloud": {"elements": elements}, "edge": {"anything": ["goes", {"here": null}]}},
    });
    let mut expected = body.clone();
    (expected["created"], expected["lastModified"]) = (first["created"].clone(), json!("2027-01-15T08:00:05.000Z"));
    assert_eq!(ana.put(&place(&project), body).await.ok(), expected);
    assert_eq!(ana.get(&place(&project)).await.ok(), expected);
    // A specification is overwritten: omitted members get their defaults.
    let bare = ana.put(&place(&project), json!({"name": "bare"})).await.ok();
    assert_eq!((&bare["planes"], &bare["meta"], &bare["description"]), (&json!({}), &json!({}), &json!("")));
    assert_eq!(bare["createVersion"], "2");
}

// Holds: c11.planes
async fn specification_keeps_digits_and_order(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("exact").await;
    let meta = r#"{"z":12345678901234567890123,"a":1.10,"m":{"y":1e300,"b":-0.0}}"#;
    let planes = r#"{"edge":{"z":[0.1000,18446744073709551616],"a":"é \" \\"},"cloud":{"elements":{}},"10":1,"9":2}"#;
    let body = format!("{{ \"name\" : \"exact\",\n \"planes\": {planes} , \"meta\" :{meta}}}");
    let request = ana.request(reqwest::Method::PUT, &place(&project)).header("content-type", "application/json");
    let written = app.send(request.body(body)).await.is(200);
    let fetched = ana.get(&place(&project)).await.is(200);
    for answer in [written, fetched] {
        assert!(answer.text.contains(&format!("\"meta\":{meta}")), "{}", answer.text);
        assert!(answer.text.contains(&format!("\"planes\":{planes}")), "{}", answer.text);
    }
}

async fn storage_elements_follow_the_design(app: &TestApp) {
    let ana = app.developer("ana").await;
    let storing = |names: &[&str]| {
        let links: Vec<Value> = names.iter().map(|name| to(name, "store")).collect();
        let mut elements = json!({"reading": {"type": "deviceEvent", "triggers": {"eventReceived": links}}});
        for name in names {
            elements[*name] = json!({"type": "storage"});
        }
        elements
    };
    let project = ana.designs(storing(&["kept", "left"])).await;
    let device = ana.creates_device_of(&project, "d").await;
    let elements = async || {
        let list = ana.get(&device.at("storage")).await.ok();
        let names = list["storageElements"].as_array().unwrap().iter().map(|element| element["name"].clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(elements().await, ["kept", "left"]);
    ana.redesigns(&project, storing(&["kept", "new"])).await.ok();
    // An element that the design no longer declares is listed only if it has data.
    assert_eq!(elements().await, ["kept", "new"]);
    ana.get(&device.at("data/left")).await.not_found();
    assert_eq!(ana.get(&device.at("data/new")).await.list_of("/id").len(), 0);
    device.posts("reading", json!(1)).await.created();
    ana.redesigns(&project, storing(&["left"])).await.ok();
    assert_eq!(elements().await, ["kept", "left", "new"]);
    device.posts("reading", json!(2)).await.created();
    assert_eq!(ana.get(&device.at("data/kept")).await.list_of("/payload"), [json!(1)]);
    assert_eq!(ana.get(&device.at("data/left")).await.list_of("/payload"), [json!(2)]);
    ana.delete(&device.at("storage/kept")).await.no_content();
    assert_eq!(elements().await, ["left", "new"]);
}

/// Returns the faults of a cloud plane.
async fn faults(ana: &Person<'_>, project: &str, elements: Value) -> Vec<String> {
    let prefix = "planes.cloud.elements.";
    let found = ana.redesigns(project, elements).await.faults();
    found.into_iter().map(|path| path.strip_prefix(prefix).unwrap_or(&path).to_owned()).collect()
}

// Holds: c11.faults
async fn design_with_faults_leaves_the_old_one_in_force(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(fridge()).await;
    let device = ana.creates_device_of(&project, "fridge").await;
    let before = ana.get(&place(&project)).await.ok();
    let all_wrong = json!({
        "a": {"type": "teleport"},
        "b": {"type": "condition", "properties": {"expression": "payload >"}},
        "c": {"type": "deviceEvent", "triggers": {"arrived": [], "eventReceived": [to("nobody", "store"), to("d", "fly")]}},
        "d": {"type": "storage"},
        "e": {"type": "transform", "properties": {"expression": "payload"}, "triggers": {"result": [to("f", "evaluate")]}},
        "f": {"type": "transform", "properties": {"expression": "payload"}, "triggers": {"result": [to("e", "evaluate")]}},
        "g": {"type": "cloudEvent", "properties": {"ttlMinutes": -1}},
        "h": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": "eight"}},
        "i": 5,
        "": {"type": "storage"},
    });
    let found = faults(&ana, &project, all_wrong).await;
    for expected in [
        "a.type",
        "b.properties.expression",
        "c.triggers.arrived",
        "c.triggers.eventReceived[0].element",
        "c.triggers.eventReceived[1].ability",
        "f.triggers.result[0].element",
        "g.properties.ttlMinutes",
        "h.properties.defaultValue",
        "i",
        "",
    ] {
        assert!(found.contains(&expected.to_owned()), "{expected} is missing among {found:?}");
    }
    assert_eq!(found.len(), 10, "{found:?}");
    // Faults of the body and of the design are reported together, in a dry run too.
    let body = json!({"name": "", "planes": {"cloud": {"elements": {"a": {"type": "teleport"}}}}});
    let element = "planes.cloud.elements.a.type";
    assert_eq!(ana.put(&place(&project), body.clone()).await.faults(), ["name", element]);
    let tried = ana.post(&format!("{}/test", place(&project)), json!({"payload": null, "specification": body})).await;
    assert_eq!(tried.faults(), ["elementName", "payload", &format!("specification.{element}")]);
    let history =
        json!({"history": {"type": "deviceSetting", "properties": {"inputType": "text", "defaultValue": ""}}});
    assert_eq!(faults(&ana, &project, history).await, ["history"]);
    let both = json!({"description": 5, "planes": {"cloud": {"elements": []}}});
    assert_eq!(ana.put(&place(&project), both).await.faults(), ["description", "name", "planes.cloud.elements"]);
    let plane = json!({"name": "x", "planes": {"cloud": {"elements": []}}});
    assert_eq!(ana.put(&place(&project), plane).await.faults(), ["planes.cloud.elements"]);

    assert_eq!(ana.get(&place(&project)).await.ok(), before);
    device.posts("reading", json!({"temp": 20})).await.created();
    assert_eq!(ana.get(&device.url()).await.ok()["statusText"], "critical");
}

#[tokio::test]
async fn new_design_runs_on_the_next_event_of_every_device() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.creates_project("turns").await;
    let mut devices = Vec::new();
    for number in 0..3 {
        devices.push(ana.creates_device_of(&project, &format!("{number}")).await);
    }
    for version in 0..10 {
        let elements = json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("version", "evaluate")]}},
            "version": {"type": "transform", "properties": {"expression": version.to_string()},
                "triggers": {"result": [to("out", "store")]}},
            "out": {"type": "storage"},
        });
        ana.redesigns(&project, elements).await.ok();
        for device in &devices {
            device.posts("reading", json!(0)).await.created();
            assert_eq!(ana.get(&device.at("last/out")).await.ok()["values"], version);
        }
    }
}

#[tokio::test]
async fn a_device_follows_its_project_and_its_name_at_once() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let telling = |words: &str| {
        json!({
            "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("tell", "evaluate")]}},
            "tell": {"type": "transform", "properties": {"expression": words}, "triggers": {"result": [to("out", "store")]}},
            "out": {"type": "storage"},
        })
    };
    let one = ana.designs(telling("'one ' + device.name")).await;
    let other = ana.designs(telling("'other ' + device.meta.floor")).await;
    let device = ana.creates_device_of(&one, "fridge").await;
    let says = async || {
        device.posts("reading", json!(0)).await.created();
        ana.get(&device.at("last/out")).await.ok()["values"].clone()
    };
    assert_eq!(says().await, "one fridge");
    ana.put(&device.url(), json!({"name": "icebox", "projectUuid": one})).await.ok();
    assert_eq!(says().await, "one icebox");
    ana.put(&device.url(), json!({"name": "icebox", "projectUuid": other, "meta": {"floor": "3"}})).await.ok();
    assert_eq!(says().await, "other 3");
}
