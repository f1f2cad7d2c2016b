//! A value becomes JSON again.

use std::collections::HashSet;

use bytes::Bytes;
use isobar_model::json::{DEPTH_MAX, Json, Number, RawJson, write_string};
use isobar_model::time::Timestamp;

use super::time;
use super::value::{Computed, Problem, TEXT_BYTES_MAX, Value};
use crate::budget::Budget;

/// Bytes that are written at most before they are paid for, beside the text of one value.
const PAID_AT_ONCE: usize = 1_024;

/// The JSON of a value, paid for as it is written. Times and durations become text; NaN and infinity have no JSON.
pub(crate) fn to_raw(value: &Value<'_>, budget: &Budget) -> Computed<RawJson> {
    let mut writer = Writer { out: Vec::with_capacity(64), paid: 0, budget };
    writer.write(value, 0)?;
    writer.pay()?;
    Ok(RawJson::trusted(Bytes::from(writer.out)))
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

/// JSON on its way.
struct Writer<'b> {
    out: Vec<u8>,
    /// Bytes that were paid for.
    paid: usize,
    budget: &'b Budget,
}

impl Writer<'_> {
    fn pay(&mut self) -> Computed<()> {
        self.budget.spend_bytes(self.out.len() - self.paid)?;
        self.paid = self.out.len();
        Ok(())
    }

    fn write(&mut self, value: &Value<'_>, depth: usize) -> Computed<()> {
        if self.out.len() > TEXT_BYTES_MAX {
            return Err(Problem::new(format!("the value is larger than {TEXT_BYTES_MAX} bytes")));
        }
        if self.out.len() - self.paid > PAID_AT_ONCE {
            self.pay()?;
        }
        if depth >= DEPTH_MAX && (value.is_list() || value.is_map()) {
            return Err(Problem::new(format!("the value is nested deeper than {DEPTH_MAX}")));
        }
        let out = &mut self.out;
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
            Value::Array(_) | Value::List(_) => self.write_items(value, depth)?,
            Value::Object(members) => {
                let members = members.iter().map(|(name, value)| (name.as_ref(), Value::from(value)));
                self.write_members(members, depth)?;
            }
            Value::Map(map) => self.write_map(&map.entries, depth)?,
        }
        Ok(())
    }

    fn write_items(&mut self, list: &Value<'_>, depth: usize) -> Computed<()> {
        self.out.push(b'[');
        let mut at = 0;
        while let Some(item) = list.item(at) {
            if at > 0 {
                self.out.push(b',');
            }
            self.write(&item, depth + 1)?;
            at += 1;
        }
        self.out.push(b']');
        Ok(())
    }

    fn write_members<'v>(
        &mut self,
        members: impl Iterator<Item = (impl AsRef<str>, Value<'v>)>,
        depth: usize,
    ) -> Computed<()> {
        self.out.push(b'{');
        for (index, (name, value)) in members.enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            write_string(name.as_ref(), &mut self.out);
            self.out.push(b':');
            self.write(&value, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Keys that are no text become one, as JSON has no others; two keys must not become the same.
    fn write_map(&mut self, entries: &[(Value<'_>, Value<'_>)], depth: usize) -> Computed<()> {
        if entries.iter().all(|(key, _)| key.as_text().is_some()) {
            let members = entries.iter().map(|(key, value)| (key.as_text().unwrap_or_default(), value.clone()));
            return self.write_members(members, depth);
        }
        self.budget.spend(entries.len())?;
        let mut seen = HashSet::new();
        let mut named = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let name = key_text(key);
            if !seen.insert(name.clone()) {
                return Err(Problem::new(format!("two keys of a map are written '{name}'")));
            }
            named.push((name, value.clone()));
        }
        self.write_members(named.into_iter(), depth)
    }
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
pub(crate) fn to_constant(value: &Value<'_>, budget: &Budget) -> Option<Json<'static>> {
    if !is_plain(value) {
        return None;
    }
    to_raw(value, budget).ok().map(|raw| super::value::owned(&raw.tree()))
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
