//! Bounds, from both sides: the last length that is taken, and the first that is not; and those of every list.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::{new_user, with_json};
use crate::support::{Person, TestApp, on_both_registries};

on_both_registries!(
    every_text_is_taken_up_to_its_bounds_and_refused_beyond,
    a_password_has_its_bounds_when_it_is_made_and_when_it_is_changed,
    every_list_has_the_same_bounds,
);

/// A member of a body that is a text of so many characters.
struct Bound<'b> {
    method: Method,
    path: &'b str,
    body: Value,
    member: &'b str,
    least: usize,
    most: usize,
}

impl Bound<'_> {
    async fn holds(&self, person: &Person<'_>) {
        let asked = async |length: usize| {
            let mut body = self.body.clone();
            // Characters are counted, not bytes.
            body[self.member] = json!("é".repeat(length));
            person.app.send(with_json(person.request(self.method.clone(), self.path), &body)).await
        };
        for length in [self.least, self.most] {
            let taken = asked(length).await;
            assert!(taken.status.is_success(), "{} of {length}: {taken:?}", self.member);
            if length > 0 {
                assert!(taken.json()[self.member].is_null() || taken.json()[self.member] == "é".repeat(length));
            }
        }
        for length in self.least.checked_sub(1).into_iter().chain([self.most + 1]) {
            assert_eq!(asked(length).await.faults(), [self.member], "{} of {length} at {}", self.member, self.path);
        }
    }
}

async fn every_text_is_taken_up_to_its_bounds_and_refused_beyond(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let device = ana.creates_device("fridge").await;
    let north = ana.founds("North", &ana.organization).await;
    let project = ana.project().await;
    let of_device = json!({"name": "d", "projectUuid": project});
    let (named, profile) = (json!({"name": "n"}), json!({"role": "technician", "company": "Acme"}));
    let (north, user) = (format!("/v2/organizations/{north}"), format!("/v2/users/{}", tom.id));
    let (url, specification) = (format!("/v2/projects/{project}"), format!("/v2/projects/{project}/specification"));
    let cases: [(&str, &str, &Value, &[(&str, usize, usize)]); 8] = [
        (
            "/v2/devices",
            &device.url(),
            &of_device,
            &[("name", 1, 80), ("description", 0, 200), ("versionUuid", 0, 36), ("protocol", 0, 20)],
        ),
        ("/v2/organizations", &north, &named, &[("name", 1, 80), ("description", 0, 200)]),
        ("/v2/projects", &url, &named, &[("name", 1, 80)]),
        ("", &specification, &named, &[("name", 1, 80), ("description", 0, 2000), ("createVersion", 1, 16)]),
        ("", &user, &profile, &[("firstName", 1, 80), ("lastName", 1, 80), ("company", 1, 80)]),
        ("", &user, &profile, &[("jobTitle", 0, 80), ("language", 0, 80), ("reason", 1, 300)]),
        (&format!("{user}/apiKeys"), "", &named, &[("name", 1, 80)]),
        ("", &url, &named, &[("name", 1, 80)]),
    ];
    for (create, change, body, members) in cases {
        for (method, path) in [(Method::POST, create), (Method::PUT, change)] {
            for (member, least, most) in members.iter().filter(|_| !path.is_empty()) {
                let (method, body) = (method.clone(), body.clone());
                Bound { method, path, body, member, least: *least, most: *most }.holds(&ana).await;
            }
        }
    }
    // An identifier of a project has 24 to 36 characters; of those that are none, every length is refused.
    for length in [23, 24, 36, 37] {
        let body = json!({"name": "d", "projectUuid": "0".repeat(length)});
        assert_eq!(ana.post("/v2/devices", body).await.faults(), ["projectUuid"]);
    }
    let name = "n".repeat(128);
    let settings = ana.designs(json!({&name: {"type": "deviceSetting"}})).await;
    let device = ana.creates_device_of(&settings, "d").await;
    assert_eq!(ana.put(&device.at(&format!("settings/{name}")), json!("x")).await.ok()["name"], name);
    let item = |name: &str| json!([{"deviceId": device.id, "name": name, "value": "y"}]);
    assert_eq!(ana.post("/v2/devices/settings", item(&name)).await.ok()["data"][0]["value"], "y");
    assert_eq!(ana.post("/v2/devices/settings", item(&format!("{name}n"))).await.faults(), ["[0].name"]);
    assert_eq!(ana.post("/v2/devices/settings", item("")).await.faults(), ["[0].name"]);
}

async fn a_password_has_its_bounds_when_it_is_made_and_when_it_is_changed(app: &TestApp) {
    let ana = app.developer("ana").await;
    let tom = ana.invites("tom", "technician").await;
    let with = |mut body: Value, length: usize| {
        let password = "p".repeat(length);
        (body["password"], body["passwordConfirmation"]) = (json!(password), json!(password));
        body
    };
    for path in ["/v2/auth/register", "/v2/users"] {
        for (length, fits) in [(5, false), (6, true), (128, true), (129, false)] {
            let name = format!("u{length}{}", path.len());
            let made = ana.post(path, with(new_user(&name, "basicUser"), length)).await;
            if fits {
                made.created();
                app.login(&name, &"p".repeat(length)).await.created();
            } else {
                assert_eq!(made.faults()[0], "password", "{length} at {path}");
            }
        }
    }
    let url = format!("/v2/users/{}", tom.id);
    let profile = json!({"role": "technician", "company": "Acme"});
    for (length, fits) in [(5, false), (6, true), (20, true), (21, false)] {
        let changed = ana.put(&url, with(profile.clone(), length)).await;
        if fits {
            changed.ok();
            app.login("tom", &"p".repeat(length)).await.created();
        } else {
            assert_eq!(changed.faults(), ["password", "passwordConfirmation"], "{length}");
        }
    }
}

async fn every_list_has_the_same_bounds(app: &TestApp) {
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!(1)).await.created();
    let limit = json!({"limit": {"type": "deviceSetting", "properties": {"inputType": "number", "defaultValue": 8}}});
    let thermostat = ana.creates_device_of(&ana.designs(limit).await, "thermostat").await;
    for value in 1..=2 {
        ana.put(&thermostat.at("settings/limit"), json!(value)).await.ok();
    }
    let keys = format!("/v2/users/{}/apiKeys", ana.id);
    let lists = [
        "/v2/organizations",
        "/v2/projects",
        "/v2/users",
        "/v2/devices",
        "/v2/devices/locations",
        "/v2/notifications",
        &keys,
        &device.at("data/reading"),
        &device.at("events"),
        &device.at("storage"),
        &thermostat.at("settings"),
        &thermostat.at("settings/history"),
    ];
    for list in lists {
        let meta = ana.get(list).await.ok()["meta"].clone();
        assert_eq!((&meta["page"], &meta["limit"]), (&json!(1), &json!(100)), "{list}");
        let largest = ana.get(&format!("{list}?page=1&limit=10000")).await.ok();
        assert_eq!((&largest["meta"]["limit"], &largest["meta"]["totalDocs"]), (&json!(10_000), &meta["totalDocs"]));
        let past = ana.get(&format!("{list}?page=9&limit=1")).await.ok();
        let items = if list.ends_with("/storage") { &past["storageElements"] } else { &past["data"] };
        assert_eq!((items, &past["meta"]["totalDocs"]), (&json!([]), &meta["totalDocs"]), "{list}");
        for bad in ["page=0&limit=0", "page=-1&limit=10001", "page=x&limit=1.5"] {
            assert_eq!(ana.get(&format!("{list}?{bad}")).await.faults(), ["query.limit", "query.page"], "{list}");
        }
    }
    let queue = device.queue();
    ana.get(&format!("{queue}&limit=10000&page=3")).await.ok();
    assert_eq!(ana.get(&format!("{queue}&limit=10001&page=0")).await.faults(), ["query.limit", "query.page"]);
    // A range that ends where it begins, or before, holds nothing.
    for list in [device.at("data/reading"), device.at("events")] {
        for range in ["from=2027-01-15T08:00:00Z&to=2027-01-15T08:00:00Z", "from=2028-01-01&to=2027-01-01"] {
            assert_eq!(ana.get(&format!("{list}?{range}")).await.ok()["meta"]["totalDocs"], 0, "{list}");
        }
        assert_eq!(ana.get(&format!("{list}?from=soon&to=1")).await.faults(), ["query.from", "query.to"]);
    }
    for list in ["organizations", "projects", "users", "devices"] {
        for bad in ["sortBy=size", "sortBy=--name", "sortBy=", "depth=0"] {
            let field = format!("query.{}", bad.split('=').next().unwrap());
            assert_eq!(ana.get(&format!("/v2/{list}?{bad}")).await.faults(), [field], "{list}");
        }
    }
}
