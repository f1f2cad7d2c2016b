//! JSON from devices: checked once, stored as it was sent, read without copying.
//!
//! Payloads keep their text, so that 64-bit integers and long decimals come back as they were sent. [`Json`] is the
//! tree over that text; numbers stay text until somebody calculates with them.

mod fingerprint;
mod merge;
mod names;
mod number;
mod order;
mod parse;
mod parts;
mod patch;
mod scan;

use std::borrow::Cow;

use bytes::Bytes;

pub use fingerprint::{FINGERPRINT_BYTES, fingerprint};
pub use merge::{LAST_BYTES_MAX, LastKept};
pub use number::{Number, compare_numbers};
pub use order::{Rank, compare, equal};
pub use parse::{JsonFault, parse};
pub use parts::{member_bytes, with_members};
pub use patch::merge_patch;
pub use scan::{Step, find, number};

/// Deepest nesting of arrays and objects in a payload.
pub const DEPTH_MAX: usize = 64;

/// A checked JSON text: UTF-8, well-formed, no duplicate keys, at most [`DEPTH_MAX`] deep, no white space around it.
/// Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Bytes);

impl RawJson {
    /// Checks a text.
    pub fn check(text: Bytes) -> Result<Self, JsonFault> {
        Self::read(&text).map(|(raw, _)| raw)
    }

    /// Checks a text, and returns the tree built by the check too.
    pub fn read(text: &Bytes) -> Result<(Self, Json<'_>), JsonFault> {
        let source = std::str::from_utf8(text).map_err(|error| JsonFault::utf8(error.valid_up_to()))?;
        let tree = parse(source)?;
        Ok((Self(text.slice_ref(source.trim_matches(parse::WHITE_SPACE).as_bytes())), tree))
    }

    /// Wraps bytes that were checked before they were stored.
    pub fn trusted(text: Bytes) -> Self {
        Self(text)
    }

    /// Returns the text's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text as shared bytes.
    pub fn shared(&self) -> Bytes {
        self.0.clone()
    }

    /// Returns the text.
    pub fn text(&self) -> &str {
        // Valid since the check; if a store returns broken bytes, null is better than a panic.
        std::str::from_utf8(&self.0).unwrap_or("null")
    }

    /// Returns the tree over the text.
    pub fn tree(&self) -> Json<'_> {
        parse(self.text()).unwrap_or(Json::Null)
    }
}

impl std::fmt::Debug for RawJson {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.text())
    }
}

impl From<&Json<'_>> for RawJson {
    fn from(tree: &Json<'_>) -> Self {
        let mut text = Vec::with_capacity(64);
        tree.write(&mut text);
        Self(text.into())
    }
}

/// A JSON value that borrows from its text. Objects keep their order and have no duplicate keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Json<'a> {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// A number, as it was written.
    Number(Number<'a>),
    /// A string, unescaped.
    Text(Cow<'a, str>),
    /// An array.
    Array(Vec<Json<'a>>),
    /// An object.
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// Returns the member of an object.
    pub fn get(&self, key: &str) -> Option<&Json<'a>> {
        match self {
            Json::Object(members) => members.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    /// Returns the value at a path of keys; a numeric key also indexes an array.
    pub fn at<'p>(&self, path: impl IntoIterator<Item = &'p str>) -> Option<&Json<'a>> {
        path.into_iter().try_fold(self, |value, key| match value {
            Json::Array(items) => key.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => value.get(key),
        })
    }

    /// Returns the text of a string.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the text of a string, number or boolean; numbers as they were written.
    pub fn scalar_text(&self) -> Option<Cow<'_, str>> {
        match self {
            Json::Text(text) => Some(Cow::Borrowed(text)),
            Json::Number(number) => Some(Cow::Borrowed(number.text())),
            Json::Bool(value) => Some(Cow::Borrowed(if *value { "true" } else { "false" })),
            Json::Null | Json::Array(_) | Json::Object(_) => None,
        }
    }

    /// Returns the value of a boolean.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Json::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the items of an array.
    pub fn as_array(&self) -> Option<&[Json<'a>]> {
        match self {
            Json::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the value of a number.
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Json::Number(number) => Some(number.as_f64()),
            _ => None,
        }
    }

    /// Returns the name of its type, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "number",
            Json::Text(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        }
    }

    /// Writes the value as compact JSON; numbers as they were written.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Json::Null => out.extend_from_slice(b"null"),
            Json::Bool(true) => out.extend_from_slice(b"true"),
            Json::Bool(false) => out.extend_from_slice(b"false"),
            Json::Number(number) => out.extend_from_slice(number.text().as_bytes()),
            Json::Text(text) => write_string(text, out),
            Json::Array(items) => {
                out.push(b'[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    item.write(out);
                }
                out.push(b']');
            }
            Json::Object(members) => {
                out.push(b'{');
                for (index, (name, value)) in members.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    write_string(name, out);
                    out.push(b':');
                    value.write(out);
                }
                out.push(b'}');
            }
        }
    }
}

/// Writes a JSON string with its quotes.
pub fn write_string(text: &str, out: &mut Vec<u8>) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        let short = match byte {
            b'"' => b'"',
            b'\\' => b'\\',
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            0..=0x1f => 0,
            _ => continue,
        };
        out.extend_from_slice(&text.as_bytes()[plain_from..at]);
        plain_from = at + 1;
        if short == 0 {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
        } else {
            out.extend_from_slice(&[b'\\', short]);
        }
    }
    out.extend_from_slice(&text.as_bytes()[plain_from..]);
    out.push(b'"');
}
