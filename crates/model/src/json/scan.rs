//! Finds a part of a JSON text without a tree, for scans of millions of stored payloads.

use std::borrow::Cow;

use super::{Json, Number, parse};

/// A step of a path: a key, which may also index an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    key: String,
    index: Option<usize>,
}

impl Step {
    /// Makes a step by this key.
    pub fn new(key: impl Into<String>) -> Self {
        let key = key.into();
        Self { index: key.parse().ok(), key }
    }
}

/// Returns the text of the value at a path, like [`Json::at`]. The text must be checked: the result for any other is
/// arbitrary.
pub fn find<'a>(text: &'a str, path: &[Step]) -> Option<&'a str> {
    let mut scanner = Scanner { text, at: 0 };
    for step in path {
        scanner.skip_white_space();
        match scanner.peek()? {
            b'{' => scanner.member(&step.key)?,
            b'[' => scanner.item(step.index?)?,
            _ => return None,
        }
    }
    scanner.skip_white_space();
    let from = scanner.at;
    scanner.skip_value()?;
    text.get(from..scanner.at)
}

/// Wraps the text of a checked number; `None` if it does not begin like one.
pub fn number(text: &str) -> Option<Number<'_>> {
    matches!(text.as_bytes().first(), Some(b'-' | b'0'..=b'9')).then(|| Number::written(text))
}

/// Returns true if two checked texts are objects with the same keys, written alike and in the same order, as successive
/// payloads of one device mostly are.
pub(super) fn same_keys(left: &str, right: &str) -> bool {
    let (mut left, mut right) = (Scanner { text: left, at: 0 }, Scanner { text: right, at: 0 });
    if left.peek() != Some(b'{') || right.peek() != Some(b'{') {
        return false;
    }
    loop {
        match (left.next_member(), right.next_member()) {
            (Some((a, _)), Some((b, _))) if a == b => {}
            (None, None) => return true,
            _ => return false,
        }
    }
}

/// Iterates over the members of a checked object: the quoted name and the text of the value.
pub(super) fn members(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut scanner = Scanner { text, at: 0 };
    std::iter::from_fn(move || scanner.next_member())
}

/// Unquotes a name.
pub(super) fn name_of(quoted: &str) -> Cow<'_, str> {
    if quoted.contains('\\')
        && let Ok(Json::Text(name)) = parse(quoted)
    {
        return name;
    }
    Cow::Borrowed(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or(quoted))
}

struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_white_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Reads the key of the next member, with its quotes, and moves to its value. The current character must be `{` or
    /// `,`.
    fn key(&mut self) -> Option<&'a str> {
        self.at += 1;
        self.skip_white_space();
        let from = self.at;
        self.skip_string()?;
        let key = self.text.get(from..self.at)?;
        self.skip_white_space();
        self.at += 1;
        Some(key)
    }

    /// Moves to the value of an object's member.
    fn member(&mut self, key: &str) -> Option<()> {
        loop {
            if names(self.key()?, key) {
                return Some(());
            }
            self.skip_value()?;
            self.skip_white_space();
            if self.peek()? != b',' {
                return None;
            }
        }
    }

    /// Reads the next member: quoted key and value; `None` at the end. The current character must be `{` or `,`.
    fn next_member(&mut self) -> Option<(&'a str, &'a str)> {
        if !matches!(self.peek()?, b'{' | b',') {
            return None;
        }
        let key = self.key()?;
        self.skip_white_space();
        let from = self.at;
        self.skip_value()?;
        let value = self.text.get(from..self.at)?;
        self.skip_white_space();
        Some((key, value))
    }

    /// Moves to an item of an array.
    fn item(&mut self, index: usize) -> Option<()> {
        self.at += 1;
        self.skip_white_space();
        if self.peek()? == b']' {
            return None;
        }
        for _ in 0..index {
            self.skip_value()?;
            self.skip_white_space();
            if self.peek()? != b',' {
                return None;
            }
            self.at += 1;
        }
        Some(())
    }

    fn skip_string(&mut self) -> Option<()> {
        if self.peek()? != b'"' {
            return None;
        }
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Some(());
                }
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
    }

    /// Skips the next value.
    fn skip_value(&mut self) -> Option<()> {
        self.skip_white_space();
        match self.peek()? {
            b'"' => self.skip_string(),
            b'{' | b'[' => self.skip_nested(),
            _ => {
                while let Some(byte) = self.peek()
                    && !matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r')
                {
                    self.at += 1;
                }
                Some(())
            }
        }
    }

    fn skip_nested(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek()? {
                b'"' => {
                    self.skip_string()?;
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some(());
            }
        }
    }
}

/// Returns true if a quoted name is this key.
fn names(quoted: &str, key: &str) -> bool {
    name_of(quoted) == key
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(keys: &[&str]) -> Vec<Step> {
        keys.iter().map(|key| Step::new(*key)).collect()
    }

    #[test]
    fn scan_finds_what_the_tree_has() {
        let text = r#" {"a" : [ 1 , {"b\n" : "x\"}" } , [ ] ] , "\u0061b": -1.5e3 , "0" : null } "#;
        for (keys, expected) in [
            (&["a", "0"][..], Some("1")),
            (&["a", "1", "b\n"], Some(r#""x\"}""#)),
            (&["a", "2"], Some("[ ]")),
            (&["a", "2", "0"], None),
            (&["a", "3"], None),
            (&["a", "x"], None),
            (&["ab"], Some("-1.5e3")),
            (&["0"], Some("null")),
            (&["ab", "c"], None),
            (&[], Some(text.trim())),
        ] {
            assert_eq!(find(text, &path(keys)), expected, "{keys:?}");
        }
        assert_eq!(find("{}", &path(&["a"])), None);
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i32>().prop_map(Into::into),
            "[a-c\"\\\\{}\\[\\], é]{0,4}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::hash_map("[a-c\"\\\\é0-2]{0,2}", inner, 0..5)
                    .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn scan_agrees_with_the_tree(
            value in any_json(),
            keys in prop::collection::vec("[a-c\"\\\\é0-2]{0,2}", 0..4),
            pretty: bool,
        ) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) };
            let text = text.unwrap();
            let tree = parse(&text).unwrap();
            let steps: Vec<_> = keys.iter().map(Step::new).collect();
            let found = find(&text, &steps).map(|part| parse(part).unwrap());
            prop_assert_eq!(found.as_ref(), tree.at(keys.iter().map(String::as_str)));
        }

        #[test]
        fn rubbish_never_panics(text in "[\\[\\]{}\",:0-9a-c\\\\ é]{0,24}", key in "[a-c0-2]") {
            let _ = find(&text, &[Step::new(key)]);
        }
    }
}
