//! Last values: the most recent value of every key (contract: Data).

use bytes::Bytes;

use super::scan::same_keys;
use super::{Json, RawJson, parse, write_string};

/// Stands between last values that are no object and the keys that objects before them have left: no JSON holds it.
const BEHIND: u8 = 0;

/// Composes the last values after `newer` came. Members of objects are merged, the newer wins and replaces deep values;
/// any other payload stands alone while it is the newest. The keys of the objects before it are kept behind it: the next
/// object is merged with them. [`last_shown`] tells what of it is shown.
pub fn merge_last(kept: Option<&str>, newer: &RawJson) -> Bytes {
    let objects = match kept {
        Some(kept) if kept.starts_with('{') => Some(kept),
        Some(kept) => kept.split_once(char::from(BEHIND)).map(|(_, objects)| objects),
        None => None,
    };
    match objects {
        None => newer.0.clone(),
        Some(objects) if newer.text().starts_with('{') => merged(objects, newer).0,
        Some(objects) => [newer.bytes(), &[BEHIND], objects.as_bytes()].concat().into(),
    }
}

/// What is shown of last values as they are kept.
pub fn last_shown(kept: &Bytes) -> RawJson {
    let end = match kept.first() {
        Some(b'{') => None,
        _ => kept.iter().position(|byte| *byte == BEHIND),
    };
    RawJson::trusted(end.map_or_else(|| kept.clone(), |end| kept.slice(..end)))
}

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
        let merged =
            merge_last(Some(r#"{"a":1,"deep":{"x":1,"y":2}}"#), &raw(r#"{"deep":{"x":3},"b":12345678901234567890}"#));
        assert_eq!(last_shown(&merged).text(), r#"{"a":1,"deep":{"x":3},"b":12345678901234567890}"#);
    }

    proptest::proptest! {
        #[test]
        fn merging_is_overlaying_key_by_key(old in members(), new in members()) {
            let raw = |map: &Map| RawJson::check(serde_json::to_vec(map).unwrap().into()).unwrap();
            let merged = merge_last(Some(raw(&old).text()), &raw(&new));
            let mut expected = old.clone();
            expected.extend(new.clone());
            proptest::prop_assert_eq!(serde_json::from_slice::<Map>(&merged).unwrap(), expected);
        }
    }

    type Map = std::collections::BTreeMap<String, serde_json::Value>;

    fn members() -> impl proptest::strategy::Strategy<Value = Map> {
        use proptest::prelude::*;
        let value = prop_oneof![any::<i64>().prop_map(serde_json::Value::from), "[a\"{},]{0,4}".prop_map(Into::into)];
        prop::collection::btree_map("[ab\"\\\\é]{0,2}", value, 0..4)
    }

    #[test]
    fn a_payload_that_is_no_object_stands_alone_and_keys_come_back_with_the_next() {
        let mut kept = None;
        for (newer, shown) in [
            ("7", "7"),
            (r#"{"a":1,"b":1}"#, r#"{"a":1,"b":1}"#),
            ("[1,{\"x\":\"\\u0000\"}]", "[1,{\"x\":\"\\u0000\"}]"),
            ("null", "null"),
            (r#"{"b":2}"#, r#"{"a":1,"b":2}"#),
            (r#""{}""#, r#""{}""#),
            (r#"{"a":3,"b":3}"#, r#"{"a":3,"b":3}"#),
        ] {
            let merged = merge_last(kept.as_deref(), &raw(newer));
            assert_eq!(last_shown(&merged).text(), shown);
            kept = Some(String::from_utf8(merged.to_vec()).unwrap());
        }
    }
}
