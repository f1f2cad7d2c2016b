//! Tests what a dashboard's link shows on a screen: each widget gets its data, with the rights of the link's maker.

use reqwest::Method;
use serde_json::{Value, json};

use crate::board_links::{LATER, links, makes_board, makes_link, shows};
use crate::support::designs::to;
use crate::support::person::text;
use crate::support::{Device, NOBODY, Person, TestApp, on_both_registries};

on_both_registries!(
    a_board_is_shown_as_it_is_stored,
    wall_shows_numbers_with_their_descriptions,
    devices_are_shown_with_their_last_values,
    figures_are_made_of_the_devices_of_a_selection,
    maps_pictures_and_statuses_are_shown,
    events_are_shown_briefly,
    wall_omits_resources_its_maker_cannot_see,
    wall_shows_the_organization_of_its_board_alone,
    invalid_widgets_show_nothing,
);

const REPORTED: &str = "2027-01-15T08:00:00.000Z";

fn key(device: &Device<'_>, element: &str, path: &str) -> Value {
    json!({"deviceId": device.id, "deviceName": "d", "elementName": element, "path": path})
}

/// Creates a link of a board with these widgets, which are named by their types.
async fn link_of(ana: &Person<'_>, widgets: &[(&str, Value)]) -> String {
    let widget = |(kind, settings): &(&str, Value)| json!({"id": kind, "type": kind, "settings": settings});
    makes_link(ana, &makes_board(ana, widgets.iter().map(widget).collect()).await).await
}

async fn data(app: &TestApp, link: &str, widget: &str) -> Value {
    shows(app, link, &format!("/v2/wall/widgets/{widget}")).await.ok()
}

/// Returns a climate payload with a meaning, whose other keys must not be shown.
fn climate() -> Value {
    let fields = json!({
        "payload.temp": {"title": "Temperature", "unit": "°C", "high": 8},
        "payload.secret": {"title": "hidden"},
    });
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [to("climate", "store")]}},
        "climate": {"type": "storage", "properties": {"fields": fields}},
    })
}

// Holds: GET /v2/wall
async fn a_board_is_shown_as_it_is_stored(app: &TestApp) {
    let ana = app.developer("ana").await;
    let stored = json!([
        {"id": "a", "type": "text", "title": "Hello", "x": 0, "y": 1, "w": 3, "h": 2, "settings": {"text": "hi"}},
        {"type": "button", "settings": {"device": {"id": NOBODY, "name": "door"}, "elementName": "open", "payload": "1234"}},
        {"id": "c", "type": "theirs", "title": 5, "x": "left", "settings": {"secret": 1}},
    ]);
    let board = makes_board(&ana, stored).await;
    let link = makes_link(&ana, &board).await;
    let shown = shows(app, &link, "/v2/wall").await;
    let tag = shown.header("etag").to_owned();
    let expected = json!([
        {"id": "a", "type": "text", "title": "Hello", "x": 0, "y": 1, "w": 3, "h": 2, "settings": {"text": "hi"}},
        {
            "id": "widget-1", "type": "button", "title": "", "x": null, "y": null, "w": null, "h": null,
            "settings": {"device": {"id": NOBODY, "name": "door"}, "elementName": "open"},
        },
        {"id": "c", "type": "theirs", "title": "", "x": null, "y": null, "w": null, "h": null, "settings": {}},
    ]);
    assert_eq!(shown.ok()["widgets"], expected);
    let again = async || {
        let request = app.request(Method::GET, "/v2/wall").header("authorization", format!("Wall {link}"));
        app.send(request.header("if-none-match", &tag)).await
    };
    again().await.is(304);
    let url = format!("/v2/organizations/{}/dashboards/{board}", ana.organization);
    ana.put(&url, json!({"name": "New", "configuration": {}})).await.ok();
    assert_eq!(again().await.ok()["name"], "New");
    shows(app, &link, "/v2/wall/widgets/a").await.not_found();
}

// Holds: GET /v2/wall/widgets/{widgetId}
async fn wall_shows_numbers_with_their_descriptions(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(climate()).await;
    let (one, two) = (ana.creates_device_of(&project, "one").await, ana.creates_device_of(&project, "two").await);
    one.posts_text("reading", r#"{"temp": 4.50, "secret": 1, "deep": {"a.b": 7}}"#).await.created();
    two.posts("reading", json!({"temp": 6})).await.created();
    let all = [key(&one, "climate", "temp"), key(&two, "climate", "temp"), key(&one, "climate", "deep.\"a.b\"")];
    let gone = json!({"deviceId": NOBODY, "elementName": "climate", "path": "temp"});
    let unheard = key(&one, "unheard", "temp");
    let link = link_of(
        &ana,
        &[
            ("value", json!({"keys": [all[0], all[1]]})),
            ("gauge", json!({"keys": [all[0]]})),
            ("bar", json!({"keys": [all[0], all[1], gone, unheard]})),
            ("line", json!({"keys": all})),
        ],
    )
    .await;
    app.wait_seconds(600);
    let value = data(app, &link, "value").await;
    let readings = value["readings"].as_array().unwrap();
    let point = json!({
        "from": "2027-01-15T08:00:00.000Z", "to": "2027-01-15T08:30:00.000Z", "count": 1, "mean": 4.5, "min": 4.5, "max": 4.5,
    });
    let expected = json!({
        "deviceId": one.id, "elementName": "climate", "path": "temp", "isInReach": true, "updatedAt": REPORTED, "value": 4.50,
        "meaning": {"title": "Temperature", "unit": "°C", "high": 8}, "points": [point],
    });
    assert_eq!((readings.len(), &readings[0]), (1, &expected));
    assert_eq!(
        (&value["from"], &value["to"]),
        (&json!("2027-01-14T08:10:00.000Z"), &json!("2027-01-15T08:10:00.000Z"))
    );
    assert!(!value.to_string().contains("secret"), "what the widget does not name stays behind");
    assert_eq!(data(app, &link, "gauge").await["readings"][0]["points"], json!([]));
    let bar = data(app, &link, "bar").await;
    let told: Vec<_> = bar["readings"].as_array().unwrap().iter().map(|it| (&it["value"], &it["isInReach"])).collect();
    let (yes, no, null) = (json!(true), json!(false), json!(null));
    assert_eq!(told, [(&json!(4.50), &yes), (&json!(6), &yes), (&null, &no), (&null, &no)]);
    let line = data(app, &link, "line").await;
    let means: Vec<_> = line["readings"].as_array().unwrap().iter().map(|it| &it["points"][0]["mean"]).collect();
    assert_eq!(means, [&json!(4.5), &json!(6.0), &json!(7.0)]);
    // The next stored value is shown next.
    one.posts("reading", json!({"temp": 5})).await.created();
    assert_eq!(data(app, &link, "value").await["readings"][0]["value"], 5);
}

async fn devices_are_shown_with_their_last_values(app: &TestApp) {
    let ana = app.developer("ana").await;
    let north = ana.founds("North", &ana.organization).await;
    let project = ana.designs(climate()).await;
    let body = |name: &str| json!({"name": name, "projectUuid": project, "organizationId": north});
    let (_, told) = (ana.creates_device_as(body("silent")).await, ana.creates_device_as(body("told")).await);
    ana.creates_device("of another design").await;
    app.stranger("bob").await.creates_device("hidden").await;
    told.posts("reading", json!({"temp": 6, "secret": 1})).await.created();
    let link = link_of(&ana, &[("table", json!({"elementName": "climate", "paths": ["temp", "none"]}))]).await;
    let table = data(app, &link, "table").await;
    let names: Vec<_> = table["devices"].as_array().unwrap().iter().map(|row| &row["name"]).collect();
    // A design without elements stores whatever comes.
    assert_eq!((names.len(), names[0], &table["total"]), (3, &json!("told"), &json!(3)));
    let expected =
        json!({"id": told.id, "name": "told", "statusText": "none", "lastActive": REPORTED, "values": [6, null]});
    assert_eq!(table["devices"][0], expected);
    assert_eq!(table["meanings"], json!([{"title": "Temperature", "unit": "°C", "high": 8}, null]));
    assert_eq!(table["devices"][1]["values"], json!([null, null]));
}

async fn figures_are_made_of_the_devices_of_a_selection(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(climate()).await;
    for (name, room, temp) in [("a", "cellar", json!(3)), ("b", "cellar", json!(8)), ("c", "roof", json!("warm"))] {
        let body = json!({"name": name, "projectUuid": project, "meta": {"room": room}});
        let device = ana.creates_device_as(body).await;
        device.posts("reading", json!({"temp": temp})).await.created();
    }
    ana.creates_device("other").await;
    let keys = json!([{"deviceId": NOBODY, "elementName": "climate", "path": "temp"}]);
    let figure = async |settings: Value| {
        let link = link_of(&ana, &[("selection", settings)]).await;
        data(app, &link, "selection").await["figure"].take()
    };
    let of = |total: u64, looked_at: u64, of: u64, value: Value, name: Value| json!({"total": total, "lookedAt": looked_at, "of": of, "value": value, "deviceName": name});
    assert_eq!(figure(json!({})).await, of(4, 0, 0, json!(null), json!(null)));
    let cellar = json!({"label": "room", "labelValue": "cellar"});
    assert_eq!(figure(cellar).await, of(2, 0, 0, json!(null), json!(null)));
    let mean = json!({"figure": "mean", "keys": keys, "projectUuid": project});
    assert_eq!(figure(mean).await, of(3, 3, 2, json!(5.5), json!(null)));
    let highest = json!({"figure": "highest", "keys": keys});
    assert_eq!(figure(highest).await, of(4, 4, 2, json!(8.0), json!("b")));
    let none = json!({"figure": "lowest", "keys": keys, "label": "room", "labelValue": "roof"});
    assert_eq!(figure(none).await, of(1, 1, 0, json!(null), json!(null)));
}

async fn maps_pictures_and_statuses_are_shown(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.project().await;
    let made = async |name: &str, meta: Value| {
        ana.creates_device_as(json!({"name": name, "projectUuid": project, "meta": meta})).await
    };
    let link = link_of(&ana, &[("map", json!({}))]).await;
    assert_eq!(data(app, &link, "map").await["places"], json!([]));
    let here = made("here", json!({"latitude": 46.5, "longitude": 7.25})).await;
    made("there", json!({"latitude": 46.6, "longitude": 7.0})).await;
    made("far", json!({"latitude": -40, "longitude": 179.9})).await;
    let places = json!([{"id": here.id, "name": "h", "x": 1, "y": 2}, {"id": NOBODY, "name": "n"}, {"id": "x"}, 7]);
    let link = link_of(
        &ana,
        &[("map", json!(null)), ("status", json!({})), ("picture", json!({"picture": "", "places": places}))],
    )
    .await;
    let map = data(app, &link, "map").await;
    let counts: Vec<_> = map["places"].as_array().unwrap().iter().map(|place| place["count"].clone()).collect();
    assert_eq!(counts, [1, 2]);
    assert_eq!(map["places"][0]["device"]["name"], "far");
    let statuses = json!({"none": 3, "good": 0, "info": 0, "warning": 0, "critical": 0, "missing": 0});
    assert_eq!(data(app, &link, "status").await["statuses"], statuses);
    let picture = data(app, &link, "picture").await;
    let shown = json!([{"id": here.id, "name": "here", "statusText": "none", "lastActive": null, "values": []}]);
    assert_eq!(picture["devices"], shown);
}

async fn events_are_shown_briefly(app: &TestApp) {
    let ana = app.developer("ana").await;
    let fridge = ana.creates_device("fridge").await;
    fridge.posts_text("reading", r#"{"temp": 9}"#).await.created();
    fridge.posts("note", json!("ü".repeat(1_000))).await.created();
    let settings = |id: &str| json!({"device": {"id": id, "name": "fridge"}});
    let link = link_of(&ana, &[("events", settings(&fridge.id))]).await;
    let shown = data(app, &link, "events").await["events"].take();
    let texts: Vec<_> = shown.as_array().unwrap().iter().map(|event| event["text"].as_str().unwrap()).collect();
    assert_eq!((texts[1], texts[0].chars().count()), (r#"{"temp": 9}"#, 200));
    assert_eq!((&shown[1]["elementName"], &shown[1]["receivedAt"]), (&json!("reading"), &json!(REPORTED)));
    let gone = link_of(&ana, &[("events", settings(NOBODY))]).await;
    assert_eq!(data(app, &gone, "events").await["events"], json!(null));
}

/// Checks devices that a user low in the tree put on a board, and that only a maker from above can see.
async fn wall_shows_the_organization_of_its_board_alone(app: &TestApp) {
    for maker in [app.developer("ana").await, app.admin().await] {
        let above = maker.creates_device("above").await;
        above.posts("reading", json!({"temp": 9})).await.created();
        let low = maker.founds("Low", &maker.organization).await;
        let project = maker.project().await;
        let own = json!({"name": "own", "projectUuid": project, "organizationId": low});
        let own = maker.creates_device_as(own).await;
        own.posts("reading", json!({"temp": 4})).await.created();
        let device = json!({"id": above.id, "name": "above"});
        let widgets = json!([
            {"id": "bar", "type": "bar", "settings": {"keys": [key(&above, "reading", "temp"), key(&own, "reading", "temp")]}},
            {"id": "picture", "type": "picture", "settings": {"places": [device]}},
            {"id": "events", "type": "events", "settings": {"device": device}},
            {"id": "status", "type": "status", "settings": {}},
        ]);
        let dashboards = format!("/v2/organizations/{low}/dashboards");
        let board = json!({"name": "Low", "configuration": {"widgets": widgets}});
        let board = maker.post(&dashboards, board).await.created();
        let url = links(&low, text(&board, "id"));
        let made = maker.post(&url, json!({"expiresAt": LATER})).await.created();
        let (_, link) = text(&made, "url").split_once('#').unwrap();
        assert_eq!(data(app, link, "bar").await["readings"].list("value"), [json!(null), json!(4)]);
        assert_eq!(data(app, link, "picture").await["devices"], json!([]));
        assert_eq!(data(app, link, "events").await["events"], json!(null));
        let statuses = data(app, link, "status").await["statuses"].as_object().unwrap().clone();
        assert_eq!(statuses.values().filter_map(Value::as_u64).sum::<u64>(), 1, "{statuses:?}");
    }
}

// Holds: GET /v2/wall/widgets/{widgetId}
async fn wall_omits_resources_its_maker_cannot_see(app: &TestApp) {
    let (ana, bob) = (app.developer("ana").await, app.stranger("bob").await);
    let hidden = bob.creates_device("hidden").await;
    hidden.posts("reading", json!({"temp": 9})).await.created();
    let low = ana.founds("Low", &ana.organization).await;
    let own =
        ana.creates_device_as(json!({"name": "own", "projectUuid": ana.project().await, "organizationId": low})).await;
    own.posts("reading", json!({"temp": 4})).await.created();
    let link = link_of(
        &ana,
        &[
            ("bar", json!({"keys": [key(&hidden, "reading", "temp"), key(&own, "reading", "temp")]})),
            ("picture", json!({"places": [{"id": hidden.id, "name": "h"}]})),
            ("events", json!({"device": {"id": hidden.id, "name": "h"}})),
            ("selection", json!({"projectUuid": bob.project().await})),
        ],
    )
    .await;
    let bar = async || data(app, &link, "bar").await["readings"].list("value");
    assert_eq!(bar().await, [json!(null), json!(4)]);
    assert_eq!(data(app, &link, "picture").await["devices"], json!([]));
    assert_eq!(data(app, &link, "events").await["events"], json!(null));
    assert_eq!(data(app, &link, "selection").await["figure"]["total"], 0);
    // A deleted device disappears from the screen too.
    ana.delete(&own.url()).await.no_content();
    assert_eq!(bar().await, [json!(null), json!(null)]);
}

async fn invalid_widgets_show_nothing(app: &TestApp) {
    let ana = app.developer("ana").await;
    for settings in [
        json!(null),
        json!(7),
        json!([]),
        json!({"keys": 5, "paths": {}, "places": "x", "device": 1}),
        json!({
            "keys": [{"deviceId": "x", "elementName": "e", "path": "p"}, {"deviceId": NOBODY, "elementName": "\u{1}", "path": "\"\\"}],
            "timePath": "\"", "label": "[\"", "labelValue": 7, "projectUuid": "'; --", "figure": "mean", "elementName": "\u{0}",
            "paths": ["\"", "", "..", "a.b"],
        }),
    ] {
        let kinds = ["line", "bar", "value", "gauge", "table", "selection", "map", "picture", "status", "events"];
        let widgets: Vec<_> = kinds.map(|kind| (kind, settings.clone())).into();
        let link = link_of(&ana, &widgets).await;
        for kind in kinds {
            data(app, &link, kind).await;
        }
    }
    // Of very many widgets and keys, a bounded number is shown.
    let keys: Vec<_> =
        (0..100).map(|n| json!({"deviceId": NOBODY, "elementName": "e", "path": n.to_string()})).collect();
    let mut widgets: Vec<_> = (0..300).map(|n| json!({"id": n.to_string(), "type": "text"})).collect();
    widgets[0] = json!({"id": "0", "type": "bar", "settings": {"keys": keys}});
    let link = makes_link(&ana, &makes_board(&ana, json!(widgets)).await).await;
    assert_eq!(shows(app, &link, "/v2/wall").await.ok()["widgets"].as_array().unwrap().len(), 200);
    assert_eq!(data(app, &link, "0").await["readings"].as_array().unwrap().len(), 20);
    shows(app, &link, "/v2/wall/widgets/250").await.not_found();
}

trait Listed {
    /// Returns this member of each item.
    fn list(&self, member: &str) -> Vec<Value>;
}

impl Listed for Value {
    fn list(&self, member: &str) -> Vec<Value> {
        self.as_array().unwrap().iter().map(|item| item[member].clone()).collect()
    }
}
