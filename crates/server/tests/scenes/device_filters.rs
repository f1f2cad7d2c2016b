//! The list of devices with filters, and as CSV.

use serde_json::{Value, json};

use crate::support::designs::to_with;
use crate::support::{NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    device_list_is_filtered_by_device_fields,
    metadata_is_filtered_by_its_own_types,
    filter_sees_the_newest_state_of_devices,
    a_list_is_written_as_csv,
    unknown_device_filter_is_refused,
);

/// Creates three devices of two projects, a second apart, the first of which was active.
async fn three<'a>(ana: &Person<'a>) -> [String; 2] {
    let [cold, warm] = [ana.creates_project("cold").await, ana.creates_project("warm").await];
    for (name, project, meta) in [
        ("fridge", &cold, json!({"site": "east", "floor": 3, "deep": {"er": [1, {"x": true}]}})),
        ("freezer", &cold, json!({"site": "west", "floor": "3", "note": null})),
        ("oven", &warm, json!({"floor": 3.0, "site": "=1+1"})),
    ] {
        let body = json!({"name": name, "projectUuid": project, "meta": meta, "description": "a, b"});
        let device = ana.creates_device_as(body).await;
        if name == "fridge" {
            device.posts("reading", json!(1)).await.created();
        }
        ana.app.wait_seconds(1);
    }
    [cold, warm]
}

async fn filtered(ana: &Person<'_>, query: &str) -> Vec<String> {
    ana.get(&format!("/v2/devices?{query}")).await.names()
}

// Holds: c13.deviceFilters
async fn device_list_is_filtered_by_device_fields(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [cold, warm] = three(&ana).await;
    for (query, names) in [
        ("filter[name][gte]=fridge", &["fridge", "oven"][..]),
        ("filter[name][in]=oven,freezer,nothing", &["freezer", "oven"]),
        ("filter[statusInt][eq]=0&sortBy=-createdAt", &["oven", "freezer", "fridge"]),
        ("filter[statusInt][gt]=0", &[]),
        ("filter[createdAt][gt]=2027-01-15T08:00:00Z", &["freezer", "oven"]),
        ("filter[createdAt][gt]=2027-01-15T10:00:00+02:00&filter[createdAt][lt]=2027-01-15T08:00:02Z", &["freezer"]),
        ("filter[updatedAt][lte]=2027-01-15T08:00:00Z", &["fridge"]),
        ("filter[lastActive][eq]=null", &["freezer", "oven"]),
        ("filter[lastActive][gte]=2027-01-15T08:00:00Z", &["fridge"]),
        ("filter[lastActive][lt]=2027-01-15T08:00:00Z", &[]),
        (&format!("filter[projectUuid][eq]={cold}&filter[name][ne]=fridge"), &["freezer"]),
        (&format!("filter[projectUuid][nin]={cold},{NOBODY}&searchText=OV"), &["oven"]),
        (&format!("filter[projectUuid][eq]={warm}&filter[projectUuid][eq]={cold}"), &[]),
    ] {
        assert_eq!(filtered(&ana, query).await, names, "{query}");
    }
    let page = ana.get("/v2/devices?filter[statusInt][eq]=0&limit=1&page=2&sortBy=name").await.ok();
    assert_eq!((&page["meta"]["totalDocs"], &page["data"][0]["name"]), (&json!(3), &json!("fridge")));
    // Hidden devices are not found with any filter.
    let bob = app.stranger("bob").await;
    assert_eq!(filtered(&bob, "filter[name][ne]=x&depth=all").await, [] as [&str; 0]);
    bob.get(&format!("/v2/devices?filter[name][ne]=x&organizationId={}", ana.organization)).await.not_found();
}

// Holds: c13.deviceFilters
async fn metadata_is_filtered_by_its_own_types(app: &TestApp) {
    let ana = app.developer("ana").await;
    three(&ana).await;
    for (query, names) in [
        ("filter[meta.floor][eq]=3", &["fridge", "oven"][..]),
        ("filter[meta.floor][ne]=3", &["freezer"]),
        ("filter[meta.floor][lt]=3.5", &["fridge", "oven"]),
        ("filter[meta.floor][in]=3,x", &["fridge", "oven"]),
        ("filter[meta.site][eq]=east", &["fridge"]),
        ("filter[meta.site][gt]=a", &["freezer", "fridge"]),
        ("filter[meta.note][eq]=null", &["freezer"]),
        ("filter[meta.note][ne]=null", &["fridge", "oven"]),
        ("filter[meta.deep.er.1.x][eq]=true", &["fridge"]),
        ("filter[meta.deep.er.0][gte]=1&filter[meta.site][eq]=east", &["fridge"]),
        ("filter[meta.nowhere][gte]=0", &[]),
        ("filter[meta.nowhere][nin]=0,1&sortBy=-name", &["oven", "fridge", "freezer"]),
    ] {
        assert_eq!(filtered(&ana, query).await, names, "{query}");
    }
}

// Holds: c13.deviceFilters
async fn filter_sees_the_newest_state_of_devices(app: &TestApp) {
    let ana = app.developer("ana").await;
    let design = json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
            to_with("state", "setStatus", json!({"status": "payload.status"})),
            to_with("state", "setValue", json!({"tag": "'n'", "value": "payload.n"}))]}},
        "state": {"type": "deviceMeta"},
    });
    let project = ana.designs(design).await;
    let devices = [ana.creates_device_of(&project, "one").await, ana.creates_device_of(&project, "two").await];
    for n in 0..20 {
        app.wait_seconds(1);
        let device = &devices[n % 2];
        let status = 1 + n % 4;
        device.posts("reading", json!({"n": n, "status": status})).await.created();
        let name = ["one", "two"][n % 2];
        let found = ana.get(&format!("/v2/devices?filter[meta.n][eq]={n}&filter[statusInt][eq]={status}")).await;
        assert_eq!(found.list_of("/meta/n"), [json!(n)]);
        let now = ana.get(&devices[n % 2].url()).await.ok()["lastActive"].as_str().unwrap().to_owned();
        assert_eq!(filtered(&ana, &format!("filter[lastActive][gte]={now}")).await, [name]);
        assert!(!filtered(&ana, &format!("filter[lastActive][lt]={now}")).await.contains(&name.to_owned()));
    }
}

async fn csv(ana: &Person<'_>, query: &str) -> String {
    let answer = ana.get_as("text/csv", &format!("/v2/devices?{query}")).await.is(200);
    assert_eq!(answer.header("content-type"), "text/csv; charset=utf-8; header=present");
    assert_eq!(answer.header("content-disposition"), "attachment; filename=\"devices.csv\"");
    answer.text
}

// Holds: c13.devicesCsv
async fn a_list_is_written_as_csv(app: &TestApp) {
    let ana = app.developer("ana").await;
    let [cold, _] = three(&ana).await;
    // The export is the whole list, and ignores parameters of pages.
    assert_eq!(csv(&ana, "columns=name&sortBy=-name&limit=1&page=7").await, "name\r\noven\r\nfridge\r\nfreezer\r\n");
    let columns = "columns=name,meta.site,meta.floor,meta.deep.er&columns=description,lastActive";
    assert_eq!(
        csv(&ana, &format!("{columns}&sortBy=createdAt")).await,
        "name,meta.site,meta.floor,meta.deep.er,description,lastActive\r\n\
         fridge,east,3,\"[1,{\"\"x\"\":true}]\",\"a, b\",2027-01-15T08:00:00.000Z\r\n\
         freezer,west,3,,\"a, b\",\r\n\
         oven,'=1+1,3.0,,\"a, b\",\r\n"
    );
    let filtered =
        format!("columns=projectUuid,statusText,statusInt&filter[projectUuid][eq]={cold}&filter[meta.floor][eq]=3");
    assert_eq!(csv(&ana, &filtered).await, format!("projectUuid,statusText,statusInt\r\n{cold},none,0\r\n"));
    let usual = csv(&ana, "filter[name][eq]=nothing").await;
    assert_eq!(usual, "id,name,projectUuid,organizationId,statusText,lastActive,createdAt,updatedAt\r\n");
    let bad = ana.get_as("text/csv", "/v2/devices?columns=name,payload,meta.&sortBy=size").await;
    assert_eq!(bad.faults(), ["query.columns", "query.columns", "query.sortBy"]);
    let bob = app.stranger("bob").await;
    bob.get_as("text/csv", &format!("/v2/devices?organizationId={}", ana.organization)).await.not_found();
    assert_eq!(csv(&bob, "columns=name&depth=all").await, "name\r\n");
}

// Holds: c13.deviceFilters
async fn unknown_device_filter_is_refused(app: &TestApp) {
    let ana = app.developer("ana").await;
    for (query, field) in [
        ("filter[payload.a][eq]=1", "query.filter[payload.a][eq]"),
        ("filter[meta][eq]=1", "query.filter[meta][eq]"),
        ("filter[name][like]=1", "query.filter[name][like]"),
        ("filter[name]=1", "query.filter[name]"),
        ("filter[statusInt][eq]=good", "query.filter[statusInt][eq]"),
        ("filter[projectUuid][in]=x", "query.filter[projectUuid][in]"),
        ("filter[createdAt][gt]=null", "query.filter[createdAt][gt]"),
        ("filter[lastActive][gt]=soon", "query.filter[lastActive][gt]"),
    ] {
        for path in ["/v2/devices", "/v2/devices/summary"] {
            assert_eq!(ana.get(&format!("{path}?{query}")).await.faults(), [field], "{path} {query}");
        }
    }
    let many: String = (0..65).map(|_| "filter[name][eq]=a&").collect();
    assert_eq!(ana.get(&format!("/v2/devices?{many}")).await.faults(), ["query.filter"]);
    let operands = vec!["1"; 1_001].join(",");
    let fault = format!("/v2/devices?filter[statusInt][in]={operands}");
    assert_eq!(ana.get(&fault).await.faults(), ["query.filter[statusInt][in]"]);
}

// Holds: c13.devicesCsv
#[tokio::test]
async fn a_long_list_is_written_whole() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let project = ana.project().await;
    let body: Vec<Value> =
        (0..1_700).map(|number| json!({"name": format!("d{number:04}"), "projectUuid": project})).collect();
    ana.post("/v2/devices/bulk", json!(body)).await.ok();
    let names: Vec<String> = csv(&ana, "columns=name&sortBy=name").await.lines().skip(1).map(str::to_owned).collect();
    assert_eq!(names, (0..1_700).map(|number| format!("d{number:04}")).collect::<Vec<_>>());
}
