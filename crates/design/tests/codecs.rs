//! Runs every codec of `tests/codecs`: a folder with `codec.js` and `examples.json` each. An example has a description, an
//! fPort, bytes, and either the data that is expected, or `"fails": true`.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

mod stand;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use isobar_design::{Effect, Plan, Trigger, run};
use isobar_model::json::{RawJson, equal};
use serde_json::{Value, json};
use stand::{Nothing, device, event, raw};

fn plan(code: &str) -> Result<Plan, String> {
    let planes = json!({"cloud": {"elements": {
        "in": {"type": "deviceEvent", "triggers": {"eventReceived": [{"element": "codec", "ability": "evaluate"}]}},
        "codec": {"type": "function", "properties": {"code": code}, "triggers": {"result": [{"element": "out", "ability": "store"}]}},
        "out": {"type": "storage"},
    }}});
    Plan::compile(&raw(&planes.to_string()).tree()).map_err(|faults| format!("{faults:?}"))
}

/// What the codec makes of an example; or why it fails.
fn decode(plan: &Plan, example: &Value) -> Result<RawJson, String> {
    let payload = raw(&json!({"fPort": example["fPort"], "bytes": example["bytes"]}).to_string());
    let tree = payload.tree();
    let event = event("in", &payload, &tree);
    let outcome = run(plan, Trigger::DeviceEvent { element: "in" }, &event, &device(), &Nothing);
    match (outcome.effects.as_slice(), outcome.errors.as_slice()) {
        ([Effect::Store { value, .. }], []) => Ok(value.clone()),
        (_, errors) => Err(format!("{errors:?}")),
    }
}

/// What is wrong with the codec in a folder, a line each.
fn check(folder: &Path) -> (usize, String) {
    let code = fs::read_to_string(folder.join("codec.js")).unwrap();
    let examples: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(folder.join("examples.json")).unwrap()).unwrap();
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let mut report = String::new();
    let plan = match plan(&code) {
        Ok(plan) => plan,
        Err(faults) => return (0, format!("{name}: {faults}\n")),
    };
    // Twice: the second time in an engine that was used.
    for example in examples.iter().chain(&examples) {
        let found = decode(&plan, example);
        let sound = match &found {
            Ok(data) => example.get("expected").is_some_and(|it| equal(&data.tree(), &raw(&it.to_string()).tree())),
            Err(_) => example["fails"] == true,
        };
        if !sound {
            writeln!(report, "{name}, {}: {found:?}", example["description"]).unwrap();
        }
    }
    (examples.len(), report)
}

#[test]
fn every_codec_decodes_its_examples() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/codecs");
    let mut folders: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    let (mut examples, mut report) = (0, String::new());
    for folder in &folders {
        let (count, faults) = check(folder);
        examples += count;
        report += &faults;
    }
    assert!(report.is_empty(), "\n{report}");
    assert!(folders.len() >= 10 && examples >= 15, "{} codecs, {examples} examples", folders.len());
}
