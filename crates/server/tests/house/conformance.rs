//! Checks docs/conformance.md, and writes it anew: which test holds which statement comes from the comments
//! `// Holds: KEY, KEY` above the tests, and the rows of the operations come from their table.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use isobar_http::{openapi, table};

use crate::{crates, read, root};

const PAGE: &str = "docs/conformance.md";
/// Writes the document instead of comparing it, if set.
const WRITE: &str = "ISOBAR_TEST_WRITE";
/// Begins a comment that names the rows which a test holds. A line that ends with a comma is continued by the next.
const MARK: &str = "// Holds: ";
/// Heading of the rows that are made from the table of operations.
const OPERATIONS: &str = "## Operations";

struct Row {
    key: String,
    tests: Vec<String>,
}

/// Splits a row, `| key | statement | tests |`; `None` for other lines and the heads of tables.
fn cells(line: &str) -> Option<[&str; 3]> {
    let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.splitn(3, " | ").map(str::trim);
    let cells = [cells.next()?, cells.next().unwrap_or_default(), cells.next().unwrap_or_default()];
    (cells[0] != "row").then_some(cells)
}

/// Returns the rows of a page.
fn rows(page: &str) -> Vec<Row> {
    page.lines().filter_map(cells).map(|[key, _, tests]| Row { key: key.to_owned(), tests: quoted(tests) }).collect()
}

fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns all source files beneath a folder, tests included.
fn files_beneath(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let of_entry = |path: PathBuf| match path.is_dir() {
        true => files_beneath(&path),
        false => Some(path).filter(|path| path.extension().is_some_and(|kind| kind == "rs")).into_iter().collect(),
    };
    entries.flat_map(of_entry).collect()
}

/// Returns the functions of a source file that hold rows, each with the keys of its rows.
fn holding(text: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let Some(first) = line.strip_prefix(MARK) else { continue };
        let mut keys = first.to_owned();
        while let Some(more) = keys.ends_with(',').then(|| lines.next()).flatten() {
            keys.push(' ');
            keys.push_str(more.trim_start_matches(['/', ' ']));
        }
        while lines.next_if(|line| line.starts_with("#[") || line.starts_with("//")).is_some() {}
        let declared = lines.peek().and_then(|line| line.split_once("fn ")?.1.split_once(['(', '<']));
        let name = declared.map_or_else(|| format!("no function after {first}"), |(name, _)| name.to_owned());
        found.push((name, keys.split(", ").map(str::to_owned).collect()));
    }
    found
}

/// Returns the tests that hold each row, `file::test`, by the key of the row.
fn claims() -> BTreeMap<String, BTreeSet<String>> {
    let mut claims: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for path in crates().iter().flat_map(|name| files_beneath(&root().join("crates").join(name))) {
        let place = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        for (test, keys) in holding(&std::fs::read_to_string(&path).unwrap()) {
            for key in keys {
                claims.entry(key).or_default().insert(format!("{place}::{test}"));
            }
        }
    }
    claims
}

/// Returns the key and the statement of each operation's row.
fn operations() -> Vec<(String, String)> {
    let document = openapi();
    let of_row = |method: &str, path: &str| {
        let summary = &document["paths"][path][method.to_lowercase()]["summary"];
        (format!("{method} {path}"), summary.as_str().unwrap_or_default().to_owned())
    };
    table().iter().map(|row| of_row(row.method.name(), row.path)).collect()
}

/// Writes a page anew: rows of operations from their table, and in all rows the tests that hold them.
fn written(page: &str) -> String {
    let claims = claims();
    let row = |key: &str, statement: &str| {
        let tests = claims.get(key).into_iter().flatten().map(|test| format!("`{test}`")).collect::<Vec<_>>();
        format!("| {key} | {statement} | {} |\n", tests.join(", "))
    };
    let mut out = String::new();
    let mut is_operations = false;
    for line in page.lines() {
        if line.starts_with("## ") {
            is_operations = line == OPERATIONS;
        }
        match cells(line) {
            Some(_) if is_operations => {}
            Some([key, statement, _]) => out.push_str(&row(key, statement)),
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
        if is_operations && line.starts_with("|---") {
            operations().iter().for_each(|(key, statement)| out.push_str(&row(key, statement)));
        }
    }
    out
}

#[test]
fn conformance_document_is_written_from_the_tests() {
    let page = read(PAGE);
    let wanted = written(&page);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(root().join(PAGE), &wanted).unwrap();
        return;
    }
    let differing: Vec<&str> = wanted.lines().filter(|line| !page.lines().any(|other| other == *line)).collect();
    assert!(page == wanted, "{PAGE} is old; write it with `{WRITE}=1 make one T=conformance_document`: {differing:#?}");
}

#[test]
fn every_row_is_held_and_none_is_forgotten() {
    let rows = rows(&written(&read(PAGE)));
    let without: Vec<&str> = rows.iter().filter(|row| row.tests.is_empty()).map(|row| row.key.as_str()).collect();
    assert!(without.is_empty(), "no test holds {without:?}: above a test, say `{MARK}KEY`");
    let keys: BTreeSet<&str> = rows.iter().map(|row| row.key.as_str()).collect();
    assert_eq!(keys.len(), rows.len(), "a row stands there twice");
    let claims = claims();
    assert_eq!(keys, claims.keys().map(String::as_str).collect(), "tests hold rows that are not there");
}

#[test]
fn every_route_is_a_row() {
    let keys: BTreeSet<String> = rows(&read(PAGE)).into_iter().map(|row| row.key).collect();
    let routes: BTreeSet<String> = table().iter().map(|row| format!("{} {}", row.method.name(), row.path)).collect();
    let named: BTreeSet<String> = keys.into_iter().filter(|key| key.contains(" /")).collect();
    assert_eq!(named, routes);
}

#[test]
fn every_test_that_is_named_exists() {
    let mut missing = BTreeSet::new();
    for test in rows(&read(PAGE)).into_iter().flat_map(|row| row.tests) {
        let (file, name) = test.split_once("::").unwrap_or((&test, ""));
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        if !is_test(&text, name, file.contains("/suite/")) {
            missing.insert(test);
        }
    }
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}

/// Returns true if a function is a test, and no helper of one: by its attribute, or as a scene that both registries
/// play, or as a promise of the suite, whose functions are nothing else.
fn is_test(file: &str, name: &str, is_suite: bool) -> bool {
    let Some((before, _)) = file.split_once(&format!("fn {name}(")) else { return false };
    let attributes = before.split('\n').rev().skip(1).map(str::trim).take_while(|line| line.starts_with("#["));
    let played = file.split("on_both_registries!(").nth(1).and_then(|rest| rest.split(");").next()).unwrap_or_default();
    attributes.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
        || played.split(',').any(|scene| scene.trim() == name)
        || is_suite && before.ends_with("pub async ")
}

#[test]
fn held_rows_are_read_from_comments() {
    let text = "// Holds: a.b, GET /c/{id},\n// d.e\n#[test]\nfn one() {}\n\n    // Holds: f.g\n    pub async fn two<T>() {}\n";
    let held = holding(text);
    let names: Vec<&str> = held.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(held[0].1, ["a.b", "GET /c/{id}", "d.e"]);
    assert_eq!(held[1].1, ["f.g"]);
    assert_eq!(holding("// Holds: a.b\nlet x = 1;")[0].0, "no function after a.b");
}
