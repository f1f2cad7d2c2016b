//! Last values: the most recent value of every key (contract: Data).

use bytes::Bytes;

use super::scan::same_keys;
use super::{Json, RawJson, parse, write_string};

/// Stands between the merged object and the newest payload, when that is no object. No JSON text holds it.
const BEHIND: char = '\0';

/// What is kept of a storage element's payloads to tell its last values: the object that all objects among them make,
/// and behind it the newest payload, if that is no object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastKept(Bytes);

impl LastKept {
    /// Takes in the next payload, after what [`LastKept::bytes`] of those before it were: members of objects are merged,
    /// the newer wins and replaces deep values. Any other payload hides the object until the next object comes.
    pub fn after(older: Option<&str>, newer: &RawJson) -> Self {
        let object = older.and_then(object_of);
        if newer.text().starts_with('{') {
            return Self(object.map_or_else(|| newer.clone(), |object| merged(object, newer)).shared());
        }
        match object {
            Some(object) => Self(format!("{object}{BEHIND}{}", newer.text()).into()),
            None => Self(newer.shared()),
        }
    }

    /// What was kept.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }

    /// As it is to be kept.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// As it is to be kept: a text.
    pub fn text(&self) -> &str {
        // Made of texts.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The last values: the merged object, or the newest payload when that is none.
    pub fn values(&self) -> RawJson {
        let from = self.0.iter().position(|byte| *byte == BEHIND as u8).map_or(0, |at| at + 1);
        RawJson::trusted(self.0.slice(from..))
    }
}

/// The merged object in what was kept.
fn object_of(kept: &str) -> Option<&str> {
    let object = kept.split_once(BEHIND).map_or(kept, |(object, _)| object);
    object.starts_with('{').then_some(object)
}

/// An object with the members of a newer one laid over it.
fn merged(older: &str, newer: &RawJson) -> RawJson {
    if same_keys(older, newer.text()) {
        return newer.clone();
    }
    let (Ok(Json::Object(old)), Json::Object(new)) = (parse(older), newer.tree()) else { return newer.clone() };
    if old.iter().all(|(name, _)| new.iter().any(|(other, _)| other == name)) {
        return newer.clone();
    }
    let replaced = |name: &str| new.iter().find(|(other, _)| other == name).map(|(_, value)| value);
    let kept = old.iter().map(|(name, value)| (name, replaced(name).unwrap_or(value)));
    let added = new.iter().filter(|(name, _)| old.iter().all(|(other, _)| other != name));
    let mut text = Vec::with_capacity(older.len() + newer.bytes().len());
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
        let kept = LastKept::after(
            Some(r#"{"a":1,"deep":{"x":1,"y":2}}"#),
            &raw(r#"{"deep":{"x":3},"b":12345678901234567890}"#),
        );
        assert_eq!(kept.values().text(), r#"{"a":1,"deep":{"x":3},"b":12345678901234567890}"#);
    }

    proptest::proptest! {
        #[test]
        fn merging_is_overlaying_key_by_key(old in members(), new in members()) {
            let raw = |map: &Map| RawJson::check(serde_json::to_vec(map).unwrap().into()).unwrap();
            let merged = LastKept::after(Some(raw(&old).text()), &raw(&new)).values();
            let mut expected = old.clone();
            expected.extend(new.clone());
            proptest::prop_assert_eq!(serde_json::from_str::<Map>(merged.text()).unwrap(), expected);
        }
    }

    type Map = std::collections::BTreeMap<String, serde_json::Value>;

    fn members() -> impl proptest::strategy::Strategy<Value = Map> {
        use proptest::prelude::*;
        let value = prop_oneof![any::<i64>().prop_map(serde_json::Value::from), "[a\"{},]{0,4}".prop_map(Into::into)];
        prop::collection::btree_map("[ab\"\\\\é]{0,2}", value, 0..4)
    }

    #[test]
    fn a_payload_that_is_no_object_hides_the_object_until_the_next_one() {
        let mut kept = LastKept::after(None, &raw("7"));
        for (newer, shown) in [
            (r#"{"a":1,"b":"\u0000"}"#, r#"{"a":1,"b":"\u0000"}"#),
            ("[1,{\"a\":9}]", "[1,{\"a\":9}]"),
            ("\"{\"", "\"{\""),
            (r#"{"c":3}"#, r#"{"a":1,"b":"\u0000","c":3}"#),
            ("false", "false"),
            (r#"{"a":4}"#, r#"{"a":4,"b":"\u0000","c":3}"#),
        ] {
            kept = LastKept::after(Some(LastKept::from_bytes(kept.bytes()).text()), &raw(newer));
            assert_eq!(kept.values().text(), shown);
        }
    }
}
