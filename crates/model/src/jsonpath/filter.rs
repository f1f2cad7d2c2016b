//! Evaluation of filters.

use super::evaluate::Evaluation;
use super::regexp::Pattern;
use super::{Comparable, Comparison, Exhausted, Logical, Query};
use crate::json::{Json, Number, compare_numbers};

type Result<T> = std::result::Result<T, Exhausted>;

/// Bytes of text that are compared for one step.
const BYTES_A_STEP: usize = 64;

/// The value of a comparable.
#[derive(Clone, Copy)]
enum Value<'x> {
    Nothing,
    Node(&'x Json<'x>),
    /// A number returned by a function.
    Count(usize),
}

impl<'v> Evaluation<'v, '_> {
    /// Returns true if the filter holds for the node.
    pub fn holds(&mut self, filter: &Logical, node: &'v Json<'v>) -> Result<bool> {
        self.steps.take(1)?;
        match filter {
            Logical::Any(terms) => terms.iter().try_fold(false, |held, term| Ok(held || self.holds(term, node)?)),
            Logical::All(terms) => terms.iter().try_fold(true, |held, term| Ok(held && self.holds(term, node)?)),
            Logical::Not(term) => Ok(!self.holds(term, node)?),
            Logical::Exists(query) => Ok(!self.query(query, node)?.is_empty()),
            Logical::Compared(left, comparison, right) => {
                let (left, right) = (self.value(left, node)?, self.value(right, node)?);
                self.compares(left, *comparison, right)
            }
            Logical::Matches(text, pattern) => self.matches(text, pattern, node),
        }
    }

    fn query(&mut self, query: &Query, node: &'v Json<'v>) -> Result<Vec<&'v Json<'v>>> {
        let from = if query.absolute { self.root } else { node };
        self.nodes(&query.segments, from)
    }

    /// Returns the only node of a query, or nothing if there is none or more than one.
    fn only<'x>(&mut self, query: &Query, node: &'v Json<'v>) -> Result<Value<'x>>
    where
        'v: 'x,
    {
        Ok(match self.query(query, node)?[..] {
            [only] => Value::Node(only),
            _ => Value::Nothing,
        })
    }

    fn value<'x>(&mut self, comparable: &'x Comparable, node: &'v Json<'v>) -> Result<Value<'x>>
    where
        'v: 'x,
    {
        match comparable {
            Comparable::Literal(literal) => Ok(Value::Node(literal)),
            Comparable::Query(query) | Comparable::Value(query) => self.only(query, node),
            Comparable::Count(query) => Ok(Value::Count(self.query(query, node)?.len())),
            Comparable::Length(of) => match self.value(of, node)? {
                Value::Node(Json::Text(text)) => {
                    self.steps.take(text.len() / BYTES_A_STEP)?;
                    Ok(Value::Count(text.chars().count()))
                }
                Value::Node(Json::Array(items)) => Ok(Value::Count(items.len())),
                Value::Node(Json::Object(members)) => Ok(Value::Count(members.len())),
                _ => Ok(Value::Nothing),
            },
        }
    }

    /// Compares as RFC 9535, 2.3.5.2.2: only numbers and texts have an order.
    fn compares(&mut self, left: Value<'_>, comparison: Comparison, right: Value<'_>) -> Result<bool> {
        match comparison {
            Comparison::Equal => self.equals(left, right),
            Comparison::Unequal => Ok(!self.equals(left, right)?),
            Comparison::Less => Ok(is_less(left, right)),
            Comparison::Greater => Ok(is_less(right, left)),
            Comparison::LessOrEqual => Ok(is_less(left, right) || self.equals(left, right)?),
            Comparison::GreaterOrEqual => Ok(is_less(right, left) || self.equals(left, right)?),
        }
    }

    fn equals(&mut self, left: Value<'_>, right: Value<'_>) -> Result<bool> {
        match (left, right) {
            (Value::Nothing, Value::Nothing) => Ok(true),
            (Value::Node(left), Value::Node(right)) => self.same(left, right),
            (Value::Nothing, _) | (_, Value::Nothing) => Ok(false),
            (Value::Count(_), _) | (_, Value::Count(_)) => {
                Ok(number(left).zip(number(right)).is_some_and(|(left, right)| left == right))
            }
        }
    }

    /// Compares like `json::equal`, and takes steps for what is compared.
    fn same(&mut self, left: &Json<'_>, right: &Json<'_>) -> Result<bool> {
        self.steps.take(1)?;
        match (left, right) {
            (Json::Null, Json::Null) => Ok(true),
            (Json::Bool(left), Json::Bool(right)) => Ok(left == right),
            (Json::Number(left), Json::Number(right)) => Ok(left == right),
            (Json::Text(left), Json::Text(right)) => {
                self.steps.take(left.len().min(right.len()) / BYTES_A_STEP)?;
                Ok(left == right)
            }
            (Json::Array(left), Json::Array(right)) => {
                let pairs = || left.iter().zip(right);
                let same = left.len() == right.len();
                pairs().try_fold(same, |same, (left, right)| Ok(same && self.same(left, right)?))
            }
            (Json::Object(left), Json::Object(members)) => {
                let same = left.len() == members.len();
                left.iter().try_fold(same, |same, (name, value)| {
                    if !same {
                        return Ok(false);
                    }
                    self.steps.take(members.len() / super::evaluate::NAMES_A_STEP)?;
                    right.get(name).map_or(Ok(false), |other| self.same(value, other))
                })
            }
            _ => Ok(false),
        }
    }

    fn matches(&mut self, text: &Comparable, pattern: &Pattern, node: &'v Json<'v>) -> Result<bool> {
        let (text, found) = match (self.value(text, node)?, self.value(pattern.comparable(), node)?) {
            (Value::Node(Json::Text(text)), Value::Node(Json::Text(found))) => (text, found),
            _ => return Ok(false),
        };
        self.steps.take(pattern.price(text, found))?;
        Ok(pattern.is_in(text, found))
    }
}

fn number<'x>(value: Value<'x>) -> Option<Number<'x>> {
    match value {
        Value::Count(count) => Some(Number::from(i64::try_from(count).unwrap_or(i64::MAX))),
        Value::Node(Json::Number(number)) => Some(number.clone()),
        _ => None,
    }
}

fn is_less(left: Value<'_>, right: Value<'_>) -> bool {
    match (left, right) {
        (Value::Node(Json::Text(left)), Value::Node(Json::Text(right))) => left < right,
        _ => number(left).zip(number(right)).is_some_and(|(left, right)| compare_numbers(&left, &right).is_lt()),
    }
}
