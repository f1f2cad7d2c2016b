//! The design language over HTTP: each element with its abilities and triggers, its faults, and failures in a run
//! (contract: The project design).

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::designs::{to, to_with};
use crate::support::person::text;
use crate::support::{Person, TestApp, on_both_registries};
use crate::webhook::{Sender, messages};

on_both_registries!(
    every_ability_and_trigger_is_seen_in_a_dry_run,
    every_aggregate_slides_over_the_events_of_a_device,
    faulty_design_is_refused_and_the_old_one_stays,
    failure_in_a_run_is_recorded_on_its_event,
    events_of_a_device_at_once_are_each_seen_once,
    settings_deliveries_and_events_at_once_are_in_one_order,
);

/// Returns a design with these links of an event, and a storage `s`.
fn design(links: Value, mut others: Value) -> Value {
    others["in"] = json!({"type": "deviceEvent", "triggers": {"eventReceived": links}});
    others["s"] = json!({"type": "storage"});
    others
}

/// Returns the result of a dry run: a line for each step, and the effects.
async fn tried(ana: &Person<'_>, project: &str, elements: Value, begin: &str, payload: Value) -> (Vec<String>, Value) {
    let specification = json!({"name": "tried", "planes": {"cloud": {"elements": elements}}});
    let asked = json!({"specification": specification, "elementName": begin, "payload": payload});
    let found = ana.post(&format!("/v2/projects/{project}/specification/test"), asked).await.ok();
    let steps = found["trace"].as_array().unwrap().iter().map(|step| {
        let used = step["ability"].as_str().map_or(String::new(), |ability| format!(".{ability}"));
        let came = match (&step["produced"], &step["error"]) {
            (Value::Object(produced), _) => {
                format!(" -> {} {}", produced["trigger"].as_str().unwrap(), produced["value"])
            }
            (_, Value::String(error)) => format!(" failed: {error}"),
            _ => String::new(),
        };
        format!("{}{used}{came}", text(step, "element"))
    });
    (steps.collect(), found["effects"].clone())
}

fn stored(value: Value) -> Value {
    json!({"type": "store", "element": "s", "value": value})
}

/// Links, further elements, payload, the steps behind the event's own, the effects.
type Case = (Value, Value, Value, &'static [&'static str], Value);

/// Returns one element, `x`, in addition to the event and the storage.
fn is(kind: &str, properties: Value, triggers: Value) -> Value {
    json!({"x": {"type": kind, "properties": properties, "triggers": triggers}})
}

/// Returns links that store a value.
fn keep() -> Value {
    json!([to("s", "store")])
}

/// Returns links that store the value of one trigger, and -1 for the other.
fn both(one: &str, other: &str) -> Value {
    json!({one: keep(), other: [to_with("s", "store", json!({"value": -1}))]})
}

fn of_device_meta() -> Case {
    (
        json!([
            to_with("x", "setStatus", json!({"status": "critical"})),
            to_with("x", "escalateStatus", json!({"status": "good"})),
            to_with("x", "setValue", json!({"tag": "'k'", "value": "payload"})),
            to_with("x", "setLocation", json!({"latitude": 1.5, "longitude": "payload"})),
        ]),
        is("deviceMeta", json!({"missingAfterMinutes": 5}), json!({"done": keep()})),
        json!(7),
        &[
            "x.setStatus -> done 7",
            "s.store -> stored 7",
            "x.escalateStatus -> done 7",
            "s.store -> stored 7",
            "x.setValue -> done 7",
            "s.store -> stored 7",
            "x.setLocation -> done 7",
            "s.store -> stored 7",
        ],
        json!([
            {"type": "setStatus", "status": "critical"}, stored(json!(7)), stored(json!(7)),
            {"type": "setValue", "tag": "k", "value": 7}, stored(json!(7)),
            {"type": "setLocation", "latitude": 1.5, "longitude": 7.0}, stored(json!(7)),
        ]),
    )
}

/// Returns elements with effects outside of the run.
fn doing() -> Vec<Case> {
    vec![
        (
            json!([to("x", "store")]),
            is("storage", json!({}), json!({"stored": keep()})),
            json!({"t": 1}),
            &[r#"x.store -> stored {"t":1}"#, r#"s.store -> stored {"t":1}"#],
            json!([{"type": "store", "element": "x", "value": {"t": 1}}, stored(json!({"t": 1}))]),
        ),
        (
            json!([to_with("x", "send", json!({"value": "payload.t"}))]),
            is("cloudEvent", json!({"ttlMinutes": 15}), json!({"sent": keep()})),
            json!({"t": 1}),
            &["x.send -> sent 1", "s.store -> stored 1"],
            json!([{"type": "send", "element": "x", "payload": 1, "ttlMinutes": 15}, stored(json!(1))]),
        ),
        (
            json!([to("x", "set"), to("x", "reset")]),
            is("deviceSetting", json!({"inputType": "number", "defaultValue": 8}), json!({"changed": keep()})),
            json!(3),
            &["x.set -> changed 3", "s.store -> stored 3", "x.reset -> changed 8", "s.store -> stored 8"],
            json!([
                {"type": "setSetting", "element": "x", "value": 3}, stored(json!(3)),
                {"type": "setSetting", "element": "x", "value": null}, stored(json!(8)),
            ]),
        ),
        of_device_meta(),
        (
            json!([to("x", "notify")]),
            is(
                "notification",
                json!({"message": "at {{ payload }}", "minimumRole": "manager"}),
                json!({"sent": keep()}),
            ),
            json!(2),
            &["x.notify -> sent 2", "s.store -> stored 2"],
            json!([{"type": "notify", "element": "x", "message": "at 2", "minimumRole": "manager"}, stored(json!(2))]),
        ),
        (
            json!([to("x", "request")]),
            is("http", json!({"url": "https://example.org/a", "body": "[payload]"}), both("response", "error")),
            json!(2),
            &["x.request"],
            json!([{"type": "call", "element": "x", "method": "POST", "url": "https://example.org/a",
                "headers": [["content-type", "application/json"]], "body": "[2]"}]),
        ),
    ]
}

/// Returns elements that read a value and pass on a value.
fn passing() -> Vec<Case> {
    let code = "function decodeUplink(input) { return input.bytes.length > 1 ? {data: input.bytes[1]} : {errors: ['short']}; }";
    vec![
        (
            json!([to("x", "evaluate")]),
            is("condition", json!({"expression": "payload > 8"}), both("true", "false")),
            json!(9),
            &["x.evaluate -> true 9", "s.store -> stored 9"],
            json!([stored(json!(9))]),
        ),
        (
            json!([to("x", "evaluate")]),
            is("condition", json!({"expression": "payload > 8"}), both("true", "false")),
            json!(8),
            &["x.evaluate -> false 8", "s.store -> stored -1"],
            json!([stored(json!(-1))]),
        ),
        (
            json!([to("x", "evaluate")]),
            is("transform", json!({"expression": "{'f': payload * 2}"}), json!({"result": keep()})),
            json!(4),
            &[r#"x.evaluate -> result {"f":8}"#, r#"s.store -> stored {"f":8}"#],
            json!([stored(json!({"f": 8}))]),
        ),
        (
            json!([to("x", "evaluate")]),
            is("function", json!({"code": code}), both("result", "error")),
            json!("AQU="),
            &["x.evaluate -> result 5", "s.store -> stored 5"],
            json!([stored(json!(5))]),
        ),
        (
            json!([to("x", "evaluate")]),
            is(
                "function",
                json!({"code": code, "bytesRef": "$.up[0].frm", "bytesEncoding": "hex"}),
                json!({"error": keep()}),
            ),
            json!({"up": [{"frm": "01"}]}),
            &[r#"x.evaluate -> error ["short"]"#, r#"s.store -> stored ["short"]"#],
            json!([stored(json!(["short"]))]),
        ),
        (
            json!([to("x", "evaluate"), to("x", "evaluate")]),
            is("changed", json!({"expression": "payload"}), both("changed", "unchanged")),
            json!(2),
            &["x.evaluate -> changed 2", "s.store -> stored 2", "x.evaluate -> unchanged 2", "s.store -> stored -1"],
            json!([stored(json!(2)), stored(json!(-1))]),
        ),
        (
            json!([to("x", "push"), to("x", "push")]),
            is("window", json!({"minutes": 5, "aggregate": "sum"}), json!({"result": keep()})),
            json!(2),
            &["x.push -> result 2", "s.store -> stored 2", "x.push -> result 4", "s.store -> stored 4"],
            json!([stored(json!(2)), stored(json!(4))]),
        ),
        (
            json!([to("x", "pass"), to("x", "pass")]),
            is("throttle", json!({"minutes": 5}), both("passed", "dropped")),
            json!(2),
            &["x.pass -> passed 2", "s.store -> stored 2", "x.pass -> dropped 2", "s.store -> stored -1"],
            json!([stored(json!(2)), stored(json!(-1))]),
        ),
    ]
}

// Holds: c11.dryRun
async fn every_ability_and_trigger_is_seen_in_a_dry_run(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.creates_project("p").await;
    for (links, others, payload, expected, effects) in doing().into_iter().chain(passing()) {
        let (steps, found) = tried(&ana, &project, design(links, others), "in", payload.clone()).await;
        assert_eq!(steps[0], format!("in -> eventReceived {payload}"));
        assert_eq!(steps[1..], *expected);
        assert_eq!(found, effects, "{expected:?}");
    }
    // Runs that begin without an event.
    let ticks =
        json!({"x": {"type": "interval", "properties": {"minutes": 5}, "triggers": {"elapsed": [to("s", "store")]}}});
    let (steps, _) = tried(&ana, &project, design(json!([]), ticks), "x", json!({})).await;
    assert_eq!(steps, ["x -> elapsed {}", "s.store -> stored {}"]);
    let setting = json!({"x": {"type": "deviceSetting", "triggers": {"changed": [to("s", "store")]}}});
    let (steps, _) = tried(&ana, &project, design(json!([]), setting), "x", json!("new")).await;
    assert_eq!(steps, [r#"x -> changed "new""#, r#"s.store -> stored "new""#]);
    assert!(ana.get("/v2/devices").await.names().is_empty());
}

// Holds: c11.window
async fn every_aggregate_slides_over_the_events_of_a_device(app: &TestApp) {
    let ana = app.developer("ana").await;
    let aggregates = ["mean", "min", "max", "sum", "count", "first", "last"];
    let mut elements = json!({});
    let mut links = Vec::new();
    for aggregate in aggregates {
        let (window, out) = (format!("{aggregate} of two"), format!("{aggregate} kept"));
        let properties = json!({"size": 2, "aggregate": aggregate, "expression": "payload.t"});
        elements[&window] =
            json!({"type": "window", "properties": properties, "triggers": {"result": [to(&out, "store")]}});
        elements[&out] = json!({"type": "storage"});
        links.push(to(&window, "push"));
    }
    let device = ana.creates_device_of(&ana.designs(design(json!(links), elements)).await, "d").await;
    for t in [4, 1, 8] {
        device.posts("in", json!({"t": t})).await.created();
    }
    for (aggregate, expected) in aggregates.into_iter().zip([
        json!([4.5, 2.5, 4.0]),
        json!([1, 1, 4]),
        json!([8, 4, 4]),
        json!([9, 5, 4]),
        json!([2, 2, 1]),
        json!([1, 4, 4]),
        json!([8, 1, 4]),
    ]) {
        let kept = ana.get(&device.at(&format!("data/{aggregate}%20kept"))).await.list_of("/payload");
        let numbers = |values: &[Value]| values.iter().map(|value| value.as_f64().unwrap()).collect::<Vec<_>>();
        assert_eq!(numbers(&kept), numbers(expected.as_array().unwrap()), "{aggregate}");
    }
}

/// Returns a design in which everything is wrong.
fn full_of_faults() -> Value {
    json!({
        "odd": {"type": "fridge"},
        "none": {},
        "": {"type": "storage"},
        "history": {"type": "deviceSetting"},
        "source": {"type": "deviceEvent", "properties": {"integration": "mqtt"}, "triggers": {
            "eventReceived": [to("gone", "store"), to("keep", "send"), to_with("keep", "store", json!({"value": "payload.", "other": 1}))],
            "received": [],
        }},
        "keep": {"type": "storage", "triggers": {"stored": [to("again", "store")]}},
        "again": {"type": "storage", "triggers": {"stored": [to("keep", "store")]}},
        "later": {"type": "cloudEvent", "properties": {"ttlMinutes": -1}},
        "limit": {"type": "deviceSetting", "properties": {"inputType": "number", "inputTypeProperties": {"min": 2, "max": 1}, "defaultValue": "x"}},
        "meta": {"type": "deviceMeta", "properties": {"missingAfterMinutes": 0.5}},
        "if": {"type": "condition"},
        "make": {"type": "transform", "properties": {"expression": "nothing"}},
        "decode": {"type": "function", "properties": {"code": "function decodeUplink( {"}},
        "move": {"type": "changed", "properties": {"expression": 7}},
        "wide": {"type": "window", "properties": {"size": 5000, "aggregate": "median"}},
        "calm": {"type": "throttle"},
        "tell": {"type": "notification", "properties": {"message": "{{ x", "minimumRole": "boss"}},
        "call": {"type": "http", "properties": {"url": "https://a b", "method": "FETCH"}},
        "tick": {"type": "interval", "properties": {"minutes": 0}},
    })
}

/// The places of its faults, in alphabetical order.
const FAULTS: [&str; 27] = [
    "",
    "call.properties.method",
    "call.properties.url",
    "calm.properties.minutes",
    "decode.properties.code",
    "history",
    "if.properties.expression",
    "keep.triggers.stored[0].element",
    "later.properties.ttlMinutes",
    "limit.properties.defaultValue",
    "limit.properties.inputTypeProperties.max",
    "make.properties.expression",
    "meta.properties.missingAfterMinutes",
    "move.properties.expression",
    "none.type",
    "odd.type",
    "source.properties.integration",
    "source.triggers.eventReceived[0].element",
    "source.triggers.eventReceived[1].ability",
    "source.triggers.eventReceived[2].arguments.other",
    "source.triggers.eventReceived[2].arguments.value",
    "source.triggers.received",
    "tell.properties.message",
    "tell.properties.minimumRole",
    "tick.properties.minutes",
    "wide.properties.aggregate",
    "wide.properties.size",
];

// Holds: c11.faults
async fn faulty_design_is_refused_and_the_old_one_stays(app: &TestApp) {
    let ana = app.developer("ana").await;
    let project = ana.designs(design(json!([to("s", "store")]), json!({}))).await;
    let device = ana.creates_device_of(&project, "d").await;
    let path = format!("/v2/projects/{project}/specification");
    let before = ana.get(&path).await.ok();
    let expected: Vec<String> = FAULTS.iter().map(|place| format!("planes.cloud.elements.{place}")).collect();
    let told = ana.redesigns(&project, full_of_faults()).await.faults();
    assert_eq!(told, expected, "{told:#?}");
    for planes in [json!([]), json!({"cloud": 1}), json!({"cloud": {"elements": []}})] {
        ana.put(&path, json!({"name": "p", "planes": planes})).await.is(400);
    }
    assert_eq!(ana.get(&path).await.ok(), before);
    device.posts("in", json!(5)).await.created();
    assert_eq!(ana.get(&device.at("data/s")).await.list_of("/payload"), [5]);
    assert_eq!(device.posts("source", json!(5)).await.faults(), ["query.elementName"]);
}

// Holds: c11.bounds
async fn failure_in_a_run_is_recorded_on_its_event(app: &TestApp) {
    let ana = app.developer("ana").await;
    let is = |kind: &str, properties: Value| json!({"type": kind, "properties": properties});
    let links = json!([
        to_with("kept", "store", json!({"value": "payload.none"})),
        to_with("sent", "send", json!({"value": "payload.a / 0"})),
        to_with("limit", "set", json!({"value": "'text'"})),
        to_with("meta", "setStatus", json!({"status": 99})),
        to_with("meta", "escalateStatus", json!({"status": "'bad'"})),
        to_with("meta", "setValue", json!({"tag": "''", "value": 1})),
        to_with("meta", "setLocation", json!({"latitude": 91, "longitude": 0})),
        to("if", "evaluate"),
        to("make", "evaluate"),
        to("decode", "evaluate"),
        to("move", "evaluate"),
        to("wide", "push"),
        to("tell", "notify"),
        to("call", "request"),
        to("s", "store"),
    ]);
    let others = json!({
        "kept": is("storage", json!({})),
        "sent": is("cloudEvent", json!({})),
        "limit": is("deviceSetting", json!({"inputType": "number"})),
        "meta": is("deviceMeta", json!({})),
        "if": is("condition", json!({"expression": "payload"})),
        "make": is("transform", json!({"expression": "payload.none"})),
        "decode": is("function", json!({"code": "function decodeUplink(input) { throw new Error('bad'); }", "bytesRef": "b"})),
        "move": is("changed", json!({"expression": "payload.none"})),
        "wide": is("window", json!({"size": 3, "aggregate": "mean"})),
        "tell": is("notification", json!({"message": "{{ payload.none }}"})),
        "call": is("http", json!({"url": "'ftp://example.org'"})),
    });
    let device = ana.creates_device_of(&ana.designs(design(links, others)).await, "d").await;
    let posted = device.posts("in", json!({"a": 1, "b": []})).await.created();
    let event = ana.get(&device.at(&format!("events/{}", text(&posted, "id")))).await.ok();
    let errors = event["errors"].as_array().unwrap();
    let failed: Vec<&str> = errors.iter().map(|error| text(error, "element")).collect();
    let expected = [
        "kept", "sent", "limit", "meta", "meta", "meta", "meta", "if", "make", "decode", "move", "wide", "tell", "call",
    ];
    assert_eq!(failed, expected, "{event}");
    assert!(errors.iter().all(|error| !text(error, "message").is_empty()));
    assert_eq!(errors[9]["message"], "Error: bad");
    // The rest of the run was not affected, and nothing else happened.
    assert_eq!(ana.get(&device.at("data/s")).await.list_of("/payload"), [json!({"a": 1, "b": []})]);
    assert_eq!(ana.get(&device.at("data/kept")).await.list_of("/payload"), [] as [Value; 0]);
    device.takes().await.no_content();
    let seen = ana.get(&device.url()).await.ok();
    assert_eq!((text(&seen, "statusText"), &seen["meta"]), ("none", &json!({})));
}

// Holds: c11.window
async fn events_of_a_device_at_once_are_each_seen_once(app: &TestApp) {
    const EVENTS: u64 = 64;
    let ana = app.developer("ana").await;
    let keeps = |element: &str| json!([to(element, "store")]);
    let links = json!([to("tally", "push"), to("total", "push"), to("moved", "evaluate"), to("calm", "pass")]);
    let others = json!({
        "tally": {"type": "window", "properties": {"size": 4096, "aggregate": "count"}, "triggers": {"result": keeps("counts")}},
        "total": {"type": "window", "properties": {"minutes": 60, "aggregate": "sum", "expression": "payload.n"}, "triggers": {"result": keeps("sums")}},
        "moved": {"type": "changed", "properties": {"expression": "payload.n"}, "triggers": {"changed": keeps("moves")}},
        "calm": {"type": "throttle", "properties": {"minutes": 60}, "triggers": {"passed": keeps("first"), "dropped": keeps("rest")}},
        "counts": {"type": "storage"}, "sums": {"type": "storage"}, "moves": {"type": "storage"},
        "first": {"type": "storage"}, "rest": {"type": "storage"},
    });
    let device = ana.creates_device_of(&ana.designs(design(links, others)).await, "d").await;
    let posts = (1..=EVENTS).map(|n| device.posts("in", json!({"n": n})));
    join_all(posts).await.into_iter().for_each(|answer| {
        answer.created();
    });
    let series = async |element: &str, pointer: &str| {
        let path = device.at(&format!("data/{element}?limit=1000"));
        let values = ana.get(&path).await.list_of(pointer).into_iter().map(|value| value.as_u64().unwrap());
        values.rev().collect::<Vec<_>>()
    };
    assert_eq!(series("counts", "/payload").await, (1..=EVENTS).collect::<Vec<_>>());
    // The order is that of history.
    let mut order = ana.get(&device.at("events?limit=1000")).await.list_of("/payload/n");
    order.reverse();
    let order: Vec<u64> = order.iter().map(|n| n.as_u64().unwrap()).collect();
    let running = order.iter().scan(0, |sum, n| {
        *sum += n;
        Some(*sum)
    });
    assert_eq!(series("sums", "/payload").await, running.collect::<Vec<_>>());
    assert_eq!(series("moves", "/payload/n").await, order);
    assert_eq!(series("first", "/payload/n").await, order[..1]);
    assert_eq!(series("rest", "/payload/n").await, order[1..]);
}

/// Checks that runs from settings, deliveries and events share one window, in one order.
async fn settings_deliveries_and_events_at_once_are_in_one_order(app: &TestApp) {
    const EACH: u64 = 16;
    let sender = Sender::of(app.developer("ana").await).await;
    let ana = &sender.person;
    let elements = json!({
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": [to("tally", "push")]}},
        "hook": {"type": "deviceEvent", "properties": {"integration": "custom"}, "triggers": {"eventReceived": [to("tally", "push")]}},
        "limit": {"type": "deviceSetting", "properties": {"inputType": "number"}, "triggers": {"changed": [to("tally", "push")]}},
        "tally": {"type": "window", "properties": {"size": 4096, "aggregate": "count"}, "triggers": {"result": [to("counts", "store")]}},
        "counts": {"type": "storage"},
    });
    let project = ana.designs(elements).await;
    let body = json!({"name": "d", "projectUuid": project, "meta": {"eui": "1"}});
    let device = ana.creates_device_as(body).await;
    let setting = device.at("settings/limit");
    let parameters = [("deviceTag", "eui"), ("deviceTagValue", "1"), ("eventsRef", "$")];
    let (device, setting, sender) = (&device, &setting, &sender);
    let turns = (0..EACH).map(|turn| async move {
        let turn = json!(turn);
        let (posted, put, delivered) = futures::join!(
            device.posts("in", turn.clone()),
            ana.put(setting, turn.clone()),
            sender.delivers(&parameters, json!([turn, turn])),
        );
        posted.created();
        put.ok();
        assert_eq!(messages(&delivered.ok()), [""; 0]);
    });
    join_all(turns).await;
    let counts = ana.get(&device.at("data/counts?limit=1000")).await.list_of("/payload");
    let counts: Vec<u64> = counts.iter().map(|count| count.as_u64().unwrap()).collect();
    assert_eq!(counts, (1..=4 * EACH).rev().collect::<Vec<_>>());
}
