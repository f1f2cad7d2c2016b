//! Runs one example through the real element, and compares the result with what the example promises.

use bytes::Bytes;
use isobar_design::{Effect, EmptyMemory, EventView, Plan, Trigger, run_traced};
use isobar_model::json::{Json, RawJson, equal};
use serde_json::{Value, json};

use crate::stand::{device, event, raw, received_at};

/// Most differences that are shown of one example.
const TOLD_MAX: usize = 5;
/// Longest value that is shown in full, in characters.
const VALUE_CHARS_MAX: usize = 120;

/// Compiles a design with a function of that code; the error says what is wrong with the code.
pub fn plan(code: &str) -> Result<Plan, String> {
    let planes = json!({"cloud": {"elements": {
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "codec", "ability": "evaluate"}]}},
        "codec": {"type": "function", "properties": {"code": code}, "triggers": {
            "result": [{"element": "out", "ability": "store"}],
            "error": [{"element": "bad", "ability": "store"}],
        }},
        "out": {"type": "storage"},
        "bad": {"type": "storage"},
    }}});
    let planes = RawJson::check(Bytes::from(planes.to_string())).map_err(|fault| fault.to_string())?;
    Plan::compile(&planes.tree()).map_err(|faults| {
        let faults: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
        faults.join("; ")
    })
}

/// Result of an example.
#[derive(Debug)]
struct Found {
    data: Option<RawJson>,
    /// Errors passed on along `error`.
    errors: Option<RawJson>,
    warnings: Vec<String>,
    /// Errors recorded with the event.
    shown: Vec<String>,
}

fn decode(plan: &Plan, example: &Value) -> Result<Found, String> {
    let received_at = match &example["recvTime"] {
        Value::Null => received_at(),
        time => {
            time.as_str().and_then(|time| time.parse().ok()).ok_or_else(|| format!("recvTime {time} is no time"))?
        }
    };
    let payload = raw(&json!({"fPort": example["fPort"], "bytes": example["bytes"]}).to_string());
    let tree = payload.tree();
    let event = EventView { received_at, ..event("in", &payload, &tree) };
    // Warnings appear only in a trace.
    let (outcome, trace) = run_traced(plan, Trigger::DeviceEvent { element: "in" }, &event, &device(), &EmptyMemory);
    let stored = |wanted: &str| {
        outcome.effects.iter().find_map(|effect| match effect {
            Effect::Store { element, value } if **element == *wanted => Some(value.clone()),
            _ => None,
        })
    };
    Ok(Found {
        data: stored("out"),
        errors: stored("bad"),
        warnings: trace.into_iter().flat_map(|step| step.notes).collect(),
        shown: outcome.errors.iter().map(|error| error.message.clone()).collect(),
    })
}

/// Evaluates JavaScript to JSON.
pub fn evaluated(expression: &str) -> Result<Value, String> {
    let plan = plan(&format!("function decodeUplink() {{ return {{data: (\n{expression}\n)}}; }}"))?;
    let found = decode(&plan, &json!({"bytes": []}))?;
    let data = found.data.ok_or_else(|| found.shown.join("; "))?;
    Ok(value_of(&data.tree()))
}

/// Parses JSON with its exact numbers: `serde_json` may round to a neighbouring one.
pub fn exact(text: &str) -> Result<Value, String> {
    let raw = RawJson::check(Bytes::copy_from_slice(text.as_bytes())).map_err(|fault| fault.to_string())?;
    Ok(value_of(&raw.tree()))
}

fn value_of(json: &Json<'_>) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(is) => Value::Bool(*is),
        Json::Number(number) => match number.text().parse::<i64>() {
            Ok(whole) => json!(whole),
            Err(_) => json!(number.as_f64()),
        },
        Json::Text(text) => json!(text),
        Json::Array(items) => items.iter().map(value_of).collect(),
        Json::Object(members) => members.iter().map(|(name, value)| (name.to_string(), value_of(value))).collect(),
    }
}

/// Runs an example and returns how its result differs, if it does.
pub fn difference(plan: &Plan, example: &Value) -> Option<String> {
    let (expected, errors) = (example.get("expected"), example.get("errors"));
    let mut told = Vec::new();
    match decode(plan, example) {
        Err(why) => told.push(why),
        Ok(found) => {
            let failure = found.shown.join("; ");
            match (expected, errors) {
                (Some(_), _) if !failure.is_empty() => told.push(format!("fails: {failure}")),
                (Some(expected), _) => explain(&found.data, expected, "data", &mut told),
                (None, Some(_)) | (None, None) if failure.is_empty() => told.push(match example["fails"] == true {
                    false if errors.is_none() => "the example says neither data nor errors".to_owned(),
                    _ => format!("does not fail, but gives {}", shown(&json!(found.data.as_ref().map(RawJson::text)))),
                }),
                (None, None) if example["fails"] != true => {
                    told.push(format!("the example says neither data nor errors, and it fails: {failure}"));
                }
                _ => {}
            }
            if let Some(errors) = errors
                && (expected.is_some() || !failure.is_empty())
            {
                explain(&found.errors, errors, "errors", &mut told);
            }
            if let Some(warnings) = example.get("warnings")
                && *warnings != json!(found.warnings)
            {
                told.push(format!("warnings are {}, not {}", shown(&json!(found.warnings)), shown(warnings)));
            }
        }
    }
    if told.is_empty() {
        return None;
    }
    if example.get("variables").is_some_and(|variables| *variables != json!({})) {
        told.push("the example has variables, which the element has not".to_owned());
    }
    let more = told.len().saturating_sub(TOLD_MAX);
    told.truncate(TOLD_MAX);
    if more > 0 {
        told.push(format!("{more} more"));
    }
    let described = example["description"].as_str().unwrap_or("without a description");
    Some(format!("{}: {}", described.trim(), told.join("; ")))
}

/// Describes how a result differs from what is expected.
fn explain(found: &Option<RawJson>, expected: &Value, place: &str, told: &mut Vec<String>) {
    let Some(found) = found else {
        return told.push(format!("{place} is missing"));
    };
    // An example that is not valid JSON must not end the report.
    match RawJson::check(Bytes::from(expected.to_string())) {
        Err(fault) => told.push(format!("{place} of the example is no JSON: {fault}")),
        Ok(expected) if equal(&found.tree(), &expected.tree()) => {}
        Ok(_) => {
            let before = told.len();
            let value = value_of(&found.tree());
            compare(&value, expected, place, told);
            if told.len() == before {
                told.push(format!("{place} is {}, not {}", shown(&value), shown(expected)));
            }
        }
    }
}

/// Describes each place where two values differ.
fn compare(found: &Value, expected: &Value, place: &str, told: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (name, expected) in expected {
                let place = format!("{place}.{name}");
                match found.get(name) {
                    Some(found) => compare(found, expected, &place, told),
                    None => told.push(format!("{place} is missing, not {}", shown(expected))),
                }
            }
            for (name, found) in found.iter().filter(|(name, _)| !expected.contains_key(*name)) {
                told.push(format!("{place}.{name} is {}, not missing", shown(found)));
            }
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
                compare(found, expected, &format!("{place}[{at}]"), told);
            }
        }
        (Value::Number(left), Value::Number(right)) if left.as_f64() == right.as_f64() => {}
        _ if found == expected => {}
        _ => told.push(format!("{place} is {}, not {}", shown(found), shown(expected))),
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}
