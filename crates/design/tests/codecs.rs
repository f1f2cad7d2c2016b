//! Runs every codec of `tests/codecs`: a folder with `codec.js` and `examples.json` each. An example has a description, an
//! fPort, bytes, and either the data that is `expected`; or the `errors` that the element passes on, a list of texts or the
//! text of what was thrown; or `"fails": true`, however it fails. It may say as well which `warnings` there are.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

mod stand;

use std::fs;
use std::path::Path;

use bytes::Bytes;
use isobar_design::{Effect, Plan, Trigger, run_traced};
use isobar_model::json::{RawJson, equal};
use serde_json::{Value, json};
use stand::{Nothing, device, event, raw};

fn plan(code: &str) -> Result<Plan, String> {
    let planes = json!({"cloud": {"elements": {
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "codec", "ability": "evaluate"}]}},
        "codec": {"type": "function", "properties": {"code": code}, "triggers": {
            "result": [{"element": "out", "ability": "store"}],
            "error": [{"element": "bad", "ability": "store"}],
        }},
        "out": {"type": "storage"},
        "bad": {"type": "storage"},
    }}});
    Plan::compile(&raw(&planes.to_string()).tree()).map_err(|faults| format!("{faults:?}"))
}

/// What came of an example.
#[derive(Debug)]
struct Found {
    data: Option<RawJson>,
    /// What was passed on along `error`.
    errors: Option<RawJson>,
    warnings: Vec<String>,
    /// What the event shows of it.
    shown: Vec<String>,
}

fn decode(plan: &Plan, example: &Value) -> Found {
    let payload = raw(&json!({"fPort": example["fPort"], "bytes": example["bytes"]}).to_string());
    let tree = payload.tree();
    let event = event("in", &payload, &tree);
    // Warnings stand in a trace alone.
    let (outcome, trace) = run_traced(plan, Trigger::DeviceEvent { element: "in" }, &event, &device(), &Nothing);
    let stored = |wanted: &str| {
        outcome.effects.iter().find_map(|effect| match effect {
            Effect::Store { element, value } if **element == *wanted => Some(value.clone()),
            _ => None,
        })
    };
    Found {
        data: stored("out"),
        errors: stored("bad"),
        warnings: trace.into_iter().flat_map(|step| step.notes).collect(),
        shown: outcome.errors.iter().map(|error| error.message.clone()).collect(),
    }
}

fn is_same(found: Option<&RawJson>, expected: &Value) -> bool {
    // An example that is no JSON for a device is no reason to leave out the rest of the report.
    let expected = RawJson::check(Bytes::from(expected.to_string()));
    matches!((found, &expected), (Some(found), Ok(expected)) if equal(&found.tree(), &expected.tree()))
}

/// What came of an example, if that is not what it says.
fn difference(plan: &Plan, example: &Value) -> Option<String> {
    let found = decode(plan, example);
    let (expected, errors) = (example.get("expected"), example.get("errors"));
    let ends = match expected {
        Some(expected) => found.shown.is_empty() && is_same(found.data.as_ref(), expected),
        None => !found.shown.is_empty() && (errors.is_some() || example["fails"] == true),
    };
    let fails = errors.is_none_or(|errors| is_same(found.errors.as_ref(), errors));
    let warns = example.get("warnings").is_none_or(|warnings| *warnings == json!(found.warnings));
    (!(ends && fails && warns)).then(|| format!("{} gives {found:?}", example["description"]))
}

/// A codec that was tried.
struct Tried {
    codec: String,
    examples: usize,
    differences: Vec<String>,
}

impl Tried {
    /// The codec of a folder. One that cannot be read, or is no codec, differs in that.
    fn of(folder: &Path) -> Self {
        let codec = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (examples, differences) = differences(folder).unwrap_or_else(|why| (0, vec![why]));
        Self { codec, examples, differences }
    }

    fn is_sound(&self) -> bool {
        self.differences.is_empty()
    }

    /// Its line of the report.
    fn line(&self) -> String {
        let what = if self.is_sound() { "ok".to_owned() } else { self.differences.join("; ") };
        format!("{}, {} example(s): {what}", self.codec, self.examples)
    }
}

/// How many examples a folder has, and what differs from them; or why they cannot be tried.
fn differences(folder: &Path) -> Result<(usize, Vec<String>), String> {
    let read = |file: &str| fs::read_to_string(folder.join(file)).map_err(|error| format!("{file}: {error}"));
    let plan = plan(&read("codec.js")?).map_err(|faults| format!("codec.js: {faults}"))?;
    let examples: Vec<Value> =
        serde_json::from_str(&read("examples.json")?).map_err(|error| format!("examples.json: {error}"))?;
    if examples.is_empty() {
        return Err("examples.json: has no example".to_owned());
    }
    let mut differences = Vec::new();
    // Twice: the second time in an engine that was used.
    for example in examples.iter().chain(&examples) {
        if let Some(difference) = difference(&plan, example)
            && !differences.contains(&difference)
        {
            differences.push(difference);
        }
    }
    Ok((examples.len(), differences))
}

#[test]
fn every_codec_decodes_its_examples() {
    let folder = Path::new("tests/codecs");
    let mut folders: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let tried: Vec<Tried> = folders.iter().map(|folder| Tried::of(folder)).collect();
    for codec in &tried {
        println!("{}", codec.line());
    }
    let unsound: Vec<String> = tried.iter().filter(|codec| !codec.is_sound()).map(Tried::line).collect();
    assert!(unsound.is_empty(), "{} of {} codecs differ:\n{}", unsound.len(), tried.len(), unsound.join("\n"));
    let examples: usize = tried.iter().map(|codec| codec.examples).sum();
    assert!(tried.len() >= 16 && examples >= 41, "{} codecs, {examples} examples", tried.len());
}

#[test]
fn what_is_not_as_an_example_says_is_a_difference() {
    let code = "function decodeUplink(input) {
        if (input.fPort === 2) throw new Error('port 2');
        return {data: input.bytes, warnings: ['low'], errors: input.fPort === 3 ? ['a', 'b'] : []};
    }";
    let plan = plan(code).unwrap();
    for (port, mut example, is_sound) in [
        (1, json!({"expected": [7]}), true),
        (1, json!({"expected": [7.0], "warnings": ["low"]}), true),
        (1, json!({"expected": [7], "warnings": []}), false),
        (1, json!({"expected": [8]}), false),
        (1, json!({"expected": [7], "errors": ["a", "b"]}), false),
        (1, json!({"fails": true}), false),
        (1, json!({}), false),
        (2, json!({"fails": true}), true),
        (2, json!({"errors": "Error: port 2"}), true),
        (2, json!({"errors": ["Error: port 2"]}), false),
        (2, json!({"expected": [7]}), false),
        (3, json!({"errors": ["a", "b"], "warnings": ["low"]}), true),
        (3, json!({"fails": true, "errors": ["a"]}), false),
        (3, json!({"fails": true, "warnings": ["high"]}), false),
    ] {
        example["fPort"] = json!(port);
        example["bytes"] = json!([7]);
        let difference = difference(&plan, &example);
        assert_eq!(difference.is_none(), is_sound, "{example}: {difference:?}");
    }
}

#[test]
fn a_codec_that_cannot_be_read_has_its_line() {
    let tests = Path::new("tests");
    for folder in ["stand", "codecs.rs", "codecs/nowhere"] {
        let line = Tried::of(&tests.join(folder)).line();
        assert!(line.contains(", 0 example(s): codec.js: "), "{line}");
    }
}
