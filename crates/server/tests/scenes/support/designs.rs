//! Designs that scenes run.

use serde_json::{Value, json};

/// Returns a link to an ability that takes the incoming value.
pub fn to(element: &str, ability: &str) -> Value {
    json!({"element": element, "ability": ability})
}

/// Returns a link to an ability with arguments.
pub fn to_with(element: &str, ability: &str, arguments: Value) -> Value {
    json!({"element": element, "ability": ability, "arguments": arguments})
}

/// Returns a design that stores each event `in` this many times in `log`: a long series by few requests.
pub fn copied(times: usize) -> Value {
    json!({
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": vec![to("log", "store"); times]}},
        "log": {"type": "storage"},
    })
}

/// Returns the design of a refrigerated truck: readings are stored; one that is too warm sets a warning and notifies
/// users; an event can set a new alarm limit; and the last storage element counts only changes of the temperature.
pub fn fridge() -> Value {
    json!({
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
            to("store", "store"), to("warm", "evaluate"), to("fahrenheit", "evaluate"), to("moved", "evaluate"),
        ]}},
        "store": {"type": "storage"},
        "warm": {
            "type": "condition",
            "properties": {"expression": "payload.temp > settings.limit"},
            "triggers": {
                "true": [
                    to_with("status", "setStatus", json!({"status": "critical"})),
                    to_with("status", "setValue", json!({"tag": "'lastAlarm'", "value": "payload.temp"})),
                    to_with("alarm", "send", json!({"value": "{'temp': payload.temp, 'limit': settings.limit}"})),
                ],
                "false": [to_with("status", "setStatus", json!({"status": "good"}))],
            },
        },
        "fahrenheit": {
            "type": "transform",
            "properties": {"expression": "{'tempF': payload.temp * 9 / 5 + 32}"},
            "triggers": {"result": [to("converted", "store")]},
        },
        "converted": {"type": "storage"},
        "moved": {
            "type": "changed",
            "properties": {"expression": "payload.temp"},
            "triggers": {"changed": [to("moves", "store")]},
        },
        "moves": {"type": "storage"},
        "status": {"type": "deviceMeta"},
        "alarm": {"type": "cloudEvent"},
        "newLimit": {"type": "deviceEvent", "triggers": {"eventReceived": [
            to_with("limit", "set", json!({"value": "payload"})),
        ]}},
        "limit": {
            "type": "deviceSetting",
            "properties": {"inputType": "number", "inputTypeProperties": {"min": -40, "max": 40}, "defaultValue": 8},
        },
    })
}

/// Returns the design of a thermostat with a setting of every kind. Each change of its limit is sent to the device and
/// stored; every reading is answered with the limit at that time; and the device can set the limit itself.
pub fn thermostat() -> Value {
    let setting = |properties: Value| json!({"type": "deviceSetting", "properties": properties});
    json!({
        "limit": {
            "type": "deviceSetting",
            "properties": {
                "title": {"en": "Limit", "de": "Grenze"},
                "inputType": "number",
                "inputTypeProperties": {"min": -40, "max": 40},
                "defaultValue": 8,
                "listOrder": 2,
            },
            "triggers": {"changed": [
                to_with("told", "send", json!({"value": "{'limit': event.payload, 'now': settings.limit}"})),
                to("limits", "store"),
                to("moved", "evaluate"),
            ]},
        },
        "told": {"type": "cloudEvent"},
        "limits": {"type": "storage"},
        "moved": {"type": "changed", "triggers": {"changed": [to("moves", "store")]}},
        "moves": {"type": "storage"},
        "label": setting(json!({
            "title": "Label",
            "description": "On the door",
            "inputTypeProperties": ["kitchen", "cellar"],
            "defaultValue": "none",
            "listOrder": 1,
        })),
        "factor": setting(json!({"inputType": "number", "listOrder": 2})),
        "quiet": setting(json!({
            "description": {"en": "At night", "de": "Nachts"},
            "inputType": "toggle",
            "defaultValue": false,
            "listOrder": 3,
        })),
        "place": setting(json!({"inputType": "geolocation", "listOrder": 4})),
        "home": setting(json!({
            "inputType": "geolocation",
            "defaultValue": {"latitude": 47.5, "longitude": 8.5},
            "listOrder": 5,
        })),
        "reading": {"type": "deviceEvent", "triggers": {"eventReceived": [
            to_with("held", "send", json!({"value": "settings.limit"})),
        ]}},
        "held": {"type": "cloudEvent"},
        "wish": {"type": "deviceEvent", "triggers": {"eventReceived": [to("limit", "set")]}},
        "arrival": {"type": "deviceEvent", "triggers": {"eventReceived": [to("place", "set")]}},
    })
}
