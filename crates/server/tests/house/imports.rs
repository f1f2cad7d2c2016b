//! Who imports whom within a crate, and which lints every room keeps.

use std::collections::BTreeSet;

use crate::{read, root, source_files};

/// What each module of `http` may import of its own crate, beside itself. A module that is not named here may import all.
const HTTP_IMPORTS: &[(&str, &[&str])] = &[
    ("problem", &["response"]),
    ("quota", &[]),
    ("response", &["problem", "quota"]),
    ("meters", &[]),
    ("state", &["console", "meters", "quota", "request", "response"]),
    ("request", &["problem", "quota", "response", "state"]),
    ("resources", &["problem", "quota", "request", "response"]),
    ("openapi", &["problem", "request", "resources", "response", "routes"]),
    ("routes", &["openapi", "problem", "request", "resources", "response"]),
    ("console", &["response"]),
    ("admission", &["console", "meters", "problem", "quota", "request", "response", "routes", "state"]),
    ("app", &["admission", "console", "meters", "problem", "request", "response", "routes", "state"]),
    ("connection", &["app", "meters", "problem", "request", "response", "routes"]),
    ("fuzz", &["connection", "request"]),
];

/// The modules of its own crate that a text of Rust imports. Comments import nothing.
fn imported(text: &str) -> BTreeSet<String> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let paths = code.flat_map(|line| line.split("crate::").skip(1));
    let name = |path: &str| path.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    paths.map(name).collect()
}

#[test]
fn modules_of_http_import_in_one_direction() {
    let folder = root().join("crates/http/src");
    let mut modules = BTreeSet::from(["lib".to_owned()]);
    for (module, allowed) in HTTP_IMPORTS {
        modules.insert((*module).to_owned());
        let file = folder.join(format!("{module}.rs"));
        let path = if file.is_file() { file } else { folder.join(module) };
        for (path, text) in source_files(&path) {
            for import in imported(&text) {
                let is_allowed = import == *module || allowed.contains(&import.as_str());
                assert!(is_allowed, "{} imports crate::{import}", path.display());
            }
        }
    }
    let there = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let there: BTreeSet<String> = there.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    assert_eq!(modules, there, "every module of http stands in the table");
}

/// The rooms of the hub, from the lowest to the highest; those of one line know nothing of each other.
const HUB_ROOMS: &[&[&str]] = &[
    &["config", "error", "supervisor"],
    &["support"],
    &["env"],
    &["code", "outbox"],
    &["cache"],
    &["delivery"],
    &["metering"],
    &["identity"],
    &["ingest"],
    &["jobs"],
    &["resources", "settings", "webhook"],
];

#[test]
fn rooms_of_the_hub_know_only_those_beneath_them() {
    let root = root().join("crates/hub/src");
    let height = |room: &str| HUB_ROOMS.iter().position(|rooms| rooms.contains(&room));
    let mut wrong = Vec::new();
    for (file, text) in source_files(&root) {
        let place = file.strip_prefix(&root).unwrap();
        let room = place.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if ["lib", "stage", "wiring"].contains(&room) {
            continue;
        }
        let own = height(room).unwrap_or_else(|| panic!("{room} has no place among the rooms"));
        let is_verb = own + 1 == HUB_ROOMS.len();
        for part in text.split("crate::").skip(1) {
            let named = part.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
            let is_known = match height(named) {
                Some(other) => other < own || named == room,
                // The façade itself, and what it shows, are for its verbs alone.
                None => is_verb,
            };
            if !is_known {
                wrong.push(format!("{} knows {}", place.display(), &part[..part.len().min(40)]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rooms_with_rules_of_their_own_keep_those_of_the_house() {
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
fn what_the_build_exports_is_no_setting_of_the_program() {
    // `make run` starts the program in the build's environment, and it refuses settings that it does not know.
    let script = read("scripts/env.sh");
    assert!(script.contains("export ") && !script.contains("ISOBAR_"), "{script}");
}
