//! Runs every codec of `tests/codecs`, each a folder with `codec.js` and `examples.json`. An example has a description,
//! an fPort, bytes, and either the `expected` data, or the `errors` that the element passes on (a list of texts, or the
//! text of the exception), or `"fails": true` for any failure. It may also have the expected `warnings` and its
//! `recvTime`. Tests the runner too, which also runs published collections (`scripts/try-codecs`).

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

mod collection;
mod stand;

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use collection::{Report, State, Tried, trial, try_all, yaml};
use serde_json::json;

// Holds: c11.function
#[test]
fn every_codec_decodes_its_examples() {
    let tried = try_all(Path::new("tests/codecs"), |codec| println!("{codec}")).codecs;
    let unsound: Vec<String> =
        tried.iter().filter(|codec| codec.state != State::Same).map(|codec| codec.to_string()).collect();
    assert!(unsound.is_empty(), "{} of {} codecs differ:\n{}", unsound.len(), tried.len(), unsound.join("\n"));
    let examples: usize = tried.iter().map(|codec| codec.examples).sum();
    assert!(tried.len() >= 17 && examples >= 44, "{} codecs, {examples} examples", tried.len());
}

// Holds: c11.function
#[test]
fn codecs_decode_the_same_in_every_time_zone_of_the_machine() {
    for zone in ["AAA-5:45", "BBB+9:30BBC,M3.2.0,M11.1.0", "CET-1CEST,M3.5.0,M10.5.0/3"] {
        let test = ["--exact", "every_codec_decodes_its_examples"];
        let output = Command::new(env::current_exe().unwrap()).args(test).env("TZ", zone).output().unwrap();
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && told.contains("1 passed"), "{zone}: {told}");
    }
}

#[test]
fn result_that_differs_from_an_example_is_reported() {
    let code = "function decodeUplink(input) {
        if (input.fPort === 2) throw new Error('port 2');
        return {data: input.bytes, warnings: ['low'], errors: input.fPort === 3 ? ['a', 'b'] : []};
    }";
    let plan = trial::plan(code).unwrap();
    for (port, mut example, told) in [
        (1, json!({"expected": [7]}), None),
        (1, json!({"expected": [7.0], "warnings": ["low"]}), None),
        (1, json!({"expected": [7], "warnings": []}), Some(r#"x: warnings are ["low"], not []"#)),
        (1, json!({"expected": [8]}), Some("x: data[0] is 7, not 8")),
        (1, json!({"expected": [7], "errors": ["a", "b"]}), Some("x: errors is missing")),
        (1, json!({"errors": ["a", "b"]}), Some(r#"x: does not fail, but gives "[7]""#)),
        (1, json!({"fails": true}), Some(r#"x: does not fail, but gives "[7]""#)),
        (1, json!({}), Some("x: the example says neither data nor errors")),
        (2, json!({"fails": true}), None),
        (2, json!({"errors": "Error: port 2"}), None),
        (2, json!({"errors": ["Error: port 2"]}), Some(r#"x: errors is "Error: port 2", not ["Error: port 2"]"#)),
        (2, json!({"expected": [7]}), Some("x: fails: Error: port 2")),
        (2, json!({}), Some("x: the example says neither data nor errors, and it fails: Error: port 2")),
        (3, json!({"errors": ["a", "b"], "warnings": ["low"]}), None),
        (3, json!({"fails": true, "errors": ["a"]}), Some(r#"x: errors is ["a","b"], not ["a"]"#)),
        (
            3,
            json!({"fails": true, "warnings": ["high"], "variables": {"unit": "F"}}),
            Some(r#"x: warnings are ["low"], not ["high"]; the example has variables, which the element has not"#),
        ),
        (1, json!({"expected": [7], "recvTime": "noon"}), Some(r#"x: recvTime "noon" is no time"#)),
    ] {
        example["fPort"] = json!(port);
        example["bytes"] = json!([7]);
        example["description"] = json!("x");
        assert_eq!(trial::difference(&plan, &example).as_deref(), told, "{example}");
    }
}

#[test]
fn difference_is_reported_by_place_and_shortened() {
    let code = "function decodeUplink(input) {
        if (input.fPort === 2) return {data: [1, 2, 3, 4, 5, 6, 7]};
        return {data: {temp: 20.5, at: input.recvTime, list: [{a: 1}], long: 'x'.repeat(500)}};
    }";
    let plan = trial::plan(code).unwrap();
    let expected = json!({"temp": 20, "at": "2024-02-29T10:00:00.000Z", "list": [{"a": 2}], "door": true});
    let example = json!({"fPort": 1, "bytes": [], "recvTime": "2024-02-29T11:00:00+01:00", "expected": expected});
    let told = trial::difference(&plan, &example).unwrap();
    for part in [
        "data.temp is 20.5, not 20",
        "data.list[0].a is 1, not 2",
        "data.door is missing, not true",
        "xx…, not missing",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("data.at") && told.len() < 400, "{told}");
    let told = trial::difference(&plan, &json!({"fPort": 2, "bytes": [], "expected": [0, 0, 0, 0, 0, 0, 0]})).unwrap();
    assert!(told.ends_with("data[4] is 5, not 0; 2 more"), "{told}");
}

/// Runs a folder with these files.
fn tried(files: &[(&str, &str)]) -> Report {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    try_all(folder.path(), |_| ())
}

const DOUBLES: &str = "function decodeUplink(input) {
    if (input.fPort === 9) return {errors: ['port 9']};
    return {data: {twice: 2 * input.bytes[0], at: input.recvTime}};
}";

// Holds: c11.function
#[test]
fn each_layout_is_known() {
    let yaml = "
uplinkDecoder:
  fileName: meter.js
  examples:
    - description: Ten
      input: {fPort: 1, bytes: [0x0a], recvTime: 2024-02-29T10:00:00Z}
      output:
        data: {twice: 20, at: '2024-02-29T10:00:00.000Z'}
        warnings: []
    - description: Eleven
      input:
        fPort: 1
        bytes:
          - 11
      output: {data: {twice: 23, at: '2026-03-04T05:06:07.089Z'}}
    - {description: Port nine, input: {fPort: 9, bytes: []}, output: {errors: [port 9]}}
downlinkDecoder: {fileName: other.js, examples: [{description: None, input: {bytes: [1]}, output: {}}]}
";
    let chirpstack = r#"[
        // As a script.
        {"name": "Ten", "input": {fPort: 0x01, bytes: [0x0a], recvTime: new Date(0)}, "expected": {data: {twice: 20, at: "1970-01-01T00:00:00.000Z"}}},
        {"name": "Eleven", "input": {fPort: 1, bytes: [11]}, "expected": {data: {twice: 23, at: "2026-03-04T05:06:07.089Z"}}},
        {"name": "Port nine", "input": {fPort: 9, bytes: []}, "expected": {errors: ['port 9']}},
    ]"#;
    let package = r#"[
        {"type": "uplink", "description": "Ten", "input": {"fPort": 1, "bytes": "0A", "recvTime": "2024-02-29T12:00:00.000+02:00"},
         "output": {"data": {"twice": 20, "at": "2024-02-29T10:00:00.000Z"}, "errors": [], "warnings": []}},
        {"type": "uplink", "description": "Eleven", "input": {"fPort": 1, "bytes": [11]},
         "output": {"data": {"twice": 23, "at": "2026-03-04T05:06:07.089Z"}}},
        {"type": "uplink", "description": "Port nine", "input": {"fPort": 9, "bytes": []}, "output": {"errors": ["port 9"]}},
        {"type": "downlink-encode", "description": "None", "input": {"data": {}}, "output": {"bytes": [1]}}
    ]"#;
    let ours = r#"[
        {"description": "Ten", "fPort": 1, "bytes": [10], "recvTime": "2024-02-29T10:00:00Z", "expected": {"twice": 20, "at": "2024-02-29T10:00:00.000Z"}},
        {"description": "Eleven", "fPort": 1, "bytes": [11], "expected": {"twice": 23, "at": "2026-03-04T05:06:07.089Z"}},
        {"description": "Port nine", "fPort": 9, "bytes": [], "errors": ["port 9"]}
    ]"#;
    for (codec, examples, text) in [
        ("vendor/acme/meter.js", "vendor/acme/meter-codec.yaml", yaml),
        ("vendor/acme/meter.js", "vendor/acme/codec.yml", yaml),
        ("vendors/acme/codecs/Meter-1.js", "vendors/acme/codecs/test_decode_Meter-1.json", chirpstack),
        ("vendors/acme/drivers/meter/index.js", "vendors/acme/drivers/meter/examples.json", package),
        ("meter/index.js", "meter/examples/meter.examples.json", package),
        ("meter/codec.js", "meter/examples.json", ours),
    ] {
        let report = tried(&[(codec, DOUBLES), (examples, text), ("README.md", "uplinkDecoder: no")]);
        let [tried] = &report.codecs[..] else { panic!("{examples}: {report:?}") };
        let told = ["Eleven: data.twice is 22, not 23".to_owned()];
        assert_eq!((tried.codec.as_str(), tried.examples, &tried.told[..]), (codec, 3, &told[..]), "{examples}");
        assert_eq!((&tried.state, tried.differing), (&State::Differs, 1), "{examples}");
        assert_eq!(tried.to_string(), format!("{codec}: 1 of 3 example(s) differ\n    {}", told[0]));
    }
}

#[test]
fn numbers_are_compared_as_they_are_written() {
    let code = "function decodeUplink(input) { return {data: 5 / 255 * input.bytes[0]}; }";
    let example = |expected: &str| format!(r#"[{{"input": {{"bytes": [197]}}, "output": {{"data": {expected}}}}}]"#);
    for (expected, state) in [
        ("3.8627450980392157", State::Same),
        ("3.862745098039216", State::Differs),
        ("3.8627450980392153", State::Differs),
    ] {
        let report = tried(&[("index.js", code), ("examples.json", &example(expected))]);
        assert_eq!(report.codecs[0].state, state, "{expected}: {report:?}");
    }
}

#[test]
fn a_package_says_where_its_code_is() {
    let example = r#"[{"type": "uplink", "description": "Port nine", "input": {"fPort": 9, "bytes": []}, "output": {"errors": ["port 9"]}}]"#;
    let main = ("driver/package.json", r#"{"main": "./src/driver.js"}"#);
    let report = tried(&[
        main,
        ("driver/src/driver.js", DOUBLES),
        ("driver/index.js", "throw 1"),
        ("driver/examples.json", example),
    ]);
    let [Tried { codec, state: State::Same, examples: 1, .. }] = &report.codecs[..] else { panic!("{report:?}") };
    assert_eq!(codec, "driver/src/driver.js");
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let example = r#"[{"description": "x", "fPort": 1, "bytes": [1], "fails": true}]"#;
    for (files, told) in [
        (vec![("a/examples.json", example)], "No such file"),
        (vec![("a/codec.js", DOUBLES), ("a/examples.json", "[")], "examples.json: is neither JSON ("),
        (vec![("a/codec.js", DOUBLES), ("a/examples.json", "while (1)")], "nor JavaScript ("),
        (vec![("a/codec.js", DOUBLES), ("a/examples.json", "[]")], "examples.json: has no example"),
        (vec![("a/codec.js", DOUBLES), ("a/examples.json", "{}")], "is no list of examples"),
        (vec![("a-codec.yaml", "uplinkDecoder: [")], "a-codec.yaml: is no YAML: "),
        (vec![("a-codec.yaml", "uplinkDecoder: {examples: []}")], "uplinkDecoder.fileName names no file"),
        (vec![("a-codec.yaml", "uplinkDecoder: {fileName: a.js}")], "No such file"),
        (
            vec![("a-codec.yaml", "uplinkDecoder: {fileName: a.js, examples: 7}"), ("a.js", DOUBLES)],
            "a-codec.yaml: uplinkDecoder.examples is no list",
        ),
        (
            vec![("a-codec.yaml", "uplinkDecoder: {fileName: ../../../../../../../../etc/hosts}")],
            "leads out of the collection",
        ),
    ] {
        let report = tried(&files);
        let [tried] = &report.codecs[..] else { panic!("{files:?}: {report:?}") };
        assert_eq!(tried.state, State::Unread, "{files:?}: {tried}");
        assert!(tried.told.join("; ").contains(told), "{files:?}: {tried}");
    }
}

#[test]
fn code_that_is_no_codec_or_needs_more_is_named() {
    for (files, state, told) in [
        (vec![("a.js", "function decodeUplink( {")], State::Differs, "SyntaxError"),
        (vec![("a.js", "var decodeUplink = 7;")], State::Differs, "has no function decodeUplink(input)"),
        (
            vec![("a.js", "var b = require('buffer'); function decodeUplink() {}")],
            State::Needs("require".to_owned()),
            "require is not defined",
        ),
        (
            vec![("a.js", "import { a } from './a.js';\nfunction decodeUplink() {}")],
            State::Needs("import or export".to_owned()),
            "SyntaxError",
        ),
        (
            vec![
                ("a/codec.js", "function decodeUplink(input) { return {data: fetch('http://example.com')}; }"),
                ("a/examples.json", r#"[{"description": "x", "fPort": 1, "bytes": [1], "expected": 1}]"#),
            ],
            State::Needs("fetch".to_owned()),
            "x: fails: ReferenceError: fetch is not defined",
        ),
        (
            vec![
                ("a/codec.js", DOUBLES),
                ("a/examples.json", r#"[7, {"input": {"bytes": "x"}, "output": {"data": 1}}]"#),
            ],
            State::Differs,
            "without a description: fails: the bytes are no Base64",
        ),
        (vec![("a.js", DOUBLES)], State::WithoutExamples, ""),
    ] {
        let report = tried(&files);
        let [tried] = &report.codecs[..] else { panic!("{files:?}: {report:?}") };
        assert_eq!(tried.state, state, "{files:?}: {tried}");
        assert!(tried.told.join("; ").contains(told), "{files:?}: {tried}");
    }
}

#[test]
fn javascript_without_a_codec_is_ignored() {
    let report = tried(&[
        ("bin/csv.js", "var fs = require('fs');"),
        ("meter/driver.spec.js", "decodeUplink({})"),
        ("meter/meter-encoder.js", "function decodeUplink() {}"),
        ("node_modules/x/index.js", DOUBLES),
        (".git/index.js", DOUBLES),
        ("vendor/meter.yaml", "name: Meter"),
    ]);
    assert!(report.codecs.is_empty(), "{report:?}");
    assert_eq!(try_all(Path::new("tests/nowhere"), |_| ()).codecs[0].state, State::Unread);
}

#[test]
fn a_report_ends_with_counts() {
    let example =
        |expected: u8| format!(r#"[{{"description": "x", "fPort": 1, "bytes": [1], "expected": {expected}}}]"#);
    let code = "function decodeUplink(input) { return {data: 1}; }";
    let report = tried(&[
        ("same/codec.js", code),
        ("same/examples.json", &example(1)),
        ("differs/codec.js", code),
        ("differs/examples.json", &example(2)),
        ("needs/index.js", "require('x'); function decodeUplink() {}"),
        ("alone/index.js", code),
        ("unread/examples.json", &example(1)),
    ]);
    assert_eq!(
        report.to_string(),
        "5 codec(s), 3 example(s)\n  1 give what all their examples say\n  1 differ, in 1 example(s)\n  1 need what is not there\n  \
         1 have no example\n  1 cannot be read"
    );
    let sound: Vec<&str> =
        report.codecs.iter().filter(|codec| codec.is_sound()).map(|codec| codec.codec.as_str()).collect();
    assert_eq!(sound, ["alone/index.js", "same/codec.js"]);
}

#[test]
fn yaml_is_read_by_its_core_schema() {
    for (text, value) in [
        ("a: 1\nb: [0x1F, -2, 1.50, 1e3, 0o17, .5]", json!({"a": 1, "b": [31, -2, 1.5, 1000.0, 15, 0.5]})),
        ("[yes, no, on, 12:30, 1_000, 2024-02-29, .nan, inf, '7', \"\\u00b2\", 1.2.3]", {
            json!(["yes", "no", "on", "12:30", "1_000", "2024-02-29", null, "inf", "7", "²", "1.2.3"])
        }),
        ("a: true\nb: ~\nc:\nd: !!str 7", json!({"a": true, "b": null, "c": null, "d": "7"})),
        ("1: one\n? [a]\n: list", json!({"1": "one", "[\"a\"]": "list"})),
        (
            "a: &x {n: 1, m: 2}\nb: {<<: *x, n: 3}\nc: *x",
            json!({"a": {"n": 1, "m": 2}, "b": {"n": 3, "m": 2}, "c": {"n": 1, "m": 2}}),
        ),
        ("a: |\n  two\n  lines\n---\nb: 2", json!({"a": "two\nlines\n"})),
        ("", json!(null)),
    ] {
        assert_eq!(yaml::read(text), Ok(value), "{text}");
    }
    let doubled: String = (1..40).map(|n| format!("- &a{n} [*a{}, *a{}]\n", n - 1, n - 1)).collect();
    let deepened: String = (1..9999).map(|n| format!("- &a{n} [*a{}]\n", n - 1)).collect();
    for (text, why) in [
        ("a: [1", "line"),
        ("a: *b", "b"),
        (&format!("{}{}", "[".repeat(200), "]".repeat(200)), "nested"),
        (&format!("- &a0 [1]\n{doubled}"), "values"),
        (&format!("- &a0 [1]\n{deepened}"), "nested"),
    ] {
        assert!(yaml::read(text).unwrap_err().contains(why), "{text}: {:?}", yaml::read(text));
    }
}
