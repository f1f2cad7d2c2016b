//! Reads the properties of an element and collects their faults.

use std::sync::Arc;

use isobar_model::error::Fault;
use isobar_model::json::{Json, RawJson};

use super::meaning::Meanings;
use crate::code::CheckTime;
use crate::expression::{Expression, Names};

/// Most faults that are reported of one specification.
const FAULTS_MAX: usize = 1_000;
/// Longest time in minutes in a design: a leap year.
pub(crate) const MINUTES_MAX: u32 = 366 * 24 * 60;
const MINUTE_MILLIS: f64 = 60_000.0;

/// Faults of a specification, each with its path.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    pub(crate) fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        if self.0.len() < FAULTS_MAX {
            self.0.push(Fault::new(path, message));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_vec(self) -> Vec<Fault> {
        self.0
    }
}

/// The names that all elements of a design refer to while they are read.
#[derive(Debug, Default)]
pub(crate) struct Scope {
    pub(crate) names: Names,
    /// Descriptions of keys by the storage elements.
    pub(crate) meanings: Meanings,
    /// Rest of the time limit of the design's code.
    pub(crate) code_time: CheckTime,
}

impl Scope {
    /// Returns the scope of a design without settings and storage elements.
    pub(crate) fn of(code_time: CheckTime) -> Self {
        let names = Names { is_stored: code_time.is_of_stored(), ..Names::default() };
        Self { names, meanings: Meanings::default(), code_time }
    }
}

/// The `properties` of one element, while they are read.
pub(crate) struct Properties<'p> {
    /// Name of the element.
    pub(crate) name: &'p Arc<str>,
    pub(crate) json: Option<&'p Json<'p>>,
    /// Path of the properties in the specification.
    pub(crate) path: String,
    pub(crate) scope: &'p Scope,
    pub(crate) faults: &'p mut Faults,
}

impl<'p> Properties<'p> {
    /// Returns a property; null counts as absent.
    pub(crate) fn get(&self, property: &str) -> Option<&'p Json<'p>> {
        self.json.and_then(|json| json.get(property)).filter(|value| !matches!(value, Json::Null))
    }

    pub(crate) fn fault(&mut self, property: &str, message: impl Into<String>) {
        self.faults.add(format!("{}.{property}", self.path), message);
    }

    /// Reads an optional expression.
    pub(crate) fn expression(&mut self, property: &str) -> Option<Expression> {
        self.compiled(property, self.get(property)?)
    }

    /// Compiles the expression at a place beneath the properties.
    pub(crate) fn compiled(&mut self, place: &str, value: &Json<'_>) -> Option<Expression> {
        match value {
            Json::Text(source) => match Expression::compile(source, &self.scope.names) {
                Ok(expression) => return Some(expression),
                Err(message) => self.fault(place, message),
            },
            _ => self.fault(place, "must be an expression, in a string"),
        }
        None
    }

    /// Reads a required expression; after a fault, returns a placeholder.
    pub(crate) fn required_expression(&mut self, property: &str) -> Expression {
        if self.get(property).is_none() {
            self.fault(property, "is required");
        }
        self.expression(property).unwrap_or_else(Expression::payload)
    }

    /// Reads a positive number.
    pub(crate) fn positive(&mut self, property: &str) -> Option<f64> {
        let number = self.get(property)?.as_f64().filter(|number| *number > 0.0);
        if number.is_none() {
            self.fault(property, "must be a positive number");
        }
        number
    }

    /// Reads a whole number from one to `most`.
    pub(crate) fn whole(&mut self, property: &str, most: u64) -> Option<u64> {
        let number = self.get(property)?.as_f64();
        let whole = number.filter(|number| number.fract() == 0.0 && (1.0..=most as f64).contains(number));
        if whole.is_none() {
            self.fault(property, format!("must be a whole number from 1 to {most}"));
        }
        whole.map(|whole| whole as u64)
    }

    /// Reads a whole number of minutes, at least one.
    pub(crate) fn minutes(&mut self, property: &str, most: u32) -> Option<u32> {
        let minutes = self.positive(property)?;
        if minutes.fract() == 0.0 && minutes <= f64::from(most) {
            return Some(minutes as u32);
        }
        self.fault(property, format!("must be a whole number, at most {most}"));
        None
    }

    /// Reads a required number of minutes, up to a year, in milliseconds; after a fault, returns a placeholder.
    pub(crate) fn required_span(&mut self, property: &str) -> i64 {
        if self.get(property).is_none() {
            self.fault(property, "is required");
        }
        let minutes = self.positive(property).unwrap_or(1.0);
        if minutes > f64::from(MINUTES_MAX) {
            self.fault(property, format!("must be at most {MINUTES_MAX}"));
        }
        ((minutes * MINUTE_MILLIS) as i64).max(1)
    }

    /// Reads one of several words; `default` if absent.
    pub(crate) fn word<T: Copy>(&mut self, property: &str, words: &[(&str, T)], default: T) -> T {
        let Some(value) = self.get(property) else { return default };
        let found = value.as_text().and_then(|text| words.iter().find(|(word, _)| *word == text));
        match found {
            Some((_, meaning)) => *meaning,
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                self.fault(property, format!("must be one of {}", known.join(", ")));
                default
            }
        }
    }

    /// Reads a property that is stored unchanged; null if absent. Otherwise `sound` must return true.
    pub(crate) fn kept(&mut self, property: &str, sound: impl Fn(&Json<'_>) -> bool, message: &str) -> RawJson {
        let value = self.get(property).unwrap_or(&Json::Null);
        if !matches!(value, Json::Null) && !sound(value) {
            self.fault(property, message);
        }
        RawJson::from(value)
    }
}
