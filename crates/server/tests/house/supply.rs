//! Rules for dependencies, in addition to those of deny.toml, which cargo-deny checks in `make test`.

use crate::{crates, read, root, source_files};

/// Crates that may use a fast unkeyed hash, and the types that they may hash with it: numbers and identifiers made by
/// the platform.
const QUICKLY_HASHED: &[(&str, &[&str])] = &[
    ("hub", &["BoardLinkId", "DeviceKey", "OrganizationId", "Site", "Tenant", "UserId", "u64"]),
    ("store", &["OrganizationId", "Tenant", "u64"]),
];

/// Checks that values chosen by clients (names in JSON, labels, elements, addresses) are hashed with a random key: only
/// the listed crates have another hash, for the listed types.
#[test]
fn values_of_clients_are_hashed_with_a_key() {
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

/// Returns the types that a text hashes without a key.
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
    // Other types that name the hasher: `Windows<K, FxBuildHasher>`.
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
fn types_hashed_without_a_key_are_found_in_source() {
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
