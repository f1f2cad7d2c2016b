//! The rules of the house: what comes into it (deny.toml, held wherever the tests run; cargo-deny reads the same file), who
//! imports whom within a crate, and that the documents name limits as they are.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail with the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
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

/// The source files beneath a path, which is a file or a folder, with their texts.
fn sources(path: &Path) -> Vec<(PathBuf, String)> {
    if path.is_file() {
        return vec![(path.to_owned(), std::fs::read_to_string(path).unwrap())];
    }
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.is_dir() || path.extension().is_some_and(|kind| kind == "rs"))
        .flat_map(|path| sources(&path))
        .collect()
}

/// What each module of `http` may import of its own crate, beside itself. A module that is not named here may import all.
const HTTP_IMPORTS: &[(&str, &[&str])] = &[
    ("problem", &["response"]),
    ("response", &["problem"]),
    ("meters", &[]),
    ("state", &["meters", "request"]),
    ("request", &["problem", "response", "state"]),
    ("resources", &["problem", "request", "response"]),
    ("openapi", &["problem", "request", "resources", "response", "routes"]),
    ("routes", &["openapi", "problem", "request", "resources", "response"]),
    ("console", &["response"]),
    ("admission", &["console", "meters", "problem", "request", "response", "routes", "state"]),
    ("app", &["admission", "console", "meters", "problem", "request", "response", "routes", "state"]),
    ("connection", &["app", "meters", "problem", "request", "response", "routes"]),
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
        for (path, text) in sources(&path) {
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

/// The constants of a text of Rust, with the source of their values.
fn constants(text: &str) -> BTreeMap<&str, &str> {
    let code = text.split("#[cfg(test)]").next().unwrap().lines().map(str::trim);
    code.filter_map(|line| line.split_once("const ")?.1.strip_suffix(';')?.split_once(": "))
        .filter_map(|(name, rest)| Some((name, rest.split_once(" = ")?.1)))
        .filter(|(_, value)| !value.starts_with('"'))
        .collect()
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

/// A limit as the documents write it: `1,024`, `64 KiB`, `5 MiB`, `60 s`. None for what is no number.
fn written(name: &str, value: &str) -> Option<String> {
    let number = |text: &str| text.replace('_', "").parse::<u64>().ok();
    if let Some(seconds) = value.strip_prefix("Duration::from_secs(") {
        return Some(format!("{} s", seconds.strip_suffix(')')?));
    }
    let (value, unit) = match value.split_once(" << ") {
        Some((value, "10")) => (number(value)?, " KiB"),
        Some((value, "20")) => (number(value)?, " MiB"),
        Some(_) => return None,
        None if name.contains("MILLIS") => (number(value)? / 1_000, " s"),
        None if name.contains("SECONDS") => (number(value)?, " s"),
        None => (number(value)?, ""),
    };
    let digits = value.to_string();
    let grouped = digits.char_indices().fold(String::new(), |mut out, (at, digit)| {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
        out
    });
    Some(grouped + unit)
}

/// Whether a text names a number, and not one that merely holds its digits.
fn names_number(text: &str, number: &str) -> bool {
    let is_part = |c: char| c.is_ascii_digit() || c == ',';
    let mut places = text.match_indices(number);
    places.any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + number.len()..].starts_with(|c: char| c.is_ascii_digit())
    })
}

/// What stands in backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The rows of the table of limits that are about HTTP alone: what they name and say, and the files that they name.
fn limits_of_http(architecture: &str) -> Vec<(Vec<&str>, &str, Vec<&str>)> {
    let table = architecture.split("## Limits").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = table.lines().filter_map(|line| {
        let cells: Vec<&str> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let [names, says, files] = cells[..] else { return None };
        Some((quoted(names), says, quoted(files)))
    });
    rows.filter(|(names, _, files)| !names.is_empty() && files.iter().any(|file| file.starts_with("http/"))).collect()
}

#[test]
fn limits_of_http_are_what_the_table_of_limits_says() {
    let architecture = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let files = sources(&root().join("crates/http/src"));
    let mut seen: BTreeMap<&str, (&Path, &str)> = BTreeMap::new();
    for (path, text) in &files {
        for (name, value) in constants(text) {
            let before = seen.insert(name, (path, value));
            assert!(before.is_none(), "{} and {before:?} have a constant {name}", path.display());
        }
    }
    let mut told = BTreeSet::new();
    for (names, says, places) in limits_of_http(&architecture) {
        for name in names {
            let Some((path, value)) = seen.get(name) else { continue };
            told.insert(name);
            let is_there = places.iter().any(|place| path.ends_with(place.replacen("http/", "http/src/", 1)));
            assert!(is_there, "{name} is in {}, the table says {places:?}", path.display());
            if let Some(limit) = written(name, value) {
                assert!(names_number(says, &limit), "{name} is {limit}, the table says: {says}");
            }
        }
    }
    let untold: Vec<_> = seen.keys().filter(|name| name.ends_with("_MAX") && !told.contains(*name)).collect();
    assert!(untold.is_empty(), "the table of limits lacks {untold:?}");
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

/// The source files beneath a folder that are no tests.
fn source_files(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && name != "tests" {
            source_files(&path, found);
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
    source_files(&root, &mut files);
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

/// What comments cite of the contract: the text behind `contract: `, up to where the reference ends.
fn cited(text: &str) -> Vec<String> {
    let joined = text.lines().map(str::trim_start).fold(String::new(), |mut all, line| {
        let is_comment = line.starts_with("//");
        all.push_str(if is_comment { " " } else { "\n" });
        all.push_str(line.trim_start_matches(['/', '!', ' ']));
        all
    });
    let ends = |c: char| matches!(c, ',' | ')' | '.' | ';' | ':' | '\n' | '`' | '|');
    let citations = joined.split("contract: ").skip(1).filter(|rest| rest.starts_with(char::is_uppercase));
    citations.map(|rest| rest.split(ends).next().unwrap_or_default().trim().to_owned()).collect()
}

#[test]
fn what_is_cited_of_the_contract_is_a_section_of_it() {
    let contract = std::fs::read_to_string(root().join("docs/contract.md")).unwrap();
    let sections: Vec<&str> = contract.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let mut files = Vec::new();
    for room in std::fs::read_dir(root().join("crates")).unwrap() {
        source_files(&room.unwrap().path(), &mut files);
    }
    let mut wrong = Vec::new();
    let mut count = 0;
    for file in files {
        for citation in cited(&std::fs::read_to_string(&file).unwrap()) {
            count += 1;
            let begins = |section: &&str| {
                section.strip_prefix(&*citation).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
            };
            if !sections.iter().any(begins) {
                wrong.push(format!("{}: {citation}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty() && count > 50, "{count} citations, these lead nowhere: {wrong:#?}");
}
