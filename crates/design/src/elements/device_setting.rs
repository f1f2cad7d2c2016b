//! `deviceSetting`: a value that users set and designs may change; every change triggers `changed`.

use std::borrow::Cow;
use std::sync::Arc;

use isobar_model::json::{Json, Number};

use super::context::{Passed, Run};
use super::graph::Link;
use super::{Ability, Element, Shape, properties::Properties};
use crate::value::budget::Budget;
use crate::value::effect::Effect;
use crate::value::setting::{InputType, NumberBounds, SettingDefinition};
use crate::value::{Computed, Num, Problem, Value};

const SET: usize = 0;

pub(crate) const SHAPE: Shape = Shape {
    name: "deviceSetting",
    abilities: &[Ability { name: "set", arguments: &["value"] }, Ability { name: "reset", arguments: &[] }],
    triggers: &["changed"],
    read: DeviceSetting::read,
};

/// A name that no setting may have, because it is a path of the API.
const RESERVED_NAME: &str = "history";

/// A deviceSetting element.
#[derive(Debug)]
pub(crate) struct DeviceSetting {
    name: Arc<str>,
    /// Index of its definition in the plan.
    pub(crate) setting: u32,
}

impl DeviceSetting {
    pub(crate) fn index(&self) -> usize {
        self.setting as usize
    }

    fn read(properties: &mut Properties<'_>) -> Element {
        let setting = properties.scope.names.settings.get(properties.name.as_ref()).copied().unwrap_or_default();
        Element::DeviceSetting(Self { name: properties.name.clone(), setting })
    }

    pub(crate) fn act<'e>(&'e self, link: &'e Link, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        let declarations = run.declarations;
        let Some(definition) = declarations.settings.get(self.index()) else {
            return Err(Problem::new("unknown setting"));
        };
        let (value, set) = if link.ability == SET {
            let (value, json) = run.json_argument(link, 0, incoming)?;
            (value, Some(json))
        } else if !run.has_own_setting(self.setting)? {
            // It has its default: that is not a change, as in the API.
            return Ok(Passed::nothing());
        } else {
            (declarations.defaults.get(self.index()).map_or(Value::Null, Value::from), None)
        };
        let looked_at = looked_at(&value, &run.budget)?;
        if set.is_some() {
            definition.check(&looked_at).map_err(|message| Problem::new(format!("the value {message}")))?;
        }
        let (location, size) = (definition.location(&looked_at), run.settings_size_with(self.setting, set.as_ref())?);
        run.budget.emit(Effect::SetSetting { element: self.name.clone(), value: set })?;
        run.changes.change_setting(self.setting, value.clone(), size);
        // A geolocation moves the device (contract: Resources).
        if let Some(location) = location {
            run.budget.emit(Effect::SetLocation(location))?;
        }
        Ok(Passed { trigger: 0, value })
    }
}

/// Converts the parts of a value that are checked: all of it, but only the place in a map, and of a list only that it
/// is one.
fn looked_at<'v>(value: &'v Value<'_>, budget: &Budget) -> Computed<Json<'v>> {
    if value.is_map() {
        let mut members = Vec::new();
        for name in ["latitude", "longitude"] {
            if let Some(degrees) = value.member(name, budget)? {
                budget.spend_number(&degrees)?;
                members.push((Cow::Borrowed(name), number(&degrees)));
            }
        }
        return Ok(Json::Object(members));
    }
    Ok(match value {
        Value::Bool(truth) => Json::Bool(*truth),
        Value::Number(number) => Json::Number((*number).clone()),
        Value::Array(_) | Value::List(_) => Json::Array(Vec::new()),
        // They are written as texts.
        Value::Time(_) | Value::Duration(_) | Value::Type(_) => Json::Text(Cow::Borrowed("")),
        _ => match value.as_text() {
            Some(text) => Json::Text(Cow::Borrowed(text)),
            None => number(value),
        },
    })
}

fn number(value: &Value<'_>) -> Json<'static> {
    let number = match value.number() {
        Some(Num::Int(int)) => Some(Number::from(int)),
        Some(Num::Double(double)) => Number::from_f64(double),
        None => None,
    };
    number.map_or(Json::Null, Json::Number)
}

/// Reads the definition of a setting.
pub(crate) fn define(properties: &mut Properties<'_>) -> SettingDefinition {
    let is_words = |value: &Json<'_>| match value {
        Json::Object(members) => members.iter().all(|(_, text)| matches!(text, Json::Text(_))),
        _ => matches!(value, Json::Text(_)),
    };
    let words = "must be a string, or an object of strings by locale";
    let input_types = InputType::ALL.map(|kind| (kind.name(), kind));
    let is_composite = |value: &Json<'_>| matches!(value, Json::Object(_) | Json::Array(_));
    let composite = "must be an object, an array or null";
    let bounds = properties.get("inputTypeProperties").map(NumberBounds::of).unwrap_or_default();
    let definition = SettingDefinition {
        name: properties.name.clone(),
        title: properties.kept("title", is_words, words),
        description: properties.kept("description", is_words, words),
        input_type: properties.word("inputType", &input_types, InputType::default()),
        input_type_properties: properties.kept("inputTypeProperties", is_composite, composite),
        bounds,
        default_value: properties.kept("defaultValue", |_| true, ""),
        list_order: list_order(properties),
    };
    if properties.name.as_ref() == RESERVED_NAME {
        properties.faults.add(format!("planes.cloud.elements.{RESERVED_NAME}"), "no setting may be called 'history'");
    }
    check_bounds(&definition, properties);
    if let Some(value) = properties.get("defaultValue")
        && let Err(message) = definition.check(value)
    {
        properties.fault("defaultValue", message);
    }
    definition
}

fn list_order(properties: &mut Properties<'_>) -> i64 {
    match properties.get("listOrder") {
        None => 0,
        Some(Json::Number(number)) if number.as_i64().is_some() => number.as_i64().unwrap_or_default(),
        Some(_) => {
            properties.fault("listOrder", "must be a whole number");
            0
        }
    }
}

/// Checks that `min` and `max` of a number are ordered numbers.
fn check_bounds(definition: &SettingDefinition, properties: &mut Properties<'_>) {
    if definition.input_type != InputType::Number {
        return;
    }
    let tree = definition.input_type_properties.tree();
    let mut bound = |name: &str| match tree.get(name) {
        None | Some(Json::Null) => None,
        Some(Json::Number(number)) => Some(number.as_f64()),
        Some(_) => {
            properties.fault(&format!("inputTypeProperties.{name}"), "must be a number");
            None
        }
    };
    if let (Some(min), Some(max)) = (bound("min"), bound("max"))
        && min > max
    {
        properties.fault("inputTypeProperties.max", "must be at least min");
    }
}
