//! Arithmetic, comparison and equality. Ints and doubles mix freely (contract: The project design).

use std::cmp::Ordering;
use std::collections::HashMap;

use isobar_model::json::compare_numbers;

use super::time::{bounded_duration, moment};
use crate::value::budget::Budget;
use crate::value::{Computed, Num, Problem, TEXT_BYTES_MAX, Value, same_name};

/// An operator on two computed values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    Unequal,
    In,
}

impl Operator {
    /// Returns its symbol.
    fn sign(self) -> &'static str {
        match self {
            Operator::Add => "+",
            Operator::Subtract => "-",
            Operator::Multiply => "*",
            Operator::Divide => "/",
            Operator::Remainder => "%",
            Operator::Less => "<",
            Operator::LessOrEqual => "<=",
            Operator::Greater => ">",
            Operator::GreaterOrEqual => ">=",
            Operator::Equal => "==",
            Operator::Unequal => "!=",
            Operator::In => "in",
        }
    }
}

/// Applies an operator.
pub(crate) fn apply<'e>(
    operator: Operator,
    left: &Value<'e>,
    right: &Value<'e>,
    budget: &Budget,
) -> Computed<Value<'e>> {
    budget.spend_number(left)?;
    budget.spend_number(right)?;
    match operator {
        Operator::Equal => equal(left, right, budget).map(Value::Bool),
        Operator::Unequal => equal(left, right, budget).map(|equal| Value::Bool(!equal)),
        Operator::In => contained(left, right, budget).map(Value::Bool),
        Operator::Less => Ok(Value::Bool(order(operator, left, right, budget)? == Some(Ordering::Less))),
        Operator::Greater => Ok(Value::Bool(order(operator, left, right, budget)? == Some(Ordering::Greater))),
        Operator::LessOrEqual => Ok(Value::Bool(order(operator, left, right, budget)?.is_some_and(Ordering::is_le))),
        Operator::GreaterOrEqual => Ok(Value::Bool(order(operator, left, right, budget)?.is_some_and(Ordering::is_ge))),
        _ => match (left.number(), right.number()) {
            (Some(left), Some(right)) => arithmetic(operator, left, right).map(Value::from),
            _ => combine(operator, left, right, budget),
        },
    }
}

fn no_overload(operator: Operator, left: &Value<'_>, right: &Value<'_>) -> Problem {
    Problem::new(format!("no such overload: {} {} {}", left.kind(), operator.sign(), right.kind()))
}

fn arithmetic(operator: Operator, left: Num, right: Num) -> Computed<Num> {
    if let (Num::Int(left), Num::Int(right)) = (left, right) {
        if right == 0 && matches!(operator, Operator::Divide | Operator::Remainder) {
            return Err(Problem::new("division by zero"));
        }
        let result = match operator {
            Operator::Add => left.checked_add(right),
            Operator::Subtract => left.checked_sub(right),
            Operator::Multiply => left.checked_mul(right),
            Operator::Divide => left.checked_div(right),
            _ => left.checked_rem(right),
        };
        return result.map(Num::Int).ok_or_else(|| Problem::new("integer overflow"));
    }
    let (left, right) = (left.as_f64(), right.as_f64());
    Ok(Num::Double(match operator {
        Operator::Add => left + right,
        Operator::Subtract => left - right,
        Operator::Multiply => left * right,
        Operator::Divide => left / right,
        _ => left % right,
    }))
}

/// Adds or subtracts values that are not both numbers.
fn combine<'e>(operator: Operator, left: &Value<'e>, right: &Value<'e>, budget: &Budget) -> Computed<Value<'e>> {
    let plus = operator == Operator::Add;
    match (left, right) {
        (Value::Time(time), Value::Duration(by)) if plus => moment(time.checked_add(*by)).map(Value::Time),
        (Value::Duration(by), Value::Time(time)) if plus => moment(time.checked_add(*by)).map(Value::Time),
        (Value::Time(time), Value::Duration(by)) if operator == Operator::Subtract => {
            moment(time.checked_sub(*by)).map(Value::Time)
        }
        (Value::Time(left), Value::Time(right)) if operator == Operator::Subtract => {
            bounded_duration(left.checked_sub(*right)).map(Value::Duration)
        }
        (Value::Duration(left), Value::Duration(right)) if plus || operator == Operator::Subtract => {
            let sum = if plus { left.checked_add(*right) } else { left.checked_sub(*right) };
            bounded_duration(sum).map(Value::Duration)
        }
        _ if plus && left.is_list() && right.is_list() => join_lists(left, right, budget),
        _ => match (left.as_text(), right.as_text()) {
            (Some(left), Some(right)) if plus => join_texts(&[left, right], budget),
            _ => Err(no_overload(operator, left, right)),
        },
    }
}

/// Joins texts, within the limit of length.
pub(crate) fn join_texts<'e>(parts: &[&str], budget: &Budget) -> Computed<Value<'e>> {
    let length = parts.iter().map(|part| part.len()).sum();
    bounded_text(length)?;
    budget.spend_bytes(length)?;
    let mut text = String::with_capacity(length);
    parts.iter().for_each(|part| text.push_str(part));
    Ok(Value::text(text))
}

/// Refuses a text that would be too long, before it is built.
pub(crate) fn bounded_text(length: usize) -> Computed<()> {
    if length > TEXT_BYTES_MAX {
        return Err(Problem::new(format!("a text is longer than {TEXT_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn join_lists<'e>(left: &Value<'e>, right: &Value<'e>, budget: &Budget) -> Computed<Value<'e>> {
    budget.spend(left.len().unwrap_or(0) + right.len().unwrap_or(0))?;
    Value::list(left.items().chain(right.items()).collect())
}

/// Compares two numbers; `None` with NaN.
pub(crate) fn order_numbers(left: Num, right: Num) -> Option<Ordering> {
    match (left, right) {
        (Num::Int(left), Num::Int(right)) => Some(left.cmp(&right)),
        (Num::Double(left), Num::Double(right)) => left.partial_cmp(&right),
        (Num::Int(left), Num::Double(right)) => order_mixed(left, right),
        (Num::Double(left), Num::Int(right)) => order_mixed(right, left).map(Ordering::reverse),
    }
}

/// Compares exactly, although not every 64-bit integer is a double.
fn order_mixed(int: i64, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    if double >= 9_223_372_036_854_775_808.0 {
        return Some(Ordering::Less);
    }
    if double < -9_223_372_036_854_775_808.0 {
        return Some(Ordering::Greater);
    }
    let floor = double.floor();
    let order = int.cmp(&(floor as i64));
    // If the whole parts are equal, a fraction of the double decides.
    Some(if order == Ordering::Equal && double > floor { Ordering::Less } else { order })
}

fn order(operator: Operator, left: &Value<'_>, right: &Value<'_>, budget: &Budget) -> Computed<Option<Ordering>> {
    if let (Some(left), Some(right)) = (left.number(), right.number()) {
        return Ok(order_numbers(left, right));
    }
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Ok(Some(left.cmp(right))),
        (Value::Time(left), Value::Time(right)) | (Value::Duration(left), Value::Duration(right)) => {
            Ok(Some(left.cmp(right)))
        }
        _ => match (left.as_text(), right.as_text()) {
            (Some(left), Some(right)) => {
                budget.spend_bytes(left.len().min(right.len()))?;
                Ok(Some(left.cmp(right)))
            }
            _ => Err(no_overload(operator, left, right)),
        },
    }
}

/// Compares two values for equality; values of different types differ, but numbers are compared by value.
pub(crate) fn equal(left: &Value<'_>, right: &Value<'_>, budget: &Budget) -> Computed<bool> {
    budget.spend(1)?;
    budget.spend_number(left)?;
    budget.spend_number(right)?;
    if let (Some(number), Some(other)) = (left.number(), right.number()) {
        return Ok(match (left, right, number, other) {
            // Unchanged integers beyond 64 bits are compared by their digits.
            (Value::Number(left), Value::Number(right), Num::Double(_), Num::Double(_)) => {
                compare_numbers(left, right) == Ordering::Equal
            }
            _ => order_numbers(number, other) == Some(Ordering::Equal),
        });
    }
    match (left, right) {
        (Value::Null, Value::Null) => Ok(true),
        (Value::Bool(left), Value::Bool(right)) => Ok(left == right),
        (Value::Time(left), Value::Time(right)) | (Value::Duration(left), Value::Duration(right)) => Ok(left == right),
        (Value::Type(left), Value::Type(right)) => Ok(left == right),
        _ if left.is_list() && right.is_list() => equal_lists(left, right, budget),
        _ if left.is_map() && right.is_map() => equal_maps(left, right, budget),
        _ => match (left.as_text(), right.as_text()) {
            (Some(left), Some(right)) => {
                budget.spend_bytes(left.len().min(right.len()))?;
                Ok(left == right)
            }
            _ => Ok(false),
        },
    }
}

fn equal_lists(left: &Value<'_>, right: &Value<'_>, budget: &Budget) -> Computed<bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    for (left, right) in left.items().zip(right.items()) {
        if !equal(&left, &right, budget)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(left: &Value<'_>, right: &Value<'_>, budget: &Budget) -> Computed<bool> {
    if left.len() != right.len() {
        return Ok(false);
    }
    let (mut at, mut places) = (0, None);
    while let Some(key) = left.item(at) {
        // Usually both have the same order, from one program; from the first difference on, text keys are found by a
        // table.
        let other = match right.item(at) {
            Some(same) if places.is_none() && same_text(&same, &key, budget)? => value_at(right, at),
            _ => match key.as_text() {
                Some(key) => {
                    if places.is_none() {
                        places = Some(text_keys(right, budget)?);
                    }
                    budget.spend_reading(key.len())?;
                    let found = places.as_ref().and_then(|places| places.get(key));
                    found.and_then(|at| value_at(right, *at))
                }
                None => lookup(right, &key, budget)?,
            },
        };
        match (value_at(left, at), other) {
            (Some(mine), Some(other)) if equal(&mine, &other, budget)? => at += 1,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

fn same_text(left: &Value<'_>, right: &Value<'_>, budget: &Budget) -> Computed<bool> {
    match (left.as_text(), right.as_text()) {
        (Some(left), Some(right)) => same_name(left, right, budget),
        _ => Ok(false),
    }
}

/// Returns the positions of a map's entries by their text keys.
fn text_keys<'v>(map: &'v Value<'_>, budget: &Budget) -> Computed<HashMap<&'v str, usize>> {
    let mut places = HashMap::new();
    for at in 0..map.len().unwrap_or(0) {
        let key = match map {
            Value::Object(members) => members.get(at).map(|(name, _)| name.as_ref()),
            Value::Map(map) => map.entries.get(at).and_then(|(key, _)| key.as_text()),
            _ => None,
        };
        budget.spend_reading(key.map_or(0, str::len))?;
        places.extend(key.map(|key| (key, at)));
    }
    Ok(places)
}

fn value_at<'e>(map: &Value<'e>, at: usize) -> Option<Value<'e>> {
    match map {
        Value::Object(members) => members.get(at).map(|(_, value)| Value::from(value)),
        Value::Map(map) => map.entries.get(at).map(|(_, value)| value.clone()),
        _ => None,
    }
}

/// Finds the member of a map under a key of any type; `None` also if it is not a map.
pub(crate) fn lookup<'e>(map: &Value<'e>, key: &Value<'_>, budget: &Budget) -> Computed<Option<Value<'e>>> {
    budget.spend(1)?;
    if let Some(key) = key.as_text() {
        return map.member(key, budget);
    }
    let Value::Map(map) = map else { return Ok(None) };
    for (other, value) in &map.entries {
        if equal(other, key, budget)? {
            return Ok(Some(value.clone()));
        }
    }
    Ok(None)
}

/// Evaluates `in`: an item of a list, a key of a map.
fn contained(value: &Value<'_>, container: &Value<'_>, budget: &Budget) -> Computed<bool> {
    if container.is_map() {
        return lookup(container, value, budget).map(|found| found.is_some());
    }
    if !container.is_list() {
        return Err(no_overload(Operator::In, value, container));
    }
    for item in container.items() {
        if equal(value, &item, budget)? {
            return Ok(true);
        }
    }
    Ok(false)
}
