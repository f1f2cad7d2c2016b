//! Values in expressions: borrowed JSON where unchanged, built where computed. Beneath this module: everything that all
//! floors speak of, as the inputs of a run, its budget, and its effects.

pub(crate) mod budget;
pub(crate) mod effect;
pub(crate) mod failures;
pub(crate) mod held_bytes;
pub(crate) mod inputs;
pub(crate) mod setting;

use std::borrow::Cow;
use std::rc::Rc;

use isobar_model::json::{DEPTH_MAX, Json, Number};

use budget::Budget;

/// Most bytes of a text, and of JSON, that an expression may produce.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 20;
/// Members of a map that are compared for one unit.
const MEMBERS_PER_UNIT: usize = 8;
/// Most characters of a name in a message.
const NAME_CHARS_SHOWN: usize = 64;

/// Reason why an expression, or an element, has no result: a sentence for the event's errors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem(pub(crate) Cow<'static, str>);

impl Problem {
    pub(crate) fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self(message.into())
    }
}

/// Shortens a name for messages: a device may send one of a million letters.
pub(crate) fn shown(name: &str) -> Cow<'_, str> {
    match beginning(name, NAME_CHARS_SHOWN) {
        begin if begin.len() < name.len() => Cow::Owned(format!("{begin}…")),
        whole => Cow::Borrowed(whole),
    }
}

/// Returns the first `chars` characters of a text.
pub(crate) fn beginning(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}

/// Result of a computation.
pub(crate) type Computed<T> = Result<T, Problem>;

/// A value. Cloning is cheap: large parts are shared.
#[derive(Clone, Debug)]
pub(crate) enum Value<'e> {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    /// A number as it was sent; its text is kept until it is used in a calculation.
    Number(&'e Number<'e>),
    Text(&'e str),
    Built(Rc<str>),
    Array(&'e [Json<'e>]),
    Object(&'e [(Cow<'e, str>, Json<'e>)]),
    List(Rc<List<'e>>),
    Map(Rc<Map<'e>>),
    /// Milliseconds since the epoch.
    Time(i64),
    /// Milliseconds.
    Duration(i64),
    Type(&'static str),
}

/// A list that an expression built.
#[derive(Debug)]
pub(crate) struct List<'e> {
    pub(crate) items: Vec<Value<'e>>,
    depth: usize,
}

/// A map that an expression built. Keys are unique texts, ints or booleans.
#[derive(Debug)]
pub(crate) struct Map<'e> {
    pub(crate) entries: Vec<(Value<'e>, Value<'e>)>,
    depth: usize,
}

/// A number in a calculation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Num {
    Int(i64),
    Double(f64),
}

impl Num {
    pub(crate) fn as_f64(self) -> f64 {
        match self {
            Num::Int(int) => int as f64,
            Num::Double(double) => double,
        }
    }
}

impl<'e> From<&'e Json<'e>> for Value<'e> {
    fn from(json: &'e Json<'e>) -> Self {
        match json {
            Json::Null => Value::Null,
            Json::Bool(truth) => Value::Bool(*truth),
            Json::Number(number) => Value::Number(number),
            Json::Text(text) => Value::Text(text),
            Json::Array(items) => Value::Array(items),
            Json::Object(members) => Value::Object(members),
        }
    }
}

impl From<Num> for Value<'_> {
    fn from(number: Num) -> Self {
        match number {
            Num::Int(int) => Value::Int(int),
            Num::Double(double) => Value::Double(double),
        }
    }
}

fn deeper<'v, 'e: 'v>(values: impl Iterator<Item = &'v Value<'e>>) -> Computed<usize> {
    let depth = 1 + values.map(Value::depth).max().unwrap_or(0);
    if depth > DEPTH_MAX {
        return Err(Problem::new(format!("the value is nested deeper than {DEPTH_MAX}")));
    }
    Ok(depth)
}

impl<'e> Value<'e> {
    /// Makes a text.
    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Value::Built(Rc::from(text.as_ref()))
    }

    /// Makes a list, within the limit of nesting.
    pub(crate) fn list(items: Vec<Value<'e>>) -> Computed<Self> {
        let depth = deeper(items.iter())?;
        Ok(Value::List(Rc::new(List { items, depth })))
    }

    /// Makes a map, within the limit of nesting. Its keys must differ.
    pub(crate) fn map(entries: Vec<(Value<'e>, Value<'e>)>) -> Computed<Self> {
        let depth = deeper(entries.iter().map(|(_, value)| value))?;
        Ok(Value::Map(Rc::new(Map { entries, depth })))
    }

    /// Returns the depth of its built part.
    fn depth(&self) -> usize {
        match self {
            Value::List(list) => list.depth,
            Value::Map(map) => map.depth,
            _ => 0,
        }
    }

    /// Returns its type's name in CEL.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "null_type",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::Double(_) => "double",
            Value::Number(number) => match number.as_i64() {
                Some(_) => "int",
                None => "double",
            },
            Value::Text(_) | Value::Built(_) => "string",
            Value::Array(_) | Value::List(_) => "list",
            Value::Object(_) | Value::Map(_) => "map",
            Value::Time(_) => "timestamp",
            Value::Duration(_) => "duration",
            Value::Type(_) => "type",
        }
    }

    /// Returns its number. An integer beyond 64 bits becomes a double.
    pub(crate) fn number(&self) -> Option<Num> {
        match self {
            Value::Int(int) => Some(Num::Int(*int)),
            Value::Double(double) => Some(Num::Double(*double)),
            Value::Number(number) => Some(match number.as_i64() {
                Some(int) => Num::Int(int),
                None => Num::Double(number.as_f64()),
            }),
            _ => None,
        }
    }

    /// Returns its whole number: an int, or a double without a fraction.
    pub(crate) fn whole(&self) -> Option<i64> {
        match self.number()? {
            Num::Int(int) => Some(int),
            Num::Double(double) => whole(double),
        }
    }

    /// Returns its text.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(text) => Some(text),
            Value::Built(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number of items or members; `None` if it is neither a list nor a map.
    pub(crate) fn len(&self) -> Option<usize> {
        match self {
            Value::Array(items) => Some(items.len()),
            Value::List(list) => Some(list.items.len()),
            Value::Object(members) => Some(members.len()),
            Value::Map(map) => Some(map.entries.len()),
            _ => None,
        }
    }

    /// Returns an item of a list, or a key of a map, by position.
    pub(crate) fn item(&self, at: usize) -> Option<Value<'e>> {
        match self {
            Value::Array(items) => items.get(at).map(Value::from),
            Value::List(list) => list.items.get(at).cloned(),
            Value::Object(members) => members.get(at).map(|(name, _)| Value::Text(name)),
            Value::Map(map) => map.entries.get(at).map(|(key, _)| key.clone()),
            _ => None,
        }
    }

    /// Returns the items of a list, or the keys of a map, in order.
    pub(crate) fn items(&self) -> impl Iterator<Item = Value<'e>> {
        (0..self.len().unwrap_or(0)).filter_map(|at| self.item(at))
    }

    /// Returns true for a list.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Value::Array(_) | Value::List(_))
    }

    /// Returns true for a map.
    pub(crate) fn is_map(&self) -> bool {
        matches!(self, Value::Object(_) | Value::Map(_))
    }

    /// Finds the member of a map by a linear search; `None` also if it is not a map.
    pub(crate) fn member(&self, key: &str, budget: &Budget) -> Computed<Option<Value<'e>>> {
        budget.spend(self.len().unwrap_or(0) / MEMBERS_PER_UNIT)?;
        let is_it = |name: &str| same_name(name, key, budget);
        match self {
            Value::Object(members) => {
                for (name, value) in *members {
                    if is_it(name)? {
                        return Ok(Some(Value::from(value)));
                    }
                }
            }
            Value::Map(map) => {
                for (name, value) in &map.entries {
                    if name.as_text().map_or(Ok(false), is_it)? {
                        return Ok(Some(value.clone()));
                    }
                }
            }
            _ => {}
        }
        Ok(None)
    }
}

/// Compares two names; long ones are charged by their bytes.
pub(crate) fn same_name(left: &str, right: &str, budget: &Budget) -> Computed<bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    budget.spend_name(left)?;
    Ok(left == right)
}

/// Returns a double as an integer, if it has no fraction and fits.
pub(crate) fn whole(double: f64) -> Option<i64> {
    // 2^63 is exact as a double; every double below it that is whole fits.
    let fits = double.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&double);
    fits.then_some(double as i64)
}

/// Copies JSON to a value that borrows nothing.
pub(crate) fn built<'e>(json: &Json<'_>) -> Computed<Value<'e>> {
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(truth) => Value::Bool(*truth),
        Json::Number(number) => match number.as_i64() {
            Some(int) => Value::Int(int),
            None => Value::Double(number.as_f64()),
        },
        Json::Text(text) => Value::text(text),
        Json::Array(items) => Value::list(items.iter().map(built).collect::<Computed<_>>()?)?,
        Json::Object(members) => {
            let entries = members.iter().map(|(name, value)| Ok((Value::text(name), built(value)?)));
            Value::map(entries.collect::<Computed<_>>()?)?
        }
    })
}

/// Copies JSON to a tree that borrows nothing.
pub(crate) fn owned(json: &Json<'_>) -> Json<'static> {
    match json {
        Json::Null => Json::Null,
        Json::Bool(truth) => Json::Bool(*truth),
        Json::Number(number) => Json::Number(number.clone().into_owned()),
        Json::Text(text) => Json::Text(Cow::Owned(text.clone().into_owned())),
        Json::Array(items) => Json::Array(items.iter().map(owned).collect()),
        Json::Object(members) => Json::Object(
            members.iter().map(|(name, value)| (Cow::Owned(name.clone().into_owned()), owned(value))).collect(),
        ),
    }
}
