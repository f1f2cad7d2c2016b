//! Writes values as JSON.

use std::borrow::Cow;
use std::collections::HashSet;

use bytes::Bytes;
use isobar_model::json::{DEPTH_MAX, Json, Number, RawJson, write_string};
use isobar_model::time::Timestamp;

use super::time;
use crate::value::budget::Budget;
use crate::value::{Computed, Problem, TEXT_BYTES_MAX, Value, owned, shown};

/// Bytes of values and names that are written at most before they are charged; escaping makes up to six of one.
const PAID_AT_ONCE: usize = 1_024;

/// Items or members that are written for one unit, in addition to their bytes.
const VALUES_PER_UNIT: usize = 2;

/// Writes a value as JSON, charged as it is written. Times and durations become text; NaN and infinity are errors.
pub(crate) fn to_raw(value: &Value<'_>, budget: &Budget) -> Computed<RawJson> {
    let mut writer = Writer { out: Vec::with_capacity(64), paid: 0, budget };
    writer.write(value, 0)?;
    writer.pay(0)?;
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

/// JSON being written.
struct Writer<'b> {
    out: Vec<u8>,
    /// Bytes that were charged, of `out` and of the next text.
    paid: usize,
    budget: &'b Budget,
}

impl Writer<'_> {
    /// Charges for what was written, and for the next `next` bytes.
    fn pay(&mut self, next: usize) -> Computed<()> {
        let due = self.out.len() + next;
        self.budget.spend_bytes(due.saturating_sub(self.paid))?;
        self.paid = due;
        Ok(())
    }

    /// Charges before `next` bytes are written, if enough has accumulated.
    fn pay_ahead(&mut self, next: usize) -> Computed<()> {
        let due = (self.out.len() + next).saturating_sub(self.paid);
        if due > PAID_AT_ONCE { self.pay(next) } else { Ok(()) }
    }

    /// Writes a text, or a name.
    fn write_text(&mut self, text: &str) -> Computed<()> {
        self.pay_ahead(text.len())?;
        write_string(text, &mut self.out);
        Ok(())
    }

    fn write(&mut self, value: &Value<'_>, depth: usize) -> Computed<()> {
        if self.out.len() > TEXT_BYTES_MAX {
            return Err(Problem::new(format!("the value is larger than {TEXT_BYTES_MAX} bytes")));
        }
        self.pay_ahead(0)?;
        if depth >= DEPTH_MAX && (value.is_list() || value.is_map()) {
            return Err(Problem::new(format!("the value is nested deeper than {DEPTH_MAX}")));
        }
        self.budget.spend(value.len().unwrap_or(0) / VALUES_PER_UNIT)?;
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
            Value::Number(number) => {
                self.pay_ahead(number.text().len())?;
                self.out.extend_from_slice(number.text().as_bytes());
            }
            Value::Text(text) => self.write_text(text)?,
            Value::Built(text) => self.write_text(text)?,
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
        for (at, item) in list.items().enumerate() {
            if at > 0 {
                self.out.push(b',');
            }
            self.write(&item, depth + 1)?;
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
            self.write_text(name.as_ref())?;
            self.out.push(b':');
            self.write(&value, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    /// Writes a map. Other keys than texts become texts, as JSON requires; two keys must not become the same.
    fn write_map(&mut self, entries: &[(Value<'_>, Value<'_>)], depth: usize) -> Computed<()> {
        if entries.iter().all(|(key, _)| key.as_text().is_some()) {
            let members = entries.iter().map(|(key, value)| (key.as_text().unwrap_or_default(), value.clone()));
            return self.write_members(members, depth);
        }
        let mut named = Vec::new();
        let mut seen = HashSet::new();
        for (key, value) in entries {
            self.budget.spend_number(key)?;
            let name = key_text(key);
            // It is hashed.
            self.budget.spend_reading(name.len())?;
            named.push((name, value.clone()));
        }
        for (name, _) in &named {
            if !seen.insert(name.as_ref()) {
                return Err(Problem::new(format!("two keys of a map are written '{}'", shown(name))));
            }
        }
        self.write_members(named.iter().map(|(name, value)| (name, value.clone())), depth)
    }
}

fn key_text<'v>(key: &'v Value<'_>) -> Cow<'v, str> {
    match key {
        Value::Bool(truth) => Cow::Borrowed(if *truth { "true" } else { "false" }),
        _ => match (key.as_text(), key.whole()) {
            (Some(text), _) => Cow::Borrowed(text),
            (None, Some(int)) => Cow::Owned(int.to_string()),
            (None, None) => Cow::Borrowed(""),
        },
    }
}

/// Converts a computed value to a constant; `None` if JSON would lose information.
pub(crate) fn to_constant(value: &Value<'_>, budget: &Budget) -> Option<Json<'static>> {
    if !is_plain(value) {
        return None;
    }
    to_raw(value, budget).ok().map(|raw| owned(&raw.tree()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_charged_before_it_is_written() {
        let long = "x".repeat(200_000);
        let member = Value::map(vec![(Value::Text(&long), Value::Null)]).unwrap();
        let mixed = Value::map(vec![(Value::Int(1), Value::Null), (Value::Text(&long), Value::Null)]).unwrap();
        for value in [Value::Text(&long), member, mixed] {
            let budget = Budget::of_units(100);
            let mut writer = Writer { out: Vec::new(), paid: 0, budget: &budget };
            assert!(writer.write(&value, 0).and_then(|()| writer.pay(0)).is_err());
            assert!(writer.out.len() < 2 * PAID_AT_ONCE, "{} bytes", writer.out.len());
        }
    }
}
