//! docs/conformance.md is true: its rows are all of them, every route is one, and the tests that it names are there.

use std::collections::BTreeSet;
use std::path::Path;

use isobar_http::table;

struct Row {
    key: String,
    tests: Vec<String>,
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// The checkout: tests run in the folder of their crate.
fn root() -> &'static Path {
    Path::new("../..")
}

/// The rows of the page: `| key | statement | tests |`.
fn rows() -> Vec<Row> {
    let page = page("conformance.md");
    let cells = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let cells = cells.map(|line| line.splitn(3, " | ").map(str::trim).collect::<Vec<_>>());
    cells
        .filter(|cells| cells[0] != "row")
        .map(|cells| Row { key: cells[0].to_owned(), tests: quoted(cells.get(2).copied().unwrap_or_default()) })
        .collect()
}

fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_row_is_held_and_none_is_forgotten() {
    let rows = rows();
    let without: Vec<&str> = rows.iter().filter(|row| row.tests.is_empty()).map(|row| row.key.as_str()).collect();
    assert!(without.is_empty(), "no test is named for {without:?}");
    let keys: BTreeSet<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys.len(), rows.len(), "a row stands there twice");
    let listed = page("conformance-rows.txt");
    assert_eq!(keys, listed.lines().collect());
}

#[test]
fn every_route_is_a_row() {
    let keys: BTreeSet<String> = rows().into_iter().map(|row| row.key).collect();
    let routes: BTreeSet<String> = table().iter().map(|row| format!("{} {}", row.method.name(), row.path)).collect();
    let named: BTreeSet<String> = keys.into_iter().filter(|key| key.contains(" /")).collect();
    assert_eq!(named, routes);
}

#[test]
fn every_test_that_is_named_exists() {
    let mut missing = BTreeSet::new();
    for test in rows().into_iter().flat_map(|row| row.tests) {
        let (file, name) = test.split_once("::").unwrap_or((&test, ""));
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        if !is_test(&text, name, file.contains("/suite/")) {
            missing.insert(test);
        }
    }
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}

/// Returns true if a function is a test and not a helper: by its attribute, or as a scene that both registries play, or
/// as a promise of the suite, whose functions are all tests.
fn is_test(file: &str, name: &str, is_suite: bool) -> bool {
    let Some((before, _)) = file.split_once(&format!("fn {name}(")) else { return false };
    let attributes = before.split('\n').rev().skip(1).map(str::trim).take_while(|line| line.starts_with("#["));
    let played = file.split("on_both_registries!(").nth(1).and_then(|rest| rest.split(");").next()).unwrap_or_default();
    attributes.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
        || played.split(',').any(|scene| scene.trim() == name)
        || is_suite && before.ends_with("pub async ")
}
