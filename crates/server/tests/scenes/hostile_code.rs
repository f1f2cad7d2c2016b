//! Hostile code: its own event reports it, and other projects are not affected.

use serde_json::{Value, json};

use crate::code::decoding;
use crate::support::{Device, Person, TestApp, on_both_registries};

on_both_registries!(
    hostile_code_fails_its_own_event_alone,
    changed_prototypes_end_with_their_event,
    top_level_code_changes_its_own_project_alone,
);

/// A user whose codec depends on the objects that hostile code changes.
struct Neighbour<'a> {
    ana: Person<'a>,
    device: Device<'a>,
}

impl<'a> Neighbour<'a> {
    async fn of(app: &'a TestApp) -> Self {
        let ana = app.developer("ana").await;
        let body = "var list = input.bytes.map((byte) => byte + 1); list.push(0);
            return {data: {list, joined: list.join('-'), json: JSON.stringify(list), bare: ({}).evil === undefined}};";
        let project = ana.designs(decoding(body)).await;
        let device = ana.creates_device_of(&project, "sound").await;
        Self { ana, device }
    }

    /// Checks that its codec still decodes, whatever ran before.
    async fn decodes(&self, byte: u8, before: &str) {
        self.device.posts("up", json!([byte])).await.created();
        let newest = self.ana.get(&self.device.at("data/values?limit=1")).await.list_of("/payload");
        let next = u64::from(byte) + 1;
        let (joined, json) = (format!("{next}-0"), format!("[{next},0]"));
        assert_eq!(newest, [json!({"list": [next, 0], "joined": joined, "json": json, "bare": true})], "{before}");
    }
}

// Holds: c11.bounds
async fn hostile_code_fails_its_own_event_alone(app: &TestApp) {
    let neighbour = Neighbour::of(app).await;
    let bob = app.stranger("bob").await;
    let bodies = [
        "while (true);",
        "return {data: 'x'.repeat(1e9)};",
        "var s = 'x'; while (true) s += s;",
        "(function f() { f(); })();",
        "return {data: /(a+)+b/.test('a'.repeat(5000))};",
        "var a = []; while (true) a.push(a.length);",
        "var a = []; while (true) a.push('x'.repeat(1000) + a.length);",
    ];
    for (number, body) in (1..).zip(bodies) {
        let project = bob.designs(decoding(body)).await;
        let device = bob.creates_device_of(&project, &format!("hostile {number}")).await;
        device.posts("up", json!("AA==")).await.created();
        let events = bob.get(&device.at("events")).await.ok();
        let events = events["data"].as_array().unwrap();
        assert_eq!((events.len(), &events[0]["payload"]), (1, &json!("AA==")), "{body}");
        let error = &events[0]["errors"][0];
        assert_eq!(error["element"], "decode", "{body}: {events:?}");
        assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}: {events:?}");
        assert_eq!(bob.get(&device.at("data/values")).await.list_of("/payload"), [] as [Value; 0], "{body}");
        neighbour.decodes(number, body).await;
    }
}

// Holds: c11.function
async fn changed_prototypes_end_with_their_event(app: &TestApp) {
    let neighbour = Neighbour::of(app).await;
    let bob = app.stranger("bob").await;
    let games = [
        "Object.prototype.evil = 1;",
        "Object.prototype.toJSON = function () { return 'evil'; };",
        "Object.prototype.errors = ['evil'];",
        "Object.defineProperty(Object.prototype, 'data', {get() { return 'evil'; }});",
        "Array.prototype.push = Array.prototype.map = function () { return ['evil']; };",
        "Array.prototype[Symbol.iterator] = function () { throw 1; };",
        "Object.setPrototypeOf(Array.prototype, {evil: 1});",
        "JSON.stringify = function () { return '\"evil\"'; };",
        "delete globalThis.JSON; delete globalThis.Object;",
        "input.bytes.__proto__.evil = input.__proto__.evil = 1; globalThis.globalThis = {};",
    ];
    for (number, game) in (1..).zip(games) {
        // The first byte decides if the hostile code runs.
        let play = format!("if (input.bytes[0]) {{ try {{ {game} }} catch (e) {{}} }}");
        let project = bob.designs(decoding(&format!("{play} return {{data: {{n: input.bytes.length}}}};"))).await;
        let device = bob.creates_device_of(&project, &format!("gambler {number}")).await;
        // An effect on its own project is allowed.
        device.posts("up", json!("AQ==")).await.created();
        device.posts("up", json!("AAA=")).await.created();
        let values = bob.get(&device.at("data/values?limit=1")).await.list_of("/payload");
        assert_eq!(values, [json!({"n": 2})], "{game}");
        let events = bob.get(&device.at("events?limit=1")).await.ok();
        assert_eq!(events["data"][0]["payload"], "AAA=", "{game}");
        assert!(events["data"][0].get("errors").is_none(), "{game}: {events}");
        neighbour.decodes(number, game).await;
    }
}

async fn top_level_code_changes_its_own_project_alone(app: &TestApp) {
    let neighbour = Neighbour::of(app).await;
    let bob = app.stranger("bob").await;
    // Such code runs where built-in objects can be changed.
    let mut design = decoding("");
    design["decode"]["properties"]["code"] = json!(
        "Object.prototype.evil = 1; Array.prototype.join = function () { return 'evil'; };
        function decodeUplink(input) { return {data: input.bytes.join('-')}; }"
    );
    let project = bob.designs(design).await;
    let device = bob.creates_device_of(&project, "own rules").await;
    for number in 1..=3 {
        device.posts("up", json!([number])).await.created();
        let values = bob.get(&device.at("data/values?limit=1")).await.list_of("/payload");
        assert_eq!(values, ["evil"]);
        neighbour.decodes(number, "a top level that changes built-in objects").await;
    }
}
