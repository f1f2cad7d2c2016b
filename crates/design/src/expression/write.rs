//! A value becomes JSON again.

use bytes::Bytes;
use isobar_model::json::{DEPTH_MAX, Json, Number, RawJson, write_string};
use isobar_model::time::Timestamp;
use rustc_hash::FxHashSet;

use super::time;
use super::value::{Computed, Problem, TEXT_BYTES_MAX, Value};

/// The JSON of a value. Times and durations become text; NaN and infinity have no JSON.
pub(crate) fn to_raw(value: &Value<'_>) -> Computed<RawJson> {
    let mut out = Vec::with_capacity(64);
    write(value, 0, &mut out)?;
    Ok(RawJson::trusted(Bytes::from(out)))
}

/// Refuses a number that JSON cannot write.
pub(crate) fn finite(value: &Value<'_>) -> Computed<()> {
    match value {
        Value::Double(double) if !double.is_finite() => {
            Err(Problem::new(format!("the result is {}, which JSON cannot write", spelled(*double))))
        }
        _ => Ok(()),
    }
}

fn spelled(double: f64) -> &'static str {
    if double.is_nan() { "NaN" } else { "infinite" }
}

fn write(value: &Value<'_>, depth: usize, out: &mut Vec<u8>) -> Computed<()> {
    if out.len() > TEXT_BYTES_MAX {
        return Err(Problem::new(format!("the value is larger than {TEXT_BYTES_MAX} bytes")));
    }
    if depth >= DEPTH_MAX && (value.is_list() || value.is_map()) {
        return Err(Problem::new(format!("the value is nested deeper than {DEPTH_MAX}")));
    }
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Bool(truth) => out.extend_from_slice(if *truth { b"true" } else { b"false" }),
        Value::Int(int) => out.extend_from_slice(int.to_string().as_bytes()),
        Value::Double(double) => {
            finite(value)?;
            let number = Number::from_f64(*double);
            out.extend_from_slice(number.as_ref().map_or("null", Number::text).as_bytes());
        }
        Value::Number(number) => out.extend_from_slice(number.text().as_bytes()),
        Value::Text(text) => write_string(text, out),
        Value::Built(text) => write_string(text, out),
        Value::Time(millis) => write_string(&Timestamp::from_millis(*millis).to_string(), out),
        Value::Duration(millis) => write_string(&time::duration_text(*millis), out),
        Value::Type(name) => write_string(name, out),
        Value::Array(_) | Value::List(_) => write_items(value, depth, out)?,
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (name.as_ref(), value));
            write_members(members, |value, out| write(&Value::from(value), depth + 1, out), out)?;
        }
        Value::Map(map) => write_map(&map.entries, depth, out)?,
    }
    Ok(())
}

fn write_items(list: &Value<'_>, depth: usize, out: &mut Vec<u8>) -> Computed<()> {
    out.push(b'[');
    let mut at = 0;
    while let Some(item) = list.item(at) {
        if at > 0 {
            out.push(b',');
        }
        write(&item, depth + 1, out)?;
        at += 1;
    }
    out.push(b']');
    Ok(())
}

fn write_members<V>(
    members: impl Iterator<Item = (impl AsRef<str>, V)>,
    mut write: impl FnMut(V, &mut Vec<u8>) -> Computed<()>,
    out: &mut Vec<u8>,
) -> Computed<()> {
    out.push(b'{');
    for (index, (name, value)) in members.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(name.as_ref(), out);
        out.push(b':');
        write(value, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// Keys that are no text become one, as JSON has no others; two keys must not become the same.
fn write_map(entries: &[(Value<'_>, Value<'_>)], depth: usize, out: &mut Vec<u8>) -> Computed<()> {
    if entries.iter().all(|(key, _)| key.as_text().is_some()) {
        let members = entries.iter().map(|(key, value)| (key.as_text().unwrap_or_default(), value));
        return write_members(members, |value, out| write(value, depth + 1, out), out);
    }
    let mut seen = FxHashSet::default();
    let mut named = Vec::with_capacity(entries.len());
    for (key, value) in entries {
        let name = key_text(key);
        if !seen.insert(name.clone()) {
            return Err(Problem::new(format!("two keys of a map are written '{name}'")));
        }
        named.push((name, value));
    }
    write_members(named.into_iter(), |value, out| write(value, depth + 1, out), out)
}

fn key_text(key: &Value<'_>) -> String {
    match key {
        Value::Bool(truth) => truth.to_string(),
        _ => match (key.as_text(), key.whole()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(int)) => int.to_string(),
            (None, None) => String::new(),
        },
    }
}

/// The tree of a value that was computed once and for all; none if JSON would lose something of it.
pub(crate) fn to_constant(value: &Value<'_>) -> Option<Json<'static>> {
    if !is_plain(value) {
        return None;
    }
    to_raw(value).ok().map(|raw| super::value::owned(&raw.tree()))
}

fn is_plain(value: &Value<'_>) -> bool {
    match value {
        Value::Time(_) | Value::Duration(_) | Value::Type(_) => false,
        Value::Double(double) => double.is_finite(),
        Value::List(list) => list.items.iter().all(is_plain),
        Value::Map(map) => map.entries.iter().all(|(key, value)| key.as_text().is_some() && is_plain(value)),
        _ => true,
    }
}
