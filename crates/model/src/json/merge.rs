//! Last values: the most recent value of every key (contract: Data).

use bytes::Bytes;

use super::{Json, RawJson, write_string};

/// Composes the last values after `newer` came: members of objects are merged, the newer wins and replaces deep values;
/// any other newest payload replaces everything.
pub fn merge_last(older: Option<&RawJson>, newer: &RawJson) -> RawJson {
    let Some(older) = older else { return newer.clone() };
    let (Json::Object(old), Json::Object(new)) = (older.tree(), newer.tree()) else { return newer.clone() };
    if old.iter().all(|(name, _)| new.iter().any(|(other, _)| other == name)) {
        return newer.clone();
    }
    let replaced = |name: &str| new.iter().find(|(other, _)| other == name).map(|(_, value)| value);
    let kept = old.iter().map(|(name, value)| (name, replaced(name).unwrap_or(value)));
    let added = new.iter().filter(|(name, _)| old.iter().all(|(other, _)| other != name));
    let mut text = Vec::with_capacity(older.bytes().len() + newer.bytes().len());
    for (name, value) in kept.chain(added.map(|(name, value)| (name, value))) {
        text.push(if text.is_empty() { b'{' } else { b',' });
        write_string(name, &mut text);
        text.push(b':');
        value.write(&mut text);
    }
    text.push(b'}');
    RawJson::trusted(Bytes::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &'static str) -> RawJson {
        RawJson::check(Bytes::from_static(text.as_bytes())).unwrap()
    }

    #[test]
    fn the_newer_key_wins_and_deep_values_are_replaced() {
        let merged = merge_last(
            Some(&raw(r#"{"a":1,"deep":{"x":1,"y":2}}"#)),
            &raw(r#"{"deep":{"x":3},"b":12345678901234567890}"#),
        );
        assert_eq!(merged.text(), r#"{"a":1,"deep":{"x":3},"b":12345678901234567890}"#);
    }

    #[test]
    fn a_payload_that_is_no_object_replaces_everything() {
        assert_eq!(merge_last(Some(&raw(r#"{"a":1}"#)), &raw("[1,2]")).text(), "[1,2]");
        assert_eq!(merge_last(Some(&raw("7")), &raw(r#"{"a":1}"#)).text(), r#"{"a":1}"#);
    }
}
