//! Properties of the parsers for any input. `fuzz/` searches for counterexamples; the tests below replay the known
//! inputs. Built for these two only.

#![allow(clippy::panic, reason = "a property that does not hold is a panic")]

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

use std::fmt;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use crate::json::{self, DEPTH_MAX, Json, RawJson, Step};
use crate::jsonpath::{JsonPath, PATH_BYTES_MAX, Steps};

/// Values of a document that are looked up by their paths.
const PATHS_OF_A_DOCUMENT: usize = 100;
/// Budget of a path, in steps.
const PATH_STEPS: u64 = 100_000;
/// Document for paths that come without one.
const DOCUMENT: &str =
    r#"{"a":[{"b":1,"c":"x"},{"b":2.50,"c":null},[[],{}]],"é":{"a":true,"length":[3,2,1]},"":"a.c"}"#;

/// Checks that JSON is accepted exactly if `serde_json` accepts it, except for deliberate refusals (docs/api-guide.md,
/// Conventions), with the same meaning; that it survives writing and reading; and that lookups by path agree with the
/// tree. Returns true if it was accepted.
pub fn json(input: &[u8]) -> bool {
    let bytes = Bytes::copy_from_slice(input);
    let read = RawJson::read(&bytes);
    let is_accepted = read.is_ok();
    match (read, serde_json::from_slice::<Theirs>(input)) {
        (Ok((raw, tree)), Ok(theirs)) => {
            assert!(theirs.is(&tree), "{theirs:?} is not {tree:?}");
            survives_writing(&raw, &tree);
            let mut left = PATHS_OF_A_DOCUMENT;
            is_found(raw.text(), &tree, &mut Vec::new(), &mut left);
        }
        // `serde_json` rounds doubles inexactly, which makes some near the largest infinite.
        (Ok(_), Err(error)) => assert!(error.to_string().starts_with("number out of range"), "refused: {error}"),
        (Err(fault), Ok(theirs)) => {
            assert!(theirs.depth() > DEPTH_MAX || theirs.has_a_name_twice(), "refused: {fault}");
        }
        (Err(_), Err(_)) => {}
    }
    is_accepted
}

fn survives_writing(raw: &RawJson, tree: &Json<'_>) {
    assert_eq!(raw.tree(), *tree);
    let written = RawJson::from(tree);
    let (read, again) = match RawJson::read(&written.shared()) {
        Ok((read, again)) => (read, RawJson::from(&again)),
        Err(fault) => panic!("{written:?} was written, and is refused: {fault}"),
    };
    assert_eq!((&read, &again), (&written, &written));
    assert_eq!(written.tree(), *tree);
}

fn is_found(text: &str, tree: &Json<'_>, path: &mut Vec<Step>, left: &mut usize) {
    let Some(next) = left.checked_sub(1) else { return };
    *left = next;
    let found = json::find(text, path).and_then(|part| json::parse(part).ok());
    assert_eq!(found.as_ref(), Some(tree), "at {path:?}");
    let children: Vec<(String, &Json<'_>)> = match tree {
        Json::Array(items) => items.iter().enumerate().map(|(at, item)| (at.to_string(), item)).collect(),
        Json::Object(members) => members.iter().map(|(name, value)| (name.to_string(), value)).collect(),
        _ => Vec::new(),
    };
    for (key, child) in children {
        path.push(Step::new(key));
        is_found(text, child, path, left);
        path.pop();
    }
}

/// A document as `serde_json` reads it, with all members of its objects.
#[derive(Debug)]
enum Theirs {
    Null,
    Bool(bool),
    Int(i128),
    Double(f64),
    Text(String),
    Array(Vec<Theirs>),
    Object(Vec<(String, Theirs)>),
}

impl Theirs {
    fn depth(&self) -> usize {
        match self {
            Theirs::Array(items) => 1 + items.iter().map(Theirs::depth).max().unwrap_or(0),
            Theirs::Object(members) => 1 + members.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
            _ => 0,
        }
    }

    fn has_a_name_twice(&self) -> bool {
        match self {
            Theirs::Array(items) => items.iter().any(Theirs::has_a_name_twice),
            Theirs::Object(members) => {
                let is_there_before = |at: usize| members[..at].iter().any(|(name, _)| *name == members[at].0);
                (0..members.len()).any(is_there_before) || members.iter().any(|(_, value)| value.has_a_name_twice())
            }
            _ => false,
        }
    }

    /// Returns true if it means the same as our tree. Doubles may differ in their last bits, as `serde_json` does not
    /// round them exactly.
    fn is(&self, ours: &Json<'_>) -> bool {
        match (self, ours) {
            (Theirs::Null, Json::Null) => true,
            (Theirs::Bool(theirs), Json::Bool(ours)) => theirs == ours,
            (Theirs::Int(theirs), Json::Number(ours)) => ours.text().parse() == Ok(*theirs),
            (Theirs::Double(theirs), Json::Number(ours)) => {
                let (theirs, ours) = (*theirs, ours.as_f64());
                ours.is_finite() && (theirs - ours).abs() <= (ours.abs() * 1e-15).max(f64::MIN_POSITIVE)
            }
            (Theirs::Text(theirs), Json::Text(ours)) => theirs == ours,
            (Theirs::Array(theirs), Json::Array(ours)) => {
                theirs.len() == ours.len() && theirs.iter().zip(ours).all(|(theirs, ours)| theirs.is(ours))
            }
            (Theirs::Object(theirs), Json::Object(ours)) => {
                let mut pairs = theirs.iter().zip(ours);
                theirs.len() == ours.len() && pairs.all(|((name, theirs), (our, ours))| name == our && theirs.is(ours))
            }
            _ => false,
        }
    }
}

impl<'de> Deserialize<'de> for Theirs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(TheirsVisitor)
    }
}

struct TheirsVisitor;

impl<'de> Visitor<'de> for TheirsVisitor {
    type Value = Theirs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Theirs, E> {
        Ok(Theirs::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Theirs, E> {
        Ok(Theirs::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Theirs, E> {
        Ok(Theirs::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Theirs, E> {
        Ok(Theirs::Int(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Theirs, E> {
        Ok(Theirs::Double(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Theirs, E> {
        Ok(Theirs::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Theirs, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element()? {
            items.push(item);
        }
        Ok(Theirs::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Theirs, A::Error> {
        let mut members = Vec::new();
        while let Some(member) = from.next_entry()? {
            members.push(member);
        }
        Ok(Theirs::Object(members))
    }
}

/// Checks that a JSONPath that is written and parsed again is the same: same text, same results, same cost. The input
/// is a path, and optionally, after a U+0000, which no path holds, a document. Returns true if both could be parsed.
pub fn jsonpath(input: &[u8]) -> bool {
    let Ok(input) = std::str::from_utf8(input) else { return false };
    let (path, document) = input.split_once('\0').unwrap_or((input, DOCUMENT));
    let Ok(read) = JsonPath::parse(path) else { return false };
    let written = read.to_string();
    // Written in full it may exceed the longest allowed path.
    if written.len() > PATH_BYTES_MAX {
        return false;
    }
    let again =
        JsonPath::parse(&written).unwrap_or_else(|fault| panic!("{written} was written, and is refused: {fault}"));
    assert_eq!(again.to_string(), written);
    let Ok(tree) = json::parse(document) else { return false };
    let found = |path: &JsonPath| {
        let mut steps = Steps::new(PATH_STEPS);
        (path.find(&tree, &mut steps).map(|nodes| nodes.into_iter().map(std::ptr::from_ref).collect::<Vec<_>>()), steps)
    };
    assert_eq!(format!("{:?}", found(&read)), format!("{:?}", found(&again)), "{written}");
    true
}

#[cfg(test)]
mod tests {
    use super::replay::replay;
    use super::*;

    /// Least number of mutations that must be valid, lest the properties be checked on nothing.
    const ENOUGH: usize = 250;

    fn official(name: &str) -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/official").join(name)
    }

    // Holds: fuzz.json
    #[test]
    fn json_is_what_serde_json_reads() {
        let files = std::fs::read_dir(official("json/test_parsing")).unwrap();
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        let accepted = replay("json", paths.into_iter().map(|path| std::fs::read(path).unwrap()), json);
        assert!(accepted > ENOUGH, "{accepted}");
    }

    // Holds: fuzz.jsonpath
    #[test]
    fn path_survives_writing_and_parsing() {
        let suite = std::fs::read_to_string(official("jsonpath/cts.json")).unwrap();
        let suite = json::parse(&suite).unwrap();
        let Some(Json::Array(cases)) = suite.get("tests") else { panic!("no tests") };
        let input = |case: &Json<'_>| {
            let mut input = case.get("selector").and_then(Json::as_text).unwrap().as_bytes().to_vec();
            if let Some(document) = case.get("document") {
                input.push(0);
                document.write(&mut input);
            }
            input
        };
        let accepted = replay("jsonpath", cases.iter().map(input), jsonpath);
        assert!(accepted > ENOUGH, "{accepted}");
    }
}
