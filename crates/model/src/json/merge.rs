//! Last values: the most recent value of every key (contract: Data).

use bytes::Bytes;

use super::RawJson;
use super::parts::Parts;
use super::scan::{members, same_keys};

/// Most bytes of the stored last values of a series (contract: The project design). Older larger ones stay and do not
/// grow.
pub const LAST_BYTES_MAX: usize = 256 << 10;

/// Separates the merged object from a newest payload that is not an object. No JSON text contains it.
const BEHIND: char = '\0';
/// Replaces a payload that does not fit.
const STAND_IN: &str = "null";
/// Bytes that the merged object must leave free for the separator and the replacement.
const BESIDE_OBJECT_BYTES: usize = BEHIND.len_utf8() + STAND_IN.len();

/// The stored form of a series' last values: the merge of all objects, followed by the newest payload if that is not an
/// object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastKept(Bytes);

impl LastKept {
    /// Merges payloads, oldest first, into `older`, the [`LastKept::text`] of those before: the newer member wins, deep
    /// values are replaced. Any other payload hides the object until the next object. The work is linear in the total
    /// size. Also returns the number of members, or whole payloads, that did not fit into [`LAST_BYTES_MAX`] bytes:
    /// such a name has no last value, as an older one would be wrong.
    pub fn after_all<'p>(older: Option<&'p str>, newer: impl IntoIterator<Item = &'p RawJson>) -> (Self, usize) {
        Self::after_all_within(LAST_BYTES_MAX, older, newer)
    }

    /// Merges like [`LastKept::after_all`], with a limit of `most` bytes, or of the stored size if that is larger.
    pub fn after_all_within<'p>(
        most: usize,
        older: Option<&'p str>,
        newer: impl IntoIterator<Item = &'p RawJson>,
    ) -> (Self, usize) {
        let mut merging = Merging::begin(older, most);
        for payload in newer {
            merging.take(payload);
        }
        (Self(merging.object.with(merging.newest)), merging.left_out)
    }

    /// Makes it from its stored bytes.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(Bytes::copy_from_slice(bytes))
    }

    /// Returns the stored form.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the stored form as text.
    pub fn text(&self) -> &str {
        // Valid UTF-8, as it is made of texts.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns the last values: the merged object, or the newest payload if that is not an object.
    pub fn values(&self) -> RawJson {
        let from = self.0.iter().position(|byte| *byte == BEHIND as u8).map_or(0, |at| at + 1);
        RawJson::trusted(self.0.slice(from..))
    }
}

/// A stored text or a new payload.
#[derive(Clone, Copy)]
enum Text<'p> {
    Kept(&'p str),
    /// With its text, as asking for it validates all of it again.
    Sent(&'p RawJson, &'p str),
}

impl<'p> Text<'p> {
    fn text(self) -> &'p str {
        match self {
            Text::Kept(text) | Text::Sent(_, text) => text,
        }
    }

    fn bytes(self) -> Bytes {
        match self {
            Text::Kept(text) => Bytes::copy_from_slice(text.as_bytes()),
            Text::Sent(payload, _) => payload.shared(),
        }
    }
}

/// The merged object: a whole text until it must be split.
enum Object<'p> {
    None,
    Whole(Text<'p>),
    Parts(Parts<'p>),
}

impl<'p> Object<'p> {
    fn len(&self) -> usize {
        match self {
            Object::None => 0,
            Object::Whole(text) => text.text().len(),
            Object::Parts(parts) => parts.len(),
        }
    }

    /// Returns the stored form: the object, followed by the newest payload.
    fn with(self, newest: Option<Text<'p>>) -> Bytes {
        match (self, newest) {
            (Object::None, newest) => newest.map_or_else(Bytes::new, Text::bytes),
            (Object::Whole(text), None) => text.bytes(),
            (object, newest) => {
                let mut kept = String::with_capacity(object.len() + newest.map_or(0, |it| 1 + it.text().len()));
                match &object {
                    Object::Parts(parts) => parts.write(&mut kept),
                    Object::Whole(text) => kept.push_str(text.text()),
                    Object::None => {}
                }
                if let Some(newest) = newest {
                    kept.push(BEHIND);
                    kept.push_str(newest.text());
                }
                kept.into()
            }
        }
    }
}

/// A merge in progress.
struct Merging<'p> {
    most: usize,
    object: Object<'p>,
    newest: Option<Text<'p>>,
    left_out: usize,
}

impl<'p> Merging<'p> {
    fn begin(older: Option<&'p str>, most: usize) -> Self {
        // A payload behind an object never ends with a brace.
        let both = older.filter(|older| !older.ends_with('}')).and_then(|older| older.split_once(BEHIND));
        let (first, behind) = both.map_or((older, None), |(object, newest)| (Some(object), Some(newest)));
        let is_object = |text: &&str| text.starts_with('{');
        Self {
            most,
            object: first.filter(is_object).map_or(Object::None, |text| Object::Whole(Text::Kept(text))),
            newest: behind.or(first.filter(|text| !is_object(text))).map(Text::Kept),
            left_out: 0,
        }
    }

    fn take(&mut self, payload: &'p RawJson) {
        let sent = Text::Sent(payload, payload.text());
        if sent.text().starts_with('{') {
            self.newest = None;
            return self.lay_over(sent);
        }
        // The bytes of the object and the separator.
        let beside = match self.object.len() {
            0 => 0,
            object => object + BEHIND.len_utf8(),
        };
        let most = self.most.max(beside + self.newest.map_or(0, |newest| newest.text().len()));
        let fits = beside + sent.text().len() <= most;
        self.left_out += usize::from(!fits);
        self.newest = Some(if fits { sent } else { Text::Kept(STAND_IN) });
    }

    /// Merges an object into the present one.
    fn lay_over(&mut self, newer: Text<'p>) {
        let most = self.most.saturating_sub(BESIDE_OBJECT_BYTES).max(self.object.len());
        let fits = newer.text().len() <= most;
        let mut parts = match std::mem::replace(&mut self.object, Object::None) {
            Object::None if fits => return self.object = Object::Whole(newer),
            Object::None => Parts::default(),
            Object::Whole(older) if fits && same_keys(older.text(), newer.text()) => {
                return self.object = Object::Whole(newer);
            }
            Object::Whole(older) => Parts::of(older.text()),
            Object::Parts(parts) => parts,
        };
        let laid: Vec<_> = members(newer.text()).map(|(key, value)| parts.place(key, value)).collect();
        self.object = if fits && parts.are_replaced_by(&laid) {
            // Every present member is replaced.
            Object::Whole(newer)
        } else {
            self.left_out += parts.lay(laid, most);
            Object::Parts(parts)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::names::counted::compared;
    use crate::json::parse;

    const OBJECT_BYTES_MAX: usize = LAST_BYTES_MAX - BESIDE_OBJECT_BYTES;

    fn raw(text: &'static str) -> RawJson {
        RawJson::check(Bytes::from_static(text.as_bytes())).unwrap()
    }

    #[test]
    fn newer_key_wins_and_deep_values_are_replaced() {
        let newer = raw(r#"{"deep":{"x":3},"b":12345678901234567890}"#);
        let (kept, _) = LastKept::after_all(Some(r#"{"a":1,"deep":{"x":1,"y":2}}"#), [&newer]);
        assert_eq!(kept.values().text(), r#"{"a":1,"deep":{"x":3},"b":12345678901234567890}"#);
    }

    proptest::proptest! {
        #[test]
        fn merging_is_overlaying_key_by_key(old in members(), new in members()) {
            let raw = |map: &Map| RawJson::check(serde_json::to_vec(map).unwrap().into()).unwrap();
            let merged = LastKept::after_all(Some(raw(&old).text()), [&raw(&new)]).0.values();
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

    /// Merges payloads one by one; returns the result and the number that did not fit.
    fn one_by_one(payloads: &[RawJson]) -> (Option<LastKept>, usize) {
        payloads.iter().fold((None, 0), |(kept, left_out), payload| {
            let (next, more) = LastKept::after_all(kept.as_ref().map(LastKept::text), [payload]);
            (Some(next), left_out + more)
        })
    }

    fn object(names: impl Iterator<Item = usize>, value: &str) -> RawJson {
        let members: Vec<_> = names.map(|n| format!("\"k{n:06}\":{value}")).collect();
        RawJson::check(format!("{{{}}}", members.join(",")).into()).unwrap()
    }

    #[test]
    fn merge_takes_linear_time() {
        const NAMES: usize = 10_000;
        let (there, back) = (object(0..NAMES, "1"), object((0..NAMES).rev().chain([NAMES]), "2"));
        let one = object(0..1, "3");
        let payloads: Vec<_> = [&there, &back].into_iter().chain(std::iter::repeat_n(&one, 1_000)).collect();
        let (compared, (kept, left_out)) = compared(|| LastKept::after_all(None, payloads));
        assert!(compared < 8 * NAMES, "{compared} comparisons of {NAMES} names");
        let expected = object([0].into_iter(), "3").text()[1..].trim_end_matches('}').to_owned();
        assert!(kept.text().contains(&expected) && left_out == 0);
    }

    #[test]
    fn merge_with_repeated_overflow_takes_linear_time() {
        const NAMES: usize = 1_000;
        let all = object(0..NAMES, "1");
        let large = object(0..1, &format!("\"{}\"", "x".repeat(LAST_BYTES_MAX - 2_000)));
        let small = object(0..1, "3");
        let payloads: Vec<_> = std::iter::once(&all).chain([&large, &small].into_iter().cycle().take(NAMES)).collect();
        let (compared, (kept, left_out)) = compared(|| LastKept::after_all(None, payloads));
        assert!(compared < 8 * 2 * NAMES, "{compared} comparisons of {NAMES} names and payloads");
        assert_eq!(left_out, NAMES / 2);
        // A member that was removed and added again is at the end.
        assert!(kept.text().starts_with("{\"k000001\":1,") && kept.text().ends_with(",\"k000000\":3}"));
    }

    #[test]
    fn member_above_the_limit_is_left_out_and_counted() {
        // A member takes 260 bytes.
        let value = format!("\"{}\"", "x".repeat(247));
        let most = OBJECT_BYTES_MAX / 260;
        let (full, more) = (object(0..most, &value), object(most..most + 10, &value));
        let (kept, left_out) = one_by_one(&[full.clone(), more.clone()]);
        assert_eq!((kept.unwrap().values().text(), left_out), (full.text(), 10));
        // A small member still fits; one that grows loses its place, as its old value is no longer the last.
        let grown = object(0..1, &format!("\"{}\"", "x".repeat(600)));
        let (kept, left_out) = one_by_one(&[full.clone(), raw(r#"{"k":1}"#), grown]);
        let shown = kept.unwrap().values();
        assert_eq!((shown.tree().get("k").is_some(), shown.tree().get("k000000"), left_out), (true, None, 1));
        assert!(shown.tree().get("k000001").is_some());
        // A single payload can be too large.
        let (kept, left_out) = one_by_one(&[object(0..2 * most, &value)]);
        assert_eq!((kept.unwrap().values().text(), left_out), (full.text(), most));
    }

    #[test]
    fn payload_above_the_limit_hides_what_was_before() {
        let large = RawJson::check(format!("\"{}\"", "x".repeat(LAST_BYTES_MAX)).into()).unwrap();
        assert_eq!(one_by_one(&[raw("7"), large.clone()]).0.unwrap().values().text(), "null");
        let object = raw(r#"{"a":1}"#);
        let (kept, left_out) = one_by_one(&[object.clone(), large.clone()]);
        assert_eq!((kept.unwrap().values().text(), left_out), ("null", 1));
        let (kept, _) = one_by_one(&[object, large, raw(r#"{"b":2}"#)]);
        assert_eq!(kept.unwrap().values().text(), r#"{"a":1,"b":2}"#);
    }

    #[test]
    fn stored_object_above_the_limit_does_not_grow() {
        let large = object(0..60_000, "12345");
        let older = large.text().to_owned();
        assert!(older.len() > 3 * LAST_BYTES_MAX);
        let (kept, left_out) = LastKept::after_all(Some(&older), [&raw(r#"{"k000001":54321}"#)]);
        assert_eq!((kept.bytes().len(), left_out), (older.len(), 0));
        let (kept, left_out) = LastKept::after_all(Some(&older), [&raw(r#"{"new":1}"#)]);
        assert_eq!((kept.text(), left_out), (older.as_str(), 1));
        // The limit shrinks with the stored size.
        let (kept, _) = LastKept::after_all(Some(&older), [&object(0..50_000, "1"), &raw(r#"{"new":1}"#)]);
        assert!(kept.bytes().len() < older.len() && kept.values().tree().get("new").is_none());
    }

    proptest::proptest! {
        #[test]
        fn merge_of_many_equals_merges_one_by_one(payloads in proptest::collection::vec(any_payload(), 1..6)) {
            let payloads: Vec<_> = payloads.into_iter().map(|text| RawJson::check(text.into()).unwrap()).collect();
            let (kept, left_out) = one_by_one(&payloads);
            let (at_once, left_out_at_once) = LastKept::after_all(None, &payloads);
            proptest::prop_assert_eq!((Some(&at_once), left_out_at_once), (kept.as_ref(), left_out));
            proptest::prop_assert!(at_once.bytes().len() <= LAST_BYTES_MAX);
            proptest::prop_assert!(parse(at_once.values().text()).is_ok());
        }
    }

    /// Objects of few names with empty values or values of half the limit, with white space, and other payloads.
    fn any_payload() -> impl proptest::strategy::Strategy<Value = String> {
        use proptest::prelude::*;
        let half = format!("\"{}\"", "x".repeat(LAST_BYTES_MAX / 2 - 10));
        let value = prop::sample::select(vec!["1".to_owned(), " [ 2 ] ".to_owned(), half.clone()]);
        let name = prop::sample::select(vec!["a", "b", "\\u0061", "c", "d\\n"]);
        let members = prop::collection::vec((name, value), 0..4).prop_map(|members| {
            let mut seen = std::collections::HashSet::new();
            let texts = members.iter().filter(|(name, _)| seen.insert(name.replace("\\u0061", "a")));
            let texts: Vec<_> = texts.map(|(name, value)| format!(" \"{name}\":{value}")).collect();
            format!("{{{}}}", texts.join(","))
        });
        prop_oneof![4 => members, 1 => Just("7".to_owned()), 1 => Just(format!("[{half}, {half}]"))]
    }

    #[test]
    fn scalar_payload_hides_the_object_until_the_next() {
        let mut kept = LastKept::after_all(None, [&raw("7")]).0;
        for (newer, shown) in [
            (r#"{"a":1,"b":"\u0000"}"#, r#"{"a":1,"b":"\u0000"}"#),
            ("[1,{\"a\":9}]", "[1,{\"a\":9}]"),
            ("\"{\"", "\"{\""),
            (r#"{"c":3}"#, r#"{"a":1,"b":"\u0000","c":3}"#),
            ("false", "false"),
            (r#"{"a":4}"#, r#"{"a":4,"b":"\u0000","c":3}"#),
        ] {
            kept = LastKept::after_all(Some(LastKept::from_bytes(kept.bytes()).text()), [&raw(newer)]).0;
            assert_eq!(kept.values().text(), shown);
        }
    }
}
