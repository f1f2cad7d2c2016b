//! Device settings as a design declares them (contract: Settings; The project design).

use std::sync::Arc;

use isobar_model::device::Location;
use isobar_model::json::{Json, Number, RawJson, compare_numbers};

use super::held_bytes::HeldBytes;

/// Type of a setting's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum InputType {
    /// A string.
    #[default]
    Text,
    /// A number, optionally within bounds.
    Number,
    /// A boolean.
    Toggle,
    /// `{latitude, longitude}`: the place of the device.
    Geolocation,
}

impl InputType {
    /// Every input type.
    pub const ALL: [InputType; 4] = [InputType::Text, InputType::Number, InputType::Toggle, InputType::Geolocation];

    /// Returns its name in designs and in the API.
    pub const fn name(self) -> &'static str {
        match self {
            InputType::Text => "text",
            InputType::Number => "number",
            InputType::Toggle => "toggle",
            InputType::Geolocation => "geolocation",
        }
    }
}

/// A device setting as the design declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingDefinition {
    /// Name: that of its element.
    pub name: Arc<str>,
    /// Title for users: a text, an object of texts by locale, or null.
    pub title: RawJson,
    /// Description for users: a text, an object of texts by locale, or null.
    pub description: RawJson,
    /// Type of its value.
    pub input_type: InputType,
    /// Properties of its input: `min` and `max` of a number, and whatever clients store there.
    pub input_type_properties: RawJson,
    /// Parsed `min` and `max` of a number: parsing them for each value would be slow.
    pub(crate) bounds: NumberBounds,
    /// Value of a device that has none of its own.
    pub default_value: RawJson,
    /// Position in a list of settings.
    pub list_order: i64,
}

/// Bounds of a number, kept as short texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NumberBounds {
    min: Option<Number<'static>>,
    max: Option<Number<'static>>,
}

impl NumberBounds {
    /// Reads the bounds from the properties of a setting's input.
    pub(crate) fn of(properties: &Json<'_>) -> Self {
        let bound = |name| match properties.get(name) {
            Some(Json::Number(number)) => Some(number.compact()),
            _ => None,
        };
        Self { min: bound("min"), max: bound("max") }
    }

    fn check(&self, value: &Number<'_>) -> Result<(), String> {
        if let Some(min) = self.min.as_ref().filter(|min| compare_numbers(value, min).is_lt()) {
            return Err(format!("must be at least {}", min.text()));
        }
        if let Some(max) = self.max.as_ref().filter(|max| compare_numbers(value, max).is_gt()) {
            return Err(format!("must be at most {}", max.text()));
        }
        Ok(())
    }
}

impl HeldBytes for SettingDefinition {
    fn held_bytes(&self) -> usize {
        let Self { title, description, input_type_properties, default_value, .. } = self;
        [title, description, input_type_properties, default_value].into_iter().map(RawJson::held_bytes).sum()
    }
}

impl SettingDefinition {
    /// Checks a value (contract: Settings); the error is a message for the client. The cost depends on the value only.
    pub fn check(&self, value: &Json<'_>) -> Result<(), String> {
        match (self.input_type, value) {
            (InputType::Text, Json::Text(_)) | (InputType::Toggle, Json::Bool(_)) => Ok(()),
            (InputType::Number, Json::Number(value)) => self.bounds.check(value),
            (InputType::Geolocation, _) => match location(value) {
                Some(_) => Ok(()),
                None => Err("must be {latitude, longitude}, within -90..90 and -180..180 degrees".to_owned()),
            },
            (InputType::Text, _) => Err("must be a string".to_owned()),
            (InputType::Toggle, _) => Err("must be a boolean".to_owned()),
            (InputType::Number, _) => Err("must be a number".to_owned()),
        }
    }

    /// Returns the place that a value of this setting denotes, if it is a geolocation.
    pub fn location(&self, value: &Json<'_>) -> Option<Location> {
        if self.input_type == InputType::Geolocation { location(value) } else { None }
    }
}

/// Reads a place from `{latitude, longitude}`.
fn location(value: &Json<'_>) -> Option<Location> {
    Location::new(value.get("latitude")?.as_f64()?, value.get("longitude")?.as_f64()?)
}
