//! Equality and order of JSON values (contract: Data).

use std::cmp::Ordering;

use super::{Json, compare_numbers};

/// Where a value stands when a list is sorted by it: numbers, text, booleans, everything else, missing.
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
    /// The rank of a value that may be missing.
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

/// The order of two values of one type; none when their types differ or have no order.
pub fn compare(left: &Json<'_>, right: &Json<'_>) -> Option<Ordering> {
    match (left, right) {
        (Json::Number(left), Json::Number(right)) => Some(compare_numbers(left, right)),
        (Json::Text(left), Json::Text(right)) => Some(left.cmp(right)),
        (Json::Bool(left), Json::Bool(right)) => Some(left.cmp(right)),
        _ => None,
    }
}

/// Whether two values are equal: same type, numbers by value, objects whatever the order of their members.
pub fn equal(left: &Json<'_>, right: &Json<'_>) -> bool {
    match (left, right) {
        (Json::Null, Json::Null) => true,
        (Json::Array(left), Json::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (Json::Object(left), Json::Object(members)) => {
            left.len() == members.len()
                && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| equal(value, other)))
        }
        _ => compare(left, right) == Some(Ordering::Equal),
    }
}
