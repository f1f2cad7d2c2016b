//! Tests of JSONPath against the compliance test suite of RFC 9535 (`tests/official/jsonpath`). All of its cases apply,
//! invalid selectors included. Only the locations of results (`result_paths`) are not compared, as paths here return
//! values.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

use std::collections::BTreeSet;

use isobar_model::json::{Json, equal, parse};
use isobar_model::jsonpath::{JsonPath, Steps};

/// A budget larger than any of these paths needs.
const PLENTY: u64 = 1_000_000;

/// Names of cases that fail.
const DEVIATIONS: [&str; 0] = [];

/// Checks a case; returns the difference if it fails.
fn held(case: &Json<'_>) -> Result<(), String> {
    let selector = case.get("selector").and_then(Json::as_text).unwrap();
    let parsed = JsonPath::parse(selector);
    if case.get("invalid_selector") == Some(&Json::Bool(true)) {
        return parsed.map_or(Ok(()), |_| Err(format!("{selector} is no path, but was read as one")));
    }
    let path = parsed.map_err(|fault| format!("{selector} was refused: {fault}"))?;
    let document = case.get("document").unwrap();
    let found = path.find(document, &mut Steps::new(PLENTY)).map_err(|spent| format!("{selector} {spent}"))?;
    let wanted = match (case.get("result"), case.get("results")) {
        (Some(only), None) => vec![only],
        // The order of members is open in the standard: any of these results is allowed.
        (None, Some(Json::Array(any))) => any.iter().collect(),
        other => panic!("{selector}: {other:?}"),
    };
    let is = |wanted: &Json<'_>| match wanted {
        Json::Array(items) => {
            found.len() == items.len() && found.iter().zip(items).all(|(node, item)| equal(node, item))
        }
        _ => false,
    };
    if wanted.into_iter().any(is) { Ok(()) } else { Err(format!("{selector} found {found:?}")) }
}

// Holds: official.jsonpath
#[test]
fn compliance_suite_passes() {
    let text =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/official/jsonpath/cts.json")).unwrap();
    let suite = parse(&text).unwrap();
    let Some(Json::Array(cases)) = suite.get("tests") else { panic!("no tests") };
    assert_eq!(cases.len(), 687);
    let mut failed = Vec::new();
    let mut named = BTreeSet::new();
    for case in cases {
        let name = case.get("name").and_then(Json::as_text).unwrap();
        assert!(named.insert(name), "{name} stands there twice");
        match (held(case), DEVIATIONS.contains(&name)) {
            (Ok(()), true) => failed.push(format!("{name} holds now: take it off the list")),
            (Err(why), false) => failed.push(format!("{name}: {why}")),
            _ => {}
        }
    }
    assert!(DEVIATIONS.iter().all(|name| named.contains(name)), "a deviation is no case");
    assert!(failed.is_empty(), "{failed:#?}");
}
