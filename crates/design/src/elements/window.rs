//! `window`: an aggregate over the newest values, by count or by time, after every push (contract: The project design).

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use isobar_model::json::{Json, RawJson};

use super::context::{Passed, Run};
use super::graph::Link;
use super::{Ability, Element, Shape, properties::Properties};
use crate::expression::{Expression, finite};
use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Num, Problem, Value, built};

pub(crate) const SHAPE: Shape = Shape {
    name: "window",
    abilities: &[Ability { name: "push", arguments: &[] }],
    triggers: &["result"],
    read: Window::read,
};

/// Most values in a window; one by time drops its oldest early.
const ENTRIES_MAX: usize = 4_096;
/// Largest value that `first` and `last` store, in bytes of JSON.
const WINDOW_VALUE_BYTES_MAX: usize = 1_024;
/// Largest state, in bytes: it is written with every push.
const STATE_BYTES_MAX: usize = 128 << 10;

/// Aggregate function of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Mean,
    Min,
    Max,
    Sum,
    Count,
    First,
    Last,
}

const AGGREGATES: [(&str, Aggregate); 7] = [
    ("mean", Aggregate::Mean),
    ("min", Aggregate::Min),
    ("max", Aggregate::Max),
    ("sum", Aggregate::Sum),
    ("count", Aggregate::Count),
    ("first", Aggregate::First),
    ("last", Aggregate::Last),
];

/// Extent of a window, as a number of values or a time.
#[derive(Clone, Copy, Debug)]
enum Span {
    Count(usize),
    Millis(i64),
}

/// A window element. Its state is its entries, oldest first.
#[derive(Debug)]
pub(crate) struct Window {
    span: Span,
    aggregate: Aggregate,
    expression: Expression,
}

impl HeldBytes for Window {
    fn held_bytes(&self) -> usize {
        self.expression.held_bytes()
    }
}

/// An entry of a window. Format in the state: time of arrival (8 bytes, milliseconds), a byte for the type of its
/// value, value.
#[derive(Clone, Debug)]
struct WindowEntry {
    at: i64,
    kept: KeptValue,
}

#[derive(Clone, Debug)]
enum KeptValue {
    Int(i64),
    Double(f64),
    Json(Bytes),
    /// No value, for `count`.
    Nothing,
}

const INT: u8 = 0;
const DOUBLE: u8 = 1;
const JSON: u8 = 2;
const NOTHING: u8 = 3;

impl Window {
    fn read(properties: &mut Properties<'_>) -> Element {
        let span = match (properties.get("size"), properties.get("minutes")) {
            (None, Some(_)) => Some(Span::Millis(properties.required_span("minutes"))),
            (Some(size), None) => {
                let number = if let Json::Number(number) = size { number.as_i64() } else { None };
                let size =
                    number.and_then(|size| usize::try_from(size).ok()).filter(|size| (1..=ENTRIES_MAX).contains(size));
                if size.is_none() {
                    properties.fault("size", format!("must be a whole number, 1 to {ENTRIES_MAX}"));
                }
                size.map(Span::Count)
            }
            (None, None) => {
                properties.fault("size", "is required, or minutes");
                None
            }
            (Some(_), Some(_)) => {
                properties.fault("minutes", "stands in for size: give one of them");
                None
            }
        };
        let span = span.unwrap_or(Span::Count(1));
        if properties.get("aggregate").is_none() {
            properties.fault("aggregate", "is required");
        }
        let aggregate = properties.word("aggregate", &AGGREGATES, Aggregate::Mean);
        let expression = properties.expression("expression").unwrap_or_else(Expression::payload);
        Element::Window(Self { span, aggregate, expression })
    }

    pub(crate) fn push<'e>(&'e self, link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        let value = run.compute(&self.expression, incoming)?;
        let now = run.now().millis();
        let entry = WindowEntry { at: now, kept: self.kept_value(&value, run)? };
        let state = run.state(link.target).unwrap_or_default();
        // Each entry was paid for by the event that added it; reading it again is charged to this run.
        run.budget.spend_reading(state.len())?;
        let mut entries = read_state(state);
        entries.retain(|entry| self.takes(&entry.kept));
        // Times in the future are lowered to now: else such entries would stay until the clock gets there again.
        entries.iter_mut().for_each(|entry| entry.at = entry.at.min(now));
        entries.push(entry);
        self.slide(&mut entries);
        let result = self.result(&entries)?;
        finite(&result)?;
        run.remember(link.target, write_state(&entries))?;
        Ok(Passed { trigger: 0, value: result })
    }

    /// Returns true if the aggregate can use it; after a change of the design it may not.
    fn takes(&self, kept: &KeptValue) -> bool {
        match self.aggregate {
            Aggregate::Count => true,
            Aggregate::First | Aggregate::Last => matches!(kept, KeptValue::Json(_)),
            _ => matches!(kept, KeptValue::Int(_) | KeptValue::Double(_)),
        }
    }

    fn kept_value<'e>(&self, value: &Value<'e>, run: &Run<'e>) -> Computed<KeptValue> {
        match self.aggregate {
            Aggregate::Count => Ok(KeptValue::Nothing),
            Aggregate::First | Aggregate::Last => {
                let json = run.json(value)?;
                if json.bytes().len() > WINDOW_VALUE_BYTES_MAX {
                    return Err(Problem::new(format!(
                        "a window keeps no value larger than {WINDOW_VALUE_BYTES_MAX} bytes"
                    )));
                }
                // Copied: the payload may be a slice of a larger buffer, which the state would keep alive.
                Ok(KeptValue::Json(Bytes::copy_from_slice(json.bytes())))
            }
            _ => match value.number() {
                Some(Num::Int(int)) => Ok(KeptValue::Int(int)),
                Some(Num::Double(double)) => finite(value).map(|()| KeptValue::Double(double)),
                None => Err(Problem::new(format!("expected a number, got a value of type {}", value.kind()))),
            },
        }
    }

    /// Drops entries that no longer belong to the window.
    fn slide(&self, entries: &mut Vec<WindowEntry>) {
        let newest = entries.last().map_or(0, |entry| entry.at);
        if let Span::Millis(millis) = self.span {
            entries.retain(|entry| newest.saturating_sub(entry.at) < millis);
        }
        let most = match self.span {
            Span::Count(size) => size,
            Span::Millis(_) => ENTRIES_MAX,
        };
        let mut bytes: usize = entries.iter().map(WindowEntry::bytes).sum();
        let mut leaving = entries.len().saturating_sub(most);
        bytes -= entries.iter().take(leaving).map(WindowEntry::bytes).sum::<usize>();
        while bytes > STATE_BYTES_MAX && leaving + 1 < entries.len() {
            bytes -= entries.get(leaving).map_or(0, WindowEntry::bytes);
            leaving += 1;
        }
        entries.drain(..leaving);
    }

    fn result<'e>(&self, entries: &[WindowEntry]) -> Computed<Value<'e>> {
        let numbers = entries.iter().map(|entry| entry.kept.number());
        Ok(match self.aggregate {
            Aggregate::Count => Value::Int(entries.len() as i64),
            Aggregate::Mean => Value::Double(mean(entries)),
            Aggregate::Sum => Value::from(sum(entries)),
            Aggregate::Min => Value::from(numbers.reduce(|a, b| if less(b, a) { b } else { a }).unwrap_or(Num::Int(0))),
            Aggregate::Max => Value::from(numbers.reduce(|a, b| if less(a, b) { b } else { a }).unwrap_or(Num::Int(0))),
            Aggregate::First => first_or_last(entries.first())?,
            Aggregate::Last => first_or_last(entries.last())?,
        })
    }
}

fn first_or_last<'e>(entry: Option<&WindowEntry>) -> Computed<Value<'e>> {
    match entry.map(|entry| &entry.kept) {
        Some(KeptValue::Json(json)) => built(&RawJson::trusted(json.clone()).tree()),
        Some(kept) => Ok(Value::from(kept.number())),
        None => Ok(Value::Null),
    }
}

fn less(left: Num, right: Num) -> bool {
    match (left, right) {
        (Num::Int(left), Num::Int(right)) => left < right,
        _ => left.as_f64() < right.as_f64(),
    }
}

/// Adds the values; the sum of ints is an int if it fits.
fn sum(entries: &[WindowEntry]) -> Num {
    let ints = entries.iter().try_fold(0_i64, |sum, entry| match entry.kept.number() {
        Num::Int(int) => sum.checked_add(int),
        Num::Double(_) => None,
    });
    match ints {
        Some(sum) => Num::Int(sum),
        None => Num::Double(entries.iter().map(|entry| entry.kept.number().as_f64()).sum()),
    }
}

/// Computes the mean; large doubles are divided first, so that their sum does not overflow.
fn mean(entries: &[WindowEntry]) -> f64 {
    let count = entries.len().max(1) as f64;
    let sum = sum(entries).as_f64();
    if sum.is_finite() {
        return sum / count;
    }
    entries.iter().map(|entry| entry.kept.number().as_f64() / count).sum()
}

impl KeptValue {
    /// Returns its number; 0 for other values.
    fn number(&self) -> Num {
        match self {
            KeptValue::Int(int) => Num::Int(*int),
            KeptValue::Double(double) => Num::Double(*double),
            KeptValue::Json(_) | KeptValue::Nothing => Num::Int(0),
        }
    }
}

impl WindowEntry {
    /// Returns its size in the state, in bytes.
    fn bytes(&self) -> usize {
        let kept = match &self.kept {
            KeptValue::Int(_) | KeptValue::Double(_) => 8,
            KeptValue::Json(json) => 2 + json.len(),
            KeptValue::Nothing => 0,
        };
        9 + kept
    }
}

fn write_state(entries: &[WindowEntry]) -> Bytes {
    let mut state = BytesMut::with_capacity(entries.iter().map(WindowEntry::bytes).sum());
    for entry in entries {
        state.put_i64_le(entry.at);
        match &entry.kept {
            KeptValue::Int(int) => {
                state.put_u8(INT);
                state.put_i64_le(*int);
            }
            KeptValue::Double(double) => {
                state.put_u8(DOUBLE);
                state.put_f64_le(*double);
            }
            KeptValue::Json(json) => {
                state.put_u8(JSON);
                state.put_u16_le(json.len() as u16);
                state.put_slice(json);
            }
            KeptValue::Nothing => state.put_u8(NOTHING),
        }
    }
    state.freeze()
}

/// Reads the entries of a state. A state that cannot be read counts as empty: it may belong to an element type that had
/// the same name before the design was changed.
fn read_state(mut state: Bytes) -> Vec<WindowEntry> {
    let entries = std::iter::from_fn(|| (!state.is_empty()).then(|| read_entry(&mut state)));
    entries.collect::<Option<_>>().unwrap_or_default()
}

fn read_entry(state: &mut Bytes) -> Option<WindowEntry> {
    let at = state.try_get_i64_le().ok()?;
    let kept = match state.try_get_u8().ok()? {
        INT => KeptValue::Int(state.try_get_i64_le().ok()?),
        DOUBLE => KeptValue::Double(state.try_get_f64_le().ok()?),
        JSON => {
            let length = usize::from(state.try_get_u16_le().ok()?);
            KeptValue::Json((length <= state.len()).then(|| state.split_to(length))?)
        }
        NOTHING => KeptValue::Nothing,
        _ => return None,
    };
    Some(WindowEntry { at, kept })
}
