//! Converts YAML to JSON, by the core schema of YAML 1.2: `yes` and `12:30` are texts, `0x1f` is a number.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};
use serde_json::{Map, Number, Value};

/// Deepest supported nesting.
const DEPTH_MAX: usize = 100;
/// Most values of a document, counting those of aliases each time.
const VALUES_MAX: usize = 1_000_000;

/// A value that was read.
#[derive(Clone)]
struct Read {
    value: Value,
    /// Depth of nested lists and maps.
    depth: usize,
    /// Number of values in it.
    values: usize,
}

/// A list or a map that is being read.
struct Open {
    anchor: usize,
    read: Read,
    /// Key of the next value.
    key: Option<String>,
}

impl Open {
    fn new(anchor: usize, value: Value) -> Self {
        Self { anchor, read: Read { value, depth: 1, values: 1 }, key: None }
    }
}

/// Reads the first document of a text; the error says what is wrong and where.
pub fn read(text: &str) -> Result<Value, String> {
    let mut open: Vec<Open> = Vec::new();
    let mut anchors: HashMap<usize, Read> = HashMap::new();
    let mut values = 0;
    for event in Parser::new_from_str(text) {
        let (event, _) = event.map_err(|fault| fault.to_string())?;
        let (anchor, read) = match event {
            Event::SequenceStart(anchor, _) => {
                open.push(Open::new(anchor, Value::Array(Vec::new())));
                continue;
            }
            Event::MappingStart(anchor, _) => {
                open.push(Open::new(anchor, Value::Object(Map::new())));
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let ended = open.pop().ok_or("ends what it has not begun")?;
                (ended.anchor, ended.read)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
                let value = if is_text { Value::String(text.into_owned()) } else { plain(&text) };
                (anchor, Read { value, depth: 0, values: 1 })
            }
            Event::Alias(anchor) => (0, anchors.get(&anchor).cloned().ok_or("has an alias of itself")?),
            Event::DocumentEnd => break,
            _ => continue,
        };
        if open.len() + read.depth > DEPTH_MAX {
            return Err(format!("is nested more than {DEPTH_MAX} deep"));
        }
        values += read.values;
        if values > VALUES_MAX {
            return Err(format!("has more than {VALUES_MAX} values"));
        }
        if anchor > 0 {
            anchors.insert(anchor, read.clone());
        }
        match open.last_mut() {
            None => return Ok(read.value),
            Some(around) => put(around, read),
        }
    }
    Ok(Value::Null)
}

/// Adds a value to the list or map that contains it.
fn put(around: &mut Open, read: Read) {
    let Read { value, depth, values } = read;
    around.read.depth = around.read.depth.max(depth + 1);
    around.read.values += values;
    match &mut around.read.value {
        Value::Array(items) => items.push(value),
        Value::Object(members) => match (around.key.take(), value) {
            (None, Value::String(key)) => around.key = Some(key),
            (None, key) => around.key = Some(key.to_string()),
            // Merged members never replace existing or later ones.
            (Some(key), Value::Object(merged)) if key == "<<" => {
                for (key, value) in merged {
                    members.entry(key).or_insert(value);
                }
            }
            (Some(key), value) => {
                members.insert(key, value);
            }
        },
        _ => {}
    }
}

/// Resolves an unquoted scalar.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        // JSON has no such numbers.
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "-.inf" | "-.Inf" | "-.INF" => return Value::Null,
        _ => {}
    }
    number(text).map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn number(text: &str) -> Option<Number> {
    for (prefix, radix) in [("0x", 16), ("0X", 16), ("0o", 8), ("0b", 2)] {
        if let Some(digits) = text.strip_prefix(prefix) {
            return u64::from_str_radix(digits, radix).ok().map(Number::from);
        }
    }
    // Rust also parses `inf` and `infinity`.
    if !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) {
        return None;
    }
    let whole = text.parse::<i64>().ok().map(Number::from);
    whole.or_else(|| text.parse::<f64>().ok().and_then(Number::from_f64))
}
