//! What comes into the build: deny.toml, held wherever the tests run; cargo-deny reads the same file.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;
use spdx::{Expression, ParseMode};

use crate::{crates, read, root, source_files};

fn rules() -> toml::Table {
    read("deny.toml").parse().unwrap()
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

/// Whether a licence expression can be met with licences that are allowed.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let read = Expression::parse_mode(expression, ParseMode::LAX);
    read.is_ok_and(|expression| expression.evaluate(|licence| allowed.contains(licence.to_string().as_str())))
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
fn licence_expressions_are_read() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0", "ISC", "Apache-2.0 WITH LLVM-exception"]);
    for fine in ["MIT", "MIT/GPL-3.0", "GPL-2.0 OR MIT", "(MIT OR GPL-2.0) AND ISC", "Apache-2.0 WITH LLVM-exception"] {
        assert!(is_allowed(fine, &allowed), "{fine}");
    }
    for refused in ["GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-2.0 OR GPL-3.0)", "GPL-3.0 WITH MIT", "", "MIT ISC"] {
        assert!(!is_allowed(refused, &allowed), "{refused}");
    }
}

/// The rooms that have a hash without a key at hand, which is quicker, and what they may hash with it: numbers and identifiers
/// that the platform itself makes.
const QUICKLY_HASHED: &[(&str, &[&str])] = &[
    ("hub", &["DeviceKey", "OrganizationId", "Tenant", "UserId", "u64"]),
    ("store", &["OrganizationId", "Tenant", "u64"]),
];

/// What clients choose (names in JSON, labels, elements, addresses) is hashed with a random key: other rooms have no other
/// hash at hand, and these name what they hash without one.
#[test]
fn nothing_that_clients_choose_is_hashed_without_a_key() {
    for room in crates() {
        let manifest = read(&format!("crates/{room}/Cargo.toml"));
        let manifest = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        let allowed = QUICKLY_HASHED.iter().find(|(name, _)| *name == room).map(|(_, keys)| *keys);
        for hash in ["rustc-hash", "fxhash", "fnv", "ahash", "foldhash", "hashbrown"] {
            assert!(!manifest.contains(hash) || hash == "rustc-hash" && allowed.is_some(), "{room} has {hash}");
        }
        for (path, text) in source_files(&root().join("crates").join(&room).join("src")) {
            for key in quickly_hashed(&text) {
                assert!(allowed.unwrap_or_default().contains(&&*key), "{} hashes {key} without a key", path.display());
            }
        }
    }
}

/// The types that a text hashes without a key, by the places where it says so.
fn quickly_hashed(text: &str) -> Vec<String> {
    let first = |parameters: &str| {
        let mut depth = 0;
        let end = parameters.find(|c: char| {
            let ends = depth == 0 && (c == ',' || c == '>');
            depth += match c {
                '<' | '(' => 1,
                '>' | ')' => -1,
                _ => 0,
            };
            ends
        });
        parameters[..end.unwrap_or(parameters.len())].trim().to_owned()
    };
    let maps = ["FxHashMap<", "FxHashSet<"].into_iter().flat_map(|name| text.split(name).skip(1)).map(first);
    // Whatever else names its hasher: `Windows<K, FxBuildHasher>`.
    let hashers = ["FxBuildHasher", "FxHasher"].into_iter().flat_map(|name| {
        let lines = text.lines().filter(move |line| line.contains(name) && !line.trim_start().starts_with("use "));
        lines.map(move |line| match line.split_once('<') {
            Some((_, parameters)) if line.contains(&format!(", {name}>")) => first(parameters),
            _ => line.trim().to_owned(),
        })
    });
    maps.chain(hashers).collect()
}

#[test]
fn what_is_hashed_without_a_key_is_read_out_of_the_text() {
    for (text, found) in [
        ("a: FxHashMap<u64, String>,", &["u64"][..]),
        ("fn f(a: &FxHashSet<Arc<str>>) {}", &["Arc<str>"]),
        ("FxHashMap<(IpAddr, u16), Vec<u8>>", &["(IpAddr, u16)"]),
        ("a: Windows<IpAddr, FxBuildHasher>,", &["IpAddr"]),
        ("let a = FxBuildHasher.hash_one(name);", &["let a = FxBuildHasher.hash_one(name);"]),
        ("use rustc_hash::FxBuildHasher;\nlet a = FxHashMap::default();", &[]),
    ] {
        assert_eq!(quickly_hashed(text), found, "{text}");
    }
}
