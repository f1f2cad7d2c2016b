//! Tests of JSON against JSONTestSuite (`tests/official/json`): cases that every parser must accept or refuse, and our
//! choices where RFC 8259 leaves them open.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

use std::collections::{BTreeMap, BTreeSet};

use isobar_model::json::{Json, JsonFault, RawJson, equal};

/// Cases of `y_` that are refused deliberately (docs/api-guide.md, Conventions), each with a part of the message.
const REFUSED_ON_PURPOSE: [(&str, &str); 2] = [
    ("y_object_duplicated_key.json", "duplicate key 'a'"),
    ("y_object_duplicated_key_and_value.json", "duplicate key 'a'"),
];

/// Cases of `i_` that are accepted: numbers too small for a double, which are read as 0, and integers of any length.
const ACCEPTED_FREELY: [&str; 5] = [
    "i_number_double_huge_neg_exp.json",
    "i_number_real_underflow.json",
    "i_number_too_big_neg_int.json",
    "i_number_too_big_pos_int.json",
    "i_number_very_big_negative_int.json",
];

/// Counts of the other cases of `i_`, by a part of the message with which they are refused.
const REFUSED_FREELY: [(&str, usize); 5] = [
    ("is beyond the range of a double", 5),
    ("is half of a surrogate pair", 10),
    ("invalid UTF-8", 13),
    ("nested deeper than 64", 1),
    ("expected a value", 1),
];

/// Returns the files by their names.
fn files() -> BTreeMap<String, Vec<u8>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/official/json/test_parsing");
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries.map(|entry| (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())).collect()
}

/// Parses each file whose name has a prefix.
fn read(prefix: &str) -> BTreeMap<String, Result<RawJson, JsonFault>> {
    let files = files().into_iter().filter(|(name, _)| name.starts_with(prefix));
    files.map(|(name, bytes)| (name, RawJson::check(bytes.into()))).collect()
}

// Holds: official.json
#[test]
fn test_set_is_complete() {
    let count = |prefix: &str| files().keys().filter(|name| name.starts_with(prefix)).count();
    assert_eq!((count("y_"), count("n_"), count("i_"), count("")), (95, 188, 35, 318));
}

// Holds: official.json
#[test]
fn mandatory_case_is_accepted_unless_deliberately_refused() {
    let on_purpose = BTreeMap::from(REFUSED_ON_PURPOSE);
    let cases = read("y_");
    assert!(on_purpose.keys().all(|name| cases.contains_key(*name)));
    for (name, case) in cases {
        match (case, on_purpose.get(name.as_str())) {
            (Ok(_), None) => {}
            (Err(fault), Some(message)) if fault.what.contains(message) => {}
            (other, expected) => panic!("{name}: {other:?}, not {expected:?}"),
        }
    }
}

#[test]
fn accepted_case_is_read_like_serde_json() {
    for (name, bytes) in files() {
        let bytes = bytes.into();
        let Ok((raw, tree)) = RawJson::read(&bytes) else { continue };
        let theirs = serde_json::from_slice::<serde_json::Value>(&bytes).unwrap();
        let text = theirs.to_string();
        let theirs = isobar_model::json::parse(&text).unwrap();
        // Numbers keep their digits; the other parser has doubles beyond 64 bits.
        if !name.contains("number") {
            assert!(equal(&tree, &theirs), "{name}: {raw:?} is not {text}");
        }
        assert_eq!(RawJson::from(&tree).tree(), tree, "{name}");
    }
}

// Holds: official.json
#[test]
fn invalid_case_is_refused() {
    for (name, case) in read("n_") {
        assert!(case.is_err(), "{name}: {case:?}");
    }
}

// Holds: official.json
#[test]
fn optional_case_is_accepted_or_refused_for_a_known_reason() {
    let (mut accepted, mut refused) = (BTreeSet::new(), BTreeMap::new());
    for (name, case) in read("i_") {
        match case {
            Ok(_) => assert!(accepted.insert(name)),
            Err(fault) => {
                let reason = REFUSED_FREELY.iter().find(|(reason, _)| fault.what.contains(reason));
                let (reason, _) = reason.unwrap_or_else(|| panic!("{name}: {fault}"));
                *refused.entry(*reason).or_insert(0) += 1;
            }
        }
    }
    assert_eq!(accepted, ACCEPTED_FREELY.map(str::to_owned).into());
    assert_eq!(refused, REFUSED_FREELY.into());
}

#[test]
fn integers_of_any_length_keep_their_digits() {
    let case = RawJson::check(files()["i_number_too_big_pos_int.json"].clone().into()).unwrap();
    let Json::Array(items) = case.tree() else { panic!("{case:?}") };
    assert_eq!(items[0].scalar_text().unwrap(), "100000000000000000000");
}
