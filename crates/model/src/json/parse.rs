//! A one-pass parser: well-formed (RFC 8259), bounded, without duplicate keys.

use std::borrow::Cow;

use super::names::Places;
use super::number::is_finite;
use super::{DEPTH_MAX, Json, Number};

/// White space between tokens (RFC 8259, 2).
pub(super) const WHITE_SPACE: [char; 4] = [' ', '\t', '\n', '\r'];
/// Longest excerpt of a number in a message, in characters.
const NUMBER_CHARS_SHOWN: usize = 40;

/// The reason why a text is refused as JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} at byte {at}")]
pub struct JsonFault {
    /// The fault, in words.
    pub what: String,
    /// Its position, in bytes from the start.
    pub at: usize,
}

impl JsonFault {
    pub(super) fn utf8(at: usize) -> Self {
        Self { what: "invalid UTF-8".to_owned(), at }
    }
}

/// Parses a whole text.
pub fn parse(text: &str) -> Result<Json<'_>, JsonFault> {
    let mut reader = Reader { text, bytes: text.as_bytes(), at: 0 };
    let value = reader.value(0)?;
    reader.skip_white_space();
    if reader.at < text.len() { Err(reader.fault("something follows the value")) } else { Ok(value) }
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn fault(&self, what: impl Into<String>) -> JsonFault {
        JsonFault { what: what.into(), at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_white_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// Reads what follows an item: returns true for `closing`, false for a comma.
    fn ends(&mut self, closing: u8) -> Result<bool, JsonFault> {
        self.skip_white_space();
        let next = self.peek();
        if next != Some(closing) && next != Some(b',') {
            return Err(self.fault(format!("expected ',' or '{}'", char::from(closing))));
        }
        self.at += 1;
        Ok(next == Some(closing))
    }

    fn value(&mut self, depth: usize) -> Result<Json<'a>, JsonFault> {
        self.skip_white_space();
        match self.peek() {
            Some(b'{' | b'[') if depth >= DEPTH_MAX => Err(self.fault(format!("nested deeper than {DEPTH_MAX}"))),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Json::Text),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(_) => Err(self.fault("expected a value")),
            None => Err(self.fault("the text ends before a value")),
        }
    }

    fn word(&mut self, word: &str, value: Json<'a>) -> Result<Json<'a>, JsonFault> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.fault("expected a value"));
        }
        self.at += word.len();
        Ok(value)
    }

    fn array(&mut self, depth: usize) -> Result<Json<'a>, JsonFault> {
        self.at += 1;
        self.skip_white_space();
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            if self.ends(b']')? {
                return Ok(Json::Array(items));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json<'a>, JsonFault> {
        self.at += 1;
        self.skip_white_space();
        let mut members: Vec<(Cow<'a, str>, Json<'a>)> = Vec::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Json::Object(members));
        }
        let mut places = Places::default();
        loop {
            self.skip_white_space();
            if self.peek() != Some(b'"') {
                return Err(self.fault("expected a key"));
            }
            let name = self.string()?;
            if !places.add(&members, &name) {
                let shown: String = name.chars().take(64).collect();
                return Err(self.fault(format!("duplicate key '{shown}'")));
            }
            self.skip_white_space();
            if self.peek() != Some(b':') {
                return Err(self.fault("expected ':'"));
            }
            self.at += 1;
            let value = self.value(depth + 1)?;
            members.push((name, value));
            if self.ends(b'}')? {
                return Ok(Json::Object(members));
            }
        }
    }

    fn digits(&mut self) -> Result<usize, JsonFault> {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == from { Err(self.fault("expected a digit")) } else { Ok(self.at - from) }
    }

    fn number(&mut self) -> Result<Json<'a>, JsonFault> {
        let from = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits()?;
        if leading_zero && whole > 1 {
            return Err(self.fault("a number may not begin with 0"));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        let mut may_overflow = whole > 300;
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
            may_overflow = true;
        }
        let text = &self.text[from..self.at];
        if may_overflow && !is_finite(text) {
            return Err(JsonFault {
                what: format!("the number {} is beyond the range of a double", shortened(text)),
                at: from,
            });
        }
        Ok(Json::Number(Number::written(text)))
    }

    fn string(&mut self) -> Result<Cow<'a, str>, JsonFault> {
        self.at += 1;
        let from = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    let text = &self.text[from..self.at];
                    self.at += 1;
                    return Ok(Cow::Borrowed(text));
                }
                Some(b'\\') => return self.escaped(from).map(Cow::Owned),
                Some(0..=0x1f) => return Err(self.fault("a control character in a string")),
                Some(_) => self.at += 1,
                None => return Err(self.fault("a string does not end")),
            }
        }
    }

    /// Reads the rest of a string that began at `from` and has an escape at the current position.
    fn escaped(&mut self, from: usize) -> Result<String, JsonFault> {
        let mut text = self.text[from..self.at].to_owned();
        let mut plain_from = self.at;
        loop {
            match self.peek() {
                Some(b'"') => {
                    text.push_str(&self.text[plain_from..self.at]);
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => {
                    text.push_str(&self.text[plain_from..self.at]);
                    self.at += 1;
                    text.push(self.escape()?);
                    plain_from = self.at;
                }
                Some(0..=0x1f) => return Err(self.fault("a control character in a string")),
                Some(_) => self.at += 1,
                None => return Err(self.fault("a string does not end")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, JsonFault> {
        let letter = self.peek().ok_or_else(|| self.fault("a string does not end"))?;
        let plain = match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return Err(self.fault("an unknown escape")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode_escape(&mut self) -> Result<char, JsonFault> {
        // Position of the backslash.
        let from = self.at - 1;
        let first = self.hex4()?;
        let half = || JsonFault { what: format!("\\u{first:04x} is half of a surrogate pair"), at: from };
        if !(0xd800..0xdc00).contains(&first) {
            return char::from_u32(first).ok_or_else(half);
        }
        if self.peek() != Some(b'\\') || self.bytes.get(self.at + 1) != Some(&b'u') {
            return Err(half());
        }
        self.at += 1;
        let second = self.hex4()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(half());
        }
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or_else(half)
    }

    fn hex4(&mut self) -> Result<u32, JsonFault> {
        let digits = self.bytes.get(self.at + 1..self.at + 5).ok_or_else(|| self.fault("a string does not end"))?;
        let value = digits.iter().try_fold(0, |sum, byte| char::from(*byte).to_digit(16).map(|digit| sum * 16 + digit));
        let value = value.ok_or_else(|| self.fault("expected four hexadecimal digits"))?;
        self.at += 5;
        Ok(value)
    }
}

/// Shortens a number for a message.
fn shortened(number: &str) -> Cow<'_, str> {
    match number.get(..NUMBER_CHARS_SHOWN) {
        Some(begin) if number.len() > NUMBER_CHARS_SHOWN => Cow::Owned(format!("{begin}…")),
        _ => Cow::Borrowed(number),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(tree: &Json<'_>) -> String {
        let mut out = Vec::new();
        tree.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_come_back_as_they_were_written() {
        for text in [
            "9007199254740993",
            "-0.1000000000000000055511151231257827",
            "1e300",
            "0",
            "123456789012345678901234567890",
        ] {
            assert_eq!(written(&parse(text).unwrap()), text);
        }
    }

    #[test]
    fn malformed_json_is_refused() {
        for bad in [
            "",
            " ",
            "{",
            "[1,]",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            "-",
            "+1",
            ".5",
            "1e",
            "1e999",
            "NaN",
            "nul",
            "\"",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\u{1}\"",
            "1 2",
            "{\"a\":1,\"a\":2}",
            "{\"a\":1,\"\\u0061\":2}",
            "[1 2]",
            "{\"a\" 1}",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fault_beyond_syntax_is_named() {
        let long = format!("-{}", "9".repeat(400));
        let shown = format!("the number -{}… is beyond the range of a double at byte 0", "9".repeat(39));
        for (text, message) in [
            ("1e400", "the number 1e400 is beyond the range of a double at byte 0"),
            (r#"{"a": -1.5E+309}"#, "the number -1.5E+309 is beyond the range of a double at byte 6"),
            (long.as_str(), shown.as_str()),
            (r#""\ud800""#, r"\ud800 is half of a surrogate pair at byte 1"),
            (r#"["x\uDC00"]"#, r"\udc00 is half of a surrogate pair at byte 3"),
            (r#""\ud83d\n""#, r"\ud83d is half of a surrogate pair at byte 1"),
            (r#""\ud83d\u0041""#, r"\ud83d is half of a surrogate pair at byte 1"),
            (r#""\ud83d\ud83d\ude00""#, r"\ud83d is half of a surrogate pair at byte 1"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message, "{text}");
        }
        assert_eq!(parse(r#""\uD83D\uDE00""#), Ok(Json::Text(Cow::Borrowed("😀"))));
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(&nested(DEPTH_MAX)).is_ok());
        assert!(parse(&nested(DEPTH_MAX + 1)).is_err());
        assert!(parse(&nested(1_000_000)).is_err());
    }

    #[test]
    fn duplicate_is_found_in_a_large_object() {
        let members: Vec<String> = (0..100).map(|n| format!("\"k{n}\":{n}")).collect();
        assert!(parse(&format!("{{{}}}", members.join(","))).is_ok());
        assert!(parse(&format!("{{{},\"k3\":0}}", members.join(","))).is_err());
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(Into::into),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(Into::into),
                prop::collection::hash_map(any::<String>(), inner, 0..20)
                    .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn every_document_survives(value in any_json()) {
            let text = serde_json::to_string(&value).unwrap();
            let tree = parse(&text).unwrap();
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
            prop_assert_eq!(read(&written(&tree)), read(&text));
        }

        #[test]
        fn rubbish_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = super::super::RawJson::check(bytes.into());
        }

        #[test]
        fn accepted_text_is_accepted_by_serde(text in "[\\[\\]{}\",:0-9a-z\\\\ .eE+-]{0,24}") {
            if parse(&text).is_ok() {
                prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok());
            }
        }
    }
}
