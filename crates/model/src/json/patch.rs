//! JSON merge patches (RFC 7396), without a tree of the target.

use super::parts::{Parts, quoted};
use super::{Json, RawJson};

/// Applies a merge patch to an object: sets members, removes those that are null, merges objects recursively. Other
/// members keep their place and text. Anything but an object counts as an empty one.
pub fn merge_patch(object: &RawJson, patch: &Json<'_>) -> RawJson {
    RawJson::trusted(merged(object.text(), patch).into())
}

/// Returns the text of a patched value. A patch that is not an object replaces it.
fn merged(target: &str, patch: &Json<'_>) -> String {
    let Json::Object(members) = patch else {
        let mut text = Vec::new();
        patch.write(&mut text);
        return String::from_utf8(text).unwrap_or_default();
    };
    let before = Parts::of(target);
    let changes: Vec<(String, Option<String>)> = members
        .iter()
        .map(|(name, value)| match value {
            Json::Null => (quoted(name), None),
            value => (quoted(name), Some(merged(before.value(name).unwrap_or_default(), value))),
        })
        .collect();
    let mut parts = before;
    for (key, value) in &changes {
        match value {
            Some(value) => {
                let laid = parts.place(key, value);
                parts.lay(vec![laid], usize::MAX);
            }
            None => parts.remove(key),
        }
    }
    let mut text = String::with_capacity(parts.len());
    parts.write(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::names::counted::compared;
    use crate::json::parse;

    fn patched(object: &str, patch: &str) -> String {
        let object = RawJson::check(object.to_owned().into()).unwrap();
        merge_patch(&object, &parse(patch).unwrap()).text().to_owned()
    }

    #[test]
    fn merge_patch_meets_the_examples_of_the_rfc() {
        // RFC 7396, appendix A, as far as both are objects.
        for (object, patch, expected) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
        ] {
            assert_eq!(patched(object, patch), expected, "{object} {patch}");
        }
    }

    #[test]
    fn unnamed_members_keep_place_and_text() {
        let object = r#"{"a": 9007199254740826, "b\n" : {"x":1.0, "y" : [ 2 ],"z":"\u0008"},"c":1e2}"#;
        let expected = r#"{"a":9007199254740826,"b\n":{"x":1.0,"y":[ 2 ],"z":3.10},"c":1e2,"d":1.0}"#;
        assert_eq!(patched(object, r#"{"d": 1.0, "b\u000a": {"z": 3.10, "no": null}}"#), expected);
        // A target that is not an object is replaced, and so are arrays.
        assert_eq!(patched(r#"{"a":1}"#, r#"{"a":{"b":[null]}}"#), r#"{"a":{"b":[null]}}"#);
        assert_eq!(patched(object, "{}").replace(' ', ""), object.replace(' ', ""));
    }

    #[test]
    fn patch_of_many_members_takes_linear_time() {
        const NAMES: usize = 5_000;
        let of = |value: &str| {
            let members: Vec<_> = (0..NAMES).map(|n| format!("\"k{n}\":{value}")).collect();
            format!("{{{}}}", members.join(","))
        };
        let (object, halves) = (of("1"), of("null").replacen("null", "2", NAMES / 2));
        let (compared, with) = compared(|| patched(&object, &halves));
        assert!(compared < 16 * NAMES, "{compared} comparisons of {NAMES} names");
        assert_eq!(with, format!("{{{}}}", with[1..with.len() - 1].replace(":1", ":2")));
        assert_eq!(with.matches(":2").count(), NAMES / 2);
    }
}
