//! Checks imports within a crate, and the lints of every crate.

use std::collections::BTreeSet;
use std::path::Path;

use crate::paths::Sources;
use crate::{read, root};

/// Modules of `http` with the modules of the crate that they may import. A module without a row may import all.
const HTTP_IMPORTS: &[(&str, &[&str])] = &[
    ("problem", &["response"]),
    ("response", &["problem"]),
    ("meters", &[]),
    ("state", &["console", "meters", "request", "response"]),
    ("request", &["problem", "response", "state"]),
    ("resources", &["problem", "request", "response"]),
    ("openapi", &["problem", "request", "resources", "response", "routes"]),
    ("routes", &["openapi", "problem", "request", "resources", "response"]),
    ("console", &["response"]),
    ("admission", &["console", "meters", "problem", "request", "response", "routes", "state"]),
    ("app", &["admission", "console", "meters", "problem", "request", "response", "routes", "state"]),
    ("connection", &["app", "meters", "problem", "request", "response", "routes"]),
    ("fuzz", &["connection", "request"]),
];

/// Returns imports that `may` forbids between the top-level modules of a crate; the root is `lib`.
fn forbidden(sources: &Sources, may: impl Fn(&str, &str) -> bool) -> BTreeSet<String> {
    let room = |module: &[String]| module.first().map_or("lib".to_owned(), String::clone);
    let known = sources.knowledge().into_iter().filter_map(|(module, other)| {
        let (from, to) = (room(&module), room(&other));
        (from != to && !may(&from, &to)).then(|| format!("{} knows {to}", module.join("::")))
    });
    known.chain(sources.detours.iter().cloned()).collect()
}

/// Returns the top-level modules of a crate.
fn modules_of(folder: &Path) -> BTreeSet<String> {
    let there = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    there.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn modules_of_http_import_in_one_direction() {
    let folder = root().join("crates/http/src");
    let may = |from: &str, to: &str| {
        let row = HTTP_IMPORTS.iter().find(|(module, _)| *module == from);
        row.is_none_or(|(_, allowed)| allowed.contains(&to))
    };
    let mut wrong = forbidden(&Sources::of_folder(&folder), may);
    // The replay of seeds is shared by all crates with properties.
    wrong.remove("fuzz has #[path]");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let modules: BTreeSet<String> = HTTP_IMPORTS.iter().map(|(module, _)| (*module).to_owned()).collect();
    let there: BTreeSet<String> = modules_of(&folder).into_iter().filter(|module| module != "lib").collect();
    assert_eq!(modules, there, "every module of http stands in the table");
}

/// The modules of the hub, from the lowest to the highest; those of one row must not import each other.
const HUB_ROOMS: &[&[&str]] = &[
    &["config", "error", "supervisor"],
    &["support"],
    &["env"],
    &["designs", "outbox"],
    &["cache"],
    &["delivery"],
    &["metering"],
    &["identity"],
    &["ingest"],
    &["jobs"],
    &["resources", "settings", "webhook"],
];

/// Modules that wire or export the others.
const ABOVE_ROOMS: [&str; 2] = ["lib", "wiring"];

fn height(room: &str) -> Option<usize> {
    HUB_ROOMS.iter().position(|rooms| rooms.contains(&room))
}

#[test]
fn modules_of_the_hub_import_only_lower_ones() {
    let folder = root().join("crates/hub/src");
    let may = |from: &str, to: &str| match (height(from), height(to)) {
        (Some(own), Some(other)) => other < own,
        // The façade and its exports are for the modules with verbs only.
        (Some(own), None) => own + 1 == HUB_ROOMS.len(),
        (None, _) => ABOVE_ROOMS.contains(&from),
    };
    let mut wrong = forbidden(&Sources::of_folder(&folder), may);
    // The stage, on which tests play, lies outside of the program's sources.
    wrong.remove(" has #[path]");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let homeless: Vec<_> = modules_of(&folder)
        .into_iter()
        .filter(|room| height(room).is_none() && !ABOVE_ROOMS.contains(&room.as_str()))
        .collect();
    assert!(homeless.is_empty(), "these have no place among the rooms: {homeless:?}");
}

/// The floors of the design, from the lowest to the highest.
const DESIGN_FLOORS: [&str; 6] = ["value", "expression", "code", "elements", "plan", "run"];

/// Modules of the design that export or test the floors.
const ABOVE_FLOORS: [&str; 3] = ["fuzz", "lib", "tests"];

#[test]
fn floors_of_the_design_import_only_lower_ones() {
    let folder = root().join("crates/design/src");
    let height = |floor: &str| DESIGN_FLOORS.iter().position(|it| *it == floor);
    let may = |from: &str, to: &str| match (height(from), height(to)) {
        (Some(own), Some(other)) => other < own,
        (Some(_), None) => false,
        (None, _) => ABOVE_FLOORS.contains(&from),
    };
    let mut wrong = forbidden(&Sources::of_folder(&folder), may);
    // The replay of seeds is shared by all crates with properties.
    wrong.remove("fuzz has #[path]");
    assert!(wrong.is_empty(), "{wrong:#?}");
    let there = modules_of(&folder);
    let known: BTreeSet<String> = DESIGN_FLOORS.iter().chain(&ABOVE_FLOORS).map(|it| (*it).to_owned()).collect();
    assert_eq!(known, there, "every module of the design is a floor, or above them");
}

/// The modules of the hub's `ingest`, from the lowest to the highest; `ingest` is its struct, whose verbs follow.
const INGEST_FLOORS: [&str; 14] = [
    "incoming",
    "queue_bells",
    "run_commit",
    "effects",
    "committer",
    "ingest",
    "revisions",
    "far_queues",
    "event_input",
    "accepted",
    "design_runs",
    "run_design",
    "device_event",
    "event_batch",
];

#[test]
fn floors_of_ingest_import_only_lower_ones() {
    let folder = root().join("crates/hub/src");
    let floor = |module: &[String]| {
        let mut path = module.iter().map(String::as_str);
        let name = (path.next() == Some("ingest")).then(|| path.next().unwrap_or("ingest"));
        name.filter(|name| *name != "tests" && path.next() != Some("tests")).map(str::to_owned)
    };
    let height = |floor: &str| INGEST_FLOORS.iter().position(|it| *it == floor);
    let known = Sources::of_folder(&folder).knowledge().into_iter();
    let within: Vec<(String, String)> =
        known.filter_map(|(module, other)| Some((floor(&module)?, floor(&other)?))).collect();
    assert!(within.len() >= INGEST_FLOORS.len(), "imports are found: {within:?}");
    let wrong: BTreeSet<&(String, String)> =
        within.iter().filter(|(from, to)| from != to && from != "ingest" && height(to) >= height(from)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let there: BTreeSet<String> = modules_of(&folder.join("ingest")).into_iter().filter(|it| it != "tests").collect();
    let known: BTreeSet<String> =
        INGEST_FLOORS.iter().map(|it| if *it == "ingest" { "mod" } else { it }).map(str::to_owned).collect();
    assert_eq!(known, there, "every module of ingest is a floor");
}

/// Returns the forbidden imports of a sample crate in which `high` may import `middle` and `low`, `middle` may import
/// all, and `low` none, with one more source of a module of `low`.
fn found_in(module: &[&str], source: &str) -> BTreeSet<String> {
    let mut sources = Sources::default();
    sources.add(&[], "mod high; mod low; mod middle; pub use high::Shown; macro_rules! of_the_root { () => {} }");
    sources.add(&["high"], "mod inner; pub struct Shown; macro_rules! of_high { () => {} }");
    sources.add(&["high", "inner"], "pub fn f() {}");
    sources.add(
        &["middle"],
        "pub use crate::high::{Shown as Other, inner as other}; pub mod all { pub use crate::high::*; }",
    );
    sources.add(&["low"], "mod inner;");
    sources.add(module, source);
    forbidden(&sources, |from, to| match from {
        "low" => to == "middle",
        "high" => to != "lib",
        _ => true,
    })
}

#[test]
fn forbidden_import_is_found_in_any_syntax() {
    for source in [
        "use crate::high::Shown;",
        "use crate::{middle, high::Shown};",
        "use crate::{middle, high::{inner::{f as g}}};",
        "fn f() -> crate::high::Shown {}",
        "fn f() { <crate :: high :: Shown as Default>::default(); }",
        "use crate/* a comment */::high::Shown;",
        "use super::super::high::Shown;",
        "use super::{super::high::inner};",
        "mod a { mod b { use super::super::super::super::high::Shown; } }",
        "use crate as all; fn f() { all::high::inner::f() }",
        "use super::super as above; fn f() { above::high::inner::f() }",
        "use crate::{self as all};",
        "use crate::*; fn f() { high::inner::f() }",
        "use super::super::*;",
        "use crate::Shown;",
        "use crate::middle::Other;",
        "use crate::middle::other::f;",
        "use crate::middle::other; fn f() { other::f() }",
        "use crate::middle as m; fn f() { m::Other }",
        "use crate::middle::*; fn f() { Other }",
        "use crate::middle::all::*;",
        "macro_rules! m { () => { $crate::high::inner::f() } }",
        "fn f() { of_high!() }",
        "fn f() { of_the_root!() }",
        "fn f() { crate::of_high!() }",
        "pub(in crate::high) fn f() {}",
        "#[path = \"../high/inner.rs\"] mod hidden;",
        "#[cfg_attr(unix, path = \"../high/inner.rs\")] mod hidden;",
        "include!(\"../high/inner.rs\");",
        "extern crate self as me;",
        "fn f(a: &'static str) -> char { '\"' } use crate::high::Shown; fn g() { '\"'; }",
        "const A: &str = r#\"a \" b\"#; use crate::high::Shown;",
    ] {
        assert!(!found_in(&["low", "inner"], source).is_empty(), "nothing is found in {source}");
    }
}

#[test]
fn allowed_import_is_not_reported() {
    for source in [
        "use crate::low::inner; use super::inner as other; use self::a::B; mod a { use super::super::inner; }",
        "use crate::middle; use crate::middle::Own; fn f() { middle::own() }",
        "use std::sync::Arc; use high_water::Shown; fn f() { Arc::new(highest::inner()) }",
        "// use crate::high::Shown;\n/* crate::high /* nested */ crate::high */ /// [`crate::high`]",
        "const A: &str = \"crate::high::Shown \\\" crate::high\"; const B: &[u8] = br##\"crate::high \"# \"##;",
        "mod high { pub fn f() {} } fn f() { high::f(); self::high::f(); if a != b {} }",
        "fn high(path: u8) { let path = high; other!(path = 1); }",
    ] {
        assert_eq!(found_in(&["low", "inner"], source), BTreeSet::new(), "{source}");
    }
    assert_eq!(found_in(&["high", "inner"], "use crate::low::inner; use super::super::middle;"), BTreeSet::new());
}

#[test]
fn crates_with_own_lints_keep_the_common_ones() {
    let rules = |file: &str| -> toml::Table { read(file).parse().unwrap() };
    let house = rules("clippy.toml");
    for room in ["crates/hub", "crates/http"] {
        let own = rules(&format!("{room}/clippy.toml"));
        for (name, rule) in &house {
            let kept = match (rule.as_array(), own[name].as_array()) {
                (Some(all), Some(kept)) => all.iter().all(|one| kept.contains(one)),
                _ => own[name] == *rule,
            };
            assert!(kept, "{room}/clippy.toml lacks {name} = {rule}");
        }
    }
}

#[test]
fn build_environment_sets_no_setting() {
    // `make run` starts the program in the build's environment, and it refuses settings that it does not know.
    let script = read("scripts/env.sh");
    assert!(script.contains("export ") && !script.contains("ISOBAR_"), "{script}");
}
