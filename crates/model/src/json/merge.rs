//! Last values: the most recent value of every key (contract: Data).

use bytes::Bytes;

use super::scan::same_keys;
use super::{Json, RawJson, parse, write_string};

/// Composes the last values after `newer` came: members of objects are merged, the newer wins and replaces deep values;
/// any other newest payload replaces everything.
pub fn merge_last(older: Option<&str>, newer: &RawJson) -> RawJson {
    let Some(older) = older else { return newer.clone() };
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
        let merged =
            merge_last(Some(r#"{"a":1,"deep":{"x":1,"y":2}}"#), &raw(r#"{"deep":{"x":3},"b":12345678901234567890}"#));
        assert_eq!(merged.text(), r#"{"a":1,"deep":{"x":3},"b":12345678901234567890}"#);
    }

    proptest::proptest! {
        #[test]
        fn merging_is_overlaying_key_by_key(old in members(), new in members()) {
            let raw = |map: &Map| RawJson::check(serde_json::to_vec(map).unwrap().into()).unwrap();
            let merged = merge_last(Some(raw(&old).text()), &raw(&new));
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
    fn a_payload_that_is_no_object_replaces_everything() {
        assert_eq!(merge_last(Some(r#"{"a":1}"#), &raw("[1,2]")).text(), "[1,2]");
        assert_eq!(merge_last(Some("7"), &raw(r#"{"a":1}"#)).text(), r#"{"a":1}"#);
    }
}
