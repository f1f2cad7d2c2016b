//! Equality and order of JSON values (contract: Data).

use std::borrow::Cow;
use std::cmp::Ordering;

use super::names::{Places, same};
use super::{Json, compare_numbers};

/// Position of a value's type in a sorted list: numbers, text, booleans, others, missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Numbers come first.
    Number,
    /// Then text.
    Text,
    /// Then booleans.
    Bool,
    /// Then null, arrays and objects, which are equal to each other.
    Other,
    /// Missing is last in either direction.
    Missing,
}

impl Rank {
    /// Returns the rank of a value that may be missing.
    pub fn of(value: Option<&Json<'_>>) -> Rank {
        match value {
            Some(Json::Number(_)) => Rank::Number,
            Some(Json::Text(_)) => Rank::Text,
            Some(Json::Bool(_)) => Rank::Bool,
            Some(_) => Rank::Other,
            None => Rank::Missing,
        }
    }
}

/// Orders two values of one type; `None` if the types differ or have no order.
pub fn compare(left: &Json<'_>, right: &Json<'_>) -> Option<Ordering> {
    match (left, right) {
        (Json::Number(left), Json::Number(right)) => Some(compare_numbers(left, right)),
        (Json::Text(left), Json::Text(right)) => Some(left.cmp(right)),
        (Json::Bool(left), Json::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

/// Returns true if two values are equal: same type, numbers by value, objects in any order of members. The work is
/// linear in their size.
pub fn equal(left: &Json<'_>, right: &Json<'_>) -> bool {
    match (left, right) {
        (Json::Null, Json::Null) => true,
        (Json::Array(left), Json::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Json::Object(left), Json::Object(right)) => equal_objects(left, right),
        _ => compare(left, right) == Some(Ordering::Equal),
    }
}

type Members<'a> = [(Cow<'a, str>, Json<'a>)];

fn equal_objects(left: &Members<'_>, right: &Members<'_>) -> bool {
    if left.len() != right.len() {
        return false;
    }
    // Mostly one program wrote both, in one order.
    let in_order = left.iter().zip(right).take_while(|((name, _), (other, _))| same(name, other)).count();
    let (left, rest) = left.split_at(in_order);
    let (right, others) = right.split_at(in_order);
    let places = Places::of(others);
    left.iter().zip(right).all(|((_, value), (_, other))| equal(value, other))
        && rest.iter().all(|(name, value)| {
            let found = places.find(others, name).and_then(|at| others.get(at));
            found.is_some_and(|(_, other)| equal(value, other))
        })
}
