//! The rules of the house for what comes into it: deny.toml, held wherever the tests run (cargo-deny reads the same file).

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The checkout: tests run in the folder of their crate.
fn root() -> &'static Path {
    Path::new("../..")
}

fn rules() -> toml::Table {
    std::fs::read_to_string(root().join("deny.toml")).unwrap().parse().unwrap()
}

fn output(command: &mut Command) -> String {
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The packages that are built on this kind of machine.
fn packages() -> Vec<Value> {
    let version = output(Command::new("rustc").arg("-vV"));
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let arguments = ["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", host];
    let metadata: Value = serde_json::from_str(&output(Command::new(cargo).args(arguments))).unwrap();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let built: BTreeSet<&str> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let all = metadata["packages"].as_array().unwrap().iter();
    all.filter(|package| built.contains(package["id"].as_str().unwrap())).cloned().collect()
}

/// Reads an SPDX expression: `OR` binds weaker than `AND`; the old `MIT/Apache-2.0` means `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    any(&mut rest, allowed) && rest.is_empty()
}

fn any(rest: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    let mut is_fine = all(rest, allowed);
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        is_fine |= all(rest, allowed);
    }
    is_fine
}

fn all(rest: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    let mut is_fine = one(rest, allowed);
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        is_fine &= one(rest, allowed);
    }
    is_fine
}

fn one(rest: &mut &[&str], allowed: &BTreeSet<&str>) -> bool {
    match **rest {
        ["(", ..] => {
            *rest = &rest[1..];
            let is_fine = any(rest, allowed);
            *rest = rest.get(1..).unwrap_or_default();
            is_fine
        }
        [licence, "WITH", exception, ..] => {
            *rest = &rest[3..];
            allowed.contains(format!("{licence} WITH {exception}").as_str())
        }
        [licence, ..] => {
            *rest = &rest[1..];
            allowed.contains(licence)
        }
        [] => false,
    }
}

#[test]
fn every_licence_is_an_allowed_one() {
    let rules = rules();
    let allowed: BTreeSet<&str> =
        rules["licenses"]["allow"].as_array().unwrap().iter().filter_map(|l| l.as_str()).collect();
    let packages = packages();
    let refused: Vec<String> = packages
        .iter()
        .filter(|package| !package["license"].as_str().is_some_and(|licence| is_allowed(licence, &allowed)))
        .map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"]))
        .collect();
    assert!(refused.is_empty(), "licences that deny.toml does not allow: {refused:#?}");
}

#[test]
fn nothing_banned_comes_in_and_nothing_central_comes_twice() {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages() {
        let text = |member: &str| package[member].as_str().unwrap().to_owned();
        versions.entry(text("name")).or_default().insert(text("version"));
    }
    for rule in rules()["bans"]["deny"].as_array().unwrap() {
        let name = rule["crate"].as_str().unwrap();
        let found = versions.get(name).map_or(0, BTreeSet::len);
        let most = usize::from(rule.get("deny-multiple-versions").is_some());
        assert!(found <= most, "{name} is in the build {found} times, deny.toml allows {most}");
    }
}

#[test]
fn everything_comes_from_the_registry_or_from_here() {
    for package in packages() {
        let source = package["source"].as_str().unwrap_or_default();
        assert!(source.is_empty() || source.starts_with("registry+"), "{}: {source}", package["name"]);
    }
}

#[test]
fn rooms_with_rules_of_their_own_keep_those_of_the_house() {
    let rules = |folder: &str| -> toml::Table {
        std::fs::read_to_string(root().join(folder).join("clippy.toml")).unwrap().parse().unwrap()
    };
    let house = rules("");
    for room in ["crates/hub", "crates/http"] {
        let own = rules(room);
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
fn licence_expressions_are_read() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"]);
    for fine in ["MIT", "MIT/GPL-3.0", "GPL-2.0 OR MIT", "(MIT OR GPL-2.0) AND ISC", "Apache-2.0 WITH LLVM-exception"] {
        assert!(is_allowed(fine, &allowed), "{fine}");
    }
    for refused in ["GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-2.0 OR GPL-3.0)", "GPL-3.0 WITH MIT", "", "MIT ISC"] {
        assert!(!is_allowed(refused, &allowed), "{refused}");
    }
}

#[test]
fn what_the_build_exports_is_no_setting_of_the_program() {
    // `make run` starts the program in the build's environment, and it refuses settings that it does not know.
    let script = std::fs::read_to_string(root().join("scripts/env.sh")).unwrap();
    assert!(script.contains("export ") && !script.contains("ISOBAR_"), "{script}");
}

/// What clients choose (names in JSON, labels, elements, addresses) is hashed with a random key. The rooms that know hardly
/// anything else have no other hash at hand.
#[test]
fn rooms_of_what_clients_choose_have_no_hash_without_a_key() {
    for room in ["model", "design", "outlets", "http"] {
        let manifest = std::fs::read_to_string(root().join(format!("crates/{room}/Cargo.toml"))).unwrap();
        for hash in ["rustc-hash", "fxhash", "fnv", "ahash", "foldhash", "hashbrown"] {
            assert!(!manifest.contains(hash), "{room} has {hash}");
        }
    }
}

/// The rooms of the hub, from the lowest to the highest; those of one line know nothing of each other.
const HUB_ROOMS: &[&[&str]] = &[
    &["config", "error", "supervisor"],
    &["env", "support"],
    &["code", "outbox"],
    &["cache"],
    &["delivery"],
    &["metering"],
    &["identity"],
    &["ingest"],
    &["jobs"],
    &["resources", "settings", "webhook"],
];

/// The source files beneath a folder that are no tests.
fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            sources(&path, found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            found.push(path);
        }
    }
}

#[test]
fn rooms_of_the_hub_know_only_those_beneath_them() {
    let root = root().join("crates/hub/src");
    let height = |room: &str| HUB_ROOMS.iter().position(|rooms| rooms.contains(&room));
    let mut files = Vec::new();
    sources(&root, &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let place = file.strip_prefix(&root).unwrap();
        let room = place.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        if ["lib", "stage", "wiring"].contains(&room) {
            continue;
        }
        let own = height(room).unwrap_or_else(|| panic!("{room} has no place among the rooms"));
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
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
