//! What hostile tenants send: designs and bodies, each made to cost as much as its size allows. The tests of the program
//! send them too, in smaller sizes.

use serde_json::{Map, Value, json};

/// The device event element of every design here.
pub const EVENT: &str = "reading";
/// Code that never ends.
pub const ENDLESS: &str = "function decodeUplink(input) { while (true) {} }";
/// Every element type that a link may lead to.
pub const LINKED: [&str; 12] = [
    "storage",
    "cloudEvent",
    "deviceSetting",
    "deviceMeta",
    "condition",
    "transform",
    "function",
    "changed",
    "window",
    "throttle",
    "notification",
    "http",
];
/// Where all links lead.
const TARGET: &str = "target";
/// Bytes of a payload that go through a codec.
const CODED_BYTES: usize = 3_000;
/// Values that a window keeps.
const WINDOW_SIZE: usize = 4_096;

/// Names that share one hash wherever texts are hashed by rustc-hash 2 without a seed, as those in JSON once were. Its
/// hash of 33 bytes ends with a product, one of whose factors is what the first 16 bytes make, combined with those from
/// 17 to 25 by exclusive or. Here both are the same: the factor is zero, and so is the product, whatever the rest says.
pub fn colliding_names(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("name-00000031238-DpaJb2uA{number:08}"))
}

/// An object of at most so many bytes, with these names.
pub fn object(names: impl Iterator<Item = String>, bytes: usize) -> String {
    let mut text = String::from("{");
    for name in names {
        if text.len() + name.len() + 6 > bytes {
            break;
        }
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&format!("\"{name}\":0"));
    }
    text.push('}');
    text
}

/// An object of at most so many bytes whose names share one hash.
pub fn colliding(bytes: usize) -> String {
    object(colliding_names(bytes / 38), bytes)
}

/// Two objects of nearly so many bytes, with the same names in two orders.
pub fn in_two_orders(bytes: usize) -> [String; 2] {
    let count = bytes / 12;
    let name = |number: usize| format!("k{number:06}");
    [object((0..count).map(name), bytes), object((0..count).rev().map(name), bytes)]
}

/// What events of devices set off in most designs here: these links.
fn received(links: Vec<Value>) -> Value {
    json!({"type": "deviceEvent", "triggers": {"eventReceived": links}})
}

/// A design with so many links to one element of a type.
pub fn links_to(kind: &str, count: usize) -> Value {
    let (ability, properties) = match kind {
        "storage" => ("store", json!({})),
        "cloudEvent" => ("send", json!({})),
        "deviceSetting" => ("set", json!({"inputType": "text", "defaultValue": ""})),
        "deviceMeta" => ("setValue", json!({})),
        "condition" => ("evaluate", json!({"expression": "payload.text.contains('y')"})),
        "transform" => ("evaluate", json!({"expression": "payload.text + payload.text"})),
        "function" => {
            ("evaluate", json!({"code": "function decodeUplink(input) { return {data: {bytes: input.bytes}}; }"}))
        }
        "window" => ("push", json!({"size": WINDOW_SIZE, "aggregate": "mean", "expression": "payload.n"})),
        "throttle" => ("pass", json!({"minutes": 1})),
        "notification" => ("notify", json!({"message": "{{ payload.text }}"})),
        "http" => ("request", json!({"url": "http://127.0.0.1:9/", "body": "payload.bytes"})),
        _ => ("evaluate", json!({})),
    };
    let link = |number: usize| {
        let mut link = json!({"element": TARGET, "ability": ability});
        match kind {
            "deviceSetting" => link["arguments"] = json!({"value": "payload.text"}),
            // A label of its own: what is the same as before would be no change.
            "deviceMeta" => link["arguments"] = json!({"tag": format!("'t{number}'")}),
            _ => {}
        }
        link
    };
    json!({EVENT: received((0..count).map(link).collect()), TARGET: {"type": kind, "properties": properties}})
}

/// A payload of nearly so many bytes with something for every element of [`links_to`].
pub fn laden(number: usize, bytes: usize) -> String {
    let coded = "A".repeat(CODED_BYTES / 3 * 4);
    let text = "x".repeat(bytes.saturating_sub(coded.len() + 64));
    json!({"n": number, "bytes": coded, "text": text}).to_string()
}

/// A design that stores each event.
pub fn stores() -> Value {
    json!({EVENT: received(vec![json!({"element": "stored", "ability": "store"})]), "stored": {"type": "storage"}})
}

/// A design with so many `changed` elements, each of which keeps the payload.
pub fn changed(count: usize) -> Value {
    many(count, "evaluate", &json!({"type": "changed"}), 1)
}

/// A design with so many windows that keep the payload, and as many links to each.
pub fn windows(count: usize, links: usize) -> Value {
    let window = json!({"type": "window", "properties": {"size": WINDOW_SIZE, "aggregate": "last"}});
    many(count, "push", &window, links)
}

fn many(count: usize, ability: &str, element: &Value, links: usize) -> Value {
    let name = |number: usize| format!("e{number}");
    let link = |number: usize| json!({"element": name(number % count), "ability": ability});
    let mut elements: Map<String, Value> = (0..count).map(|number| (name(number), element.clone())).collect();
    elements.insert(EVENT.to_owned(), received((0..count * links).map(link).collect()));
    Value::Object(elements)
}

/// A design that keeps `payload.value` under the label that the payload names.
pub fn labels() -> Value {
    let arguments = json!({"tag": "payload.tag", "value": "payload.value"});
    let link = json!({"element": "meta", "ability": "setValue", "arguments": arguments});
    json!({EVENT: received(vec![link]), "meta": {"type": "deviceMeta"}})
}

/// A payload for [`labels`].
pub fn label(tag: &str, value: &str) -> String {
    json!({"tag": tag, "value": value}).to_string()
}

/// A payload for [`stores`] with one name that no other number has.
pub fn new_name(number: usize, bytes: usize) -> String {
    json!({format!("k{number}"): "x".repeat(bytes)}).to_string()
}

/// A design whose code never ends.
pub fn endless() -> Value {
    json!({EVENT: received(vec![json!({"element": "code", "ability": "evaluate"})]),
        "code": {"type": "function", "properties": {"code": ENDLESS}}})
}

/// A design whose code never ends, set off every minute for each device.
pub fn endless_every_minute() -> Value {
    let link = |element: &str| json!([{"element": element, "ability": "evaluate"}]);
    json!({
        "minute": {"type": "interval", "properties": {"minutes": 1}, "triggers": {"elapsed": link("bytes")}},
        "bytes": {"type": "transform", "properties": {"expression": "'AAAA'"}, "triggers": {"result": link("code")}},
        "code": {"type": "function", "properties": {"code": ENDLESS}},
    })
}

/// A design with so many elements that take events of the webhook.
pub fn receivers(count: usize) -> Value {
    let receiver = json!({"type": "deviceEvent", "properties": {"integration": "custom"}});
    Value::Object((0..count).map(|number| (format!("e{number}"), receiver.clone())).collect())
}

/// The path of a delivery to one device of a project.
pub fn delivery_path(project: &str) -> String {
    format!("/v2/events/integrations?eventsRef=data&deviceTag=tag&deviceTagValue=one&projectUuid={project}")
}

/// The body of a delivery of so many blocks, each as small as can be.
pub fn delivery(blocks: usize) -> String {
    json!({"data": vec![1; blocks]}).to_string()
}

/// Numbers of a payload, and fields of a question in buckets.
const NUMBERS: usize = 10;

/// A payload with as many numbers as a question in buckets may name.
pub fn numbers(number: usize) -> String {
    let numbers = (0..NUMBERS).map(|at| (format!("n{at}"), json!((number * (at + 7) % 1_009) as f64 / 8.0)));
    Value::Object(numbers.collect()).to_string()
}

/// A question in buckets that keeps as much as it can: percentiles of ten fields, of which every second one is in no payload.
pub fn bucket_query(number: usize) -> String {
    let field = |at: usize| match number % 2 {
        0 => format!("payload.n{at}"),
        _ => format!("payload.n{at}x{number}"),
    };
    let fields: Vec<String> = (0..NUMBERS).map(field).collect();
    let every = ["1s", "1m", "7s"][number % 3];
    format!("fields={}&functions=p50,p90,p95,p99,stddev&every={every}", fields.join(","))
}

/// Bodies of so many devices of a project.
pub fn many_devices(project: &str, count: usize) -> String {
    let body = |number: usize| json!({"name": format!("device {number}"), "projectUuid": project, "meta": {"floor": number % 40, "room": "x"}});
    Value::from_iter((0..count).map(body)).to_string()
}

/// Summaries and lists with filters that no index serves.
pub fn filtered(number: usize) -> String {
    let path = if number.is_multiple_of(2) { "/v2/devices/summary" } else { "/v2/devices" };
    let filters = [
        "filter[meta.floor][gte]=3",
        "filter[lastActive][eq]=null",
        "filter[meta.room][ne]=y&filter[statusInt][lte]=3",
        "filter[lastActive][gte]=2020-01-01",
    ];
    format!("{path}?depth=all&{}", filters[number / 2 % filters.len()])
}

/// A batch of so many events, of these devices in turns.
pub fn batch(devices: &[&str], events: usize) -> String {
    let event = |number: usize| json!({"deviceId": devices[number % devices.len()], "elementName": EVENT, "payload": {"n": number}});
    Value::from_iter((0..events).map(event)).to_string()
}

/// A design in which each event raises and clears so many alarms by the key that it names.
pub fn alarms(count: usize) -> Value {
    let name = |number: usize| format!("alarm{number}");
    let alarm = json!({"type": "alarm", "properties": {"title": "Alarm {{ payload.key }}"}});
    let link = |number: usize, ability: &str| json!({"element": name(number), "ability": ability, "arguments": {"key": "payload.key"}});
    let mut elements: Map<String, Value> = (0..count).map(|number| (name(number), alarm.clone())).collect();
    let links = (0..count).flat_map(|number| ["raise", "clear"].map(|ability| link(number, ability)));
    elements.insert(EVENT.to_owned(), received(links.collect()));
    Value::Object(elements)
}

/// A batch of so many events for [`alarms`], of these devices in turns, with keys that no other batch has.
pub fn alarm_batch(devices: &[&str], events: usize, number: usize) -> String {
    let event = |at: usize| {
        let key = format!("{number}-{at}");
        json!({"deviceId": devices[at % devices.len()], "elementName": EVENT, "payload": {"key": key}})
    };
    Value::from_iter((0..events).map(event)).to_string()
}
