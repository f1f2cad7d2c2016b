//! Where settings come from: flags, environment, file, defaults, laid over each other.
//! Reading collects every fault instead of stopping at the first.

use std::collections::BTreeMap;
use std::fmt;

use toml::{Table, Value};

/// The prefix of environment variables that are settings.
const ENVIRONMENT_PREFIX: &str = "ISOBAR_";
/// Separates section and name in such a variable.
const UNDERSCORES: &str = "__";
/// Variables with the prefix that are no settings: secrets of the first start, what `simulate` logs in with, what tests are told.
const NO_SETTINGS: [&str; 7] = [
    "ISOBAR_ADMIN_PASSWORD",
    "ISOBAR_USER",
    "ISOBAR_PASSWORD",
    "ISOBAR_API_KEY",
    "ISOBAR_SERVER",
    "ISOBAR_CA",
    "ISOBAR_PROJECT",
];
/// Variables that are left alone, by their first letters. SERVICE and PORT are what Kubernetes sets beside a service called `isobar`.
const NO_SETTINGS_PREFIXES: [&str; 4] = ["ISOBAR_TEST_", "ISOBAR_SERVICE_", "ISOBAR_PORT_", "ISOBAR_BENCH_"];

/// One thing wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where it was given, and its name.
    pub place: String,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A setting as somebody gave it.
#[derive(Clone, Debug)]
struct Given {
    value: Value,
    /// As the person who gave it would call it: `ISOBAR_HTTP__THREADS`, `--listen`, `isobar.toml: http.threads`.
    place: String,
    /// From a flag or the environment: numbers, switches and lists are still text.
    is_text: bool,
}

/// All layers; a later one is laid over the earlier ones. And what was found while reading.
pub struct Layers {
    defaults: BTreeMap<String, Value>,
    given: BTreeMap<String, Given>,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
}

impl Layers {
    /// Begins with the default file, which also says which settings there are.
    pub fn over(defaults: &Table) -> Self {
        Self { defaults: flatten(defaults), given: BTreeMap::new(), faults: Vec::new(), warnings: Vec::new() }
    }

    /// Lays a file over what there is.
    pub fn file(&mut self, path: &str, content: &str) {
        match content.parse::<Table>() {
            Ok(table) => {
                for (name, value) in flatten(&table) {
                    let place = format!("{path}: {name}");
                    self.lay(&name, Given { value, place, is_text: false });
                }
            }
            Err(error) => self.fault(path.to_owned(), error.to_string().trim_end().to_owned()),
        }
    }

    /// Lays the environment over what there is. It is not only ours: a variable without the two underscores of a setting may
    /// be what somebody else calls a thing of his own, and is named, but does not end the start.
    pub fn environment(&mut self, variables: impl Iterator<Item = (String, String)>) {
        for (variable, text) in variables.filter(|(variable, text)| is_setting(variable, text)) {
            let name = variable[ENVIRONMENT_PREFIX.len()..].to_lowercase().replace(UNDERSCORES, ".");
            if text.contains(char::REPLACEMENT_CHARACTER) && self.defaults.contains_key(&name) {
                self.fault(variable, "must be UTF-8".to_owned());
            } else if self.defaults.contains_key(&name) || has_section(&name) {
                self.lay(&name, Given { value: Value::String(text), place: variable, is_text: true });
            } else {
                let hint = self.hint(&name).unwrap_or_default();
                self.warnings.push(Fault { place: variable, message: format!("is no setting and is ignored{hint}") });
            }
        }
    }

    /// What was probably meant by a name that is no setting's.
    fn hint(&self, name: &str) -> Option<String> {
        nearest(name, self.defaults.keys()).map(|near| format!(" (did you mean {near}?)"))
    }

    /// Lays a flag over what there is.
    pub fn flag(&mut self, name: &str, flag: &str, text: Option<String>) {
        if let Some(text) = text {
            self.lay(name, Given { value: Value::String(text), place: flag.to_owned(), is_text: true });
        }
    }

    fn lay(&mut self, name: &str, given: Given) {
        if self.defaults.contains_key(name) {
            self.given.insert(name.to_owned(), given);
        } else {
            let hint = self.hint(name).unwrap_or_else(|| "; `isobar config` lists them all".to_owned());
            self.fault(given.place, format!("there is no setting {name}{hint}"));
        }
    }

    /// Notes something wrong.
    pub fn fault(&mut self, place: String, message: String) {
        self.faults.push(Fault { place, message });
    }

    /// Notes something wrong with a setting, wherever it came from.
    pub fn fault_of(&mut self, name: &str, message: impl Into<String>) {
        let place = self.given.get(name).map_or_else(|| name.to_owned(), |given| given.place.clone());
        self.fault(place, message.into());
    }

    /// The names of the settings that are not at their default, each with its place.
    pub fn places(&self) -> impl Iterator<Item = (&str, &str)> {
        self.given.iter().map(|(name, given)| (name.as_str(), given.place.as_str()))
    }

    /// What was found wrong, all of it; and what is only worth a word.
    pub fn end(self) -> (Vec<Fault>, Vec<Fault>) {
        (self.faults, self.warnings)
    }

    /// Reads a setting with `read`, which says what it expects when it cannot. A bad one is a fault, and the default is read instead.
    fn take<T: Default>(&mut self, name: &str, read: impl Fn(&Value, bool) -> Result<T, String>) -> T {
        if let Some(given) = self.given.get(name) {
            match read(&given.value, given.is_text) {
                Ok(value) => return value,
                Err(message) => self.fault_of(name, message),
            }
        }
        self.defaults.get(name).and_then(|value| read(value, false).ok()).unwrap_or_default()
    }

    /// A text.
    pub fn text(&mut self, name: &str) -> String {
        self.parsed(name, |text| Ok(text.to_owned())).unwrap_or_default()
    }

    /// A text that `read` understands.
    pub fn parsed<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.take(name, |value, _| match value {
            Value::String(text) => read(text.trim()).map(Some),
            other => Err(format!("must be a text, not {}", kind(other))),
        })
    }

    /// A whole number within bounds.
    pub fn number(&mut self, name: &str, least: u32, most: u32) -> u32 {
        self.take(name, |value, is_text| {
            let number = match value {
                Value::Integer(number) => Some(*number),
                Value::String(text) if is_text => text.trim().replace('_', "").parse().ok(),
                _ => None,
            };
            let number = number.and_then(|number| u32::try_from(number).ok());
            number
                .filter(|number| (least..=most).contains(number))
                .ok_or_else(|| format!("must be a whole number from {least} to {most}, not {value}"))
        })
    }

    /// A share of the whole: from 0 to 1.
    pub fn share(&mut self, name: &str) -> f64 {
        self.take(name, |value, is_text| {
            let share = match value {
                Value::Float(share) => Some(*share),
                Value::Integer(whole) => i32::try_from(*whole).ok().map(f64::from),
                Value::String(text) if is_text => text.trim().parse().ok(),
                _ => None,
            };
            share
                .filter(|share| (0.0..=1.0).contains(share))
                .ok_or_else(|| format!("must be a number from 0 to 1, not {value}"))
        })
    }

    /// true or false.
    pub fn switch(&mut self, name: &str) -> bool {
        self.take(name, |value, is_text| match value {
            Value::Boolean(on) => Ok(*on),
            Value::String(text) if is_text && matches!(text.trim(), "true" | "1" | "yes" | "on") => Ok(true),
            Value::String(text) if is_text && matches!(text.trim(), "false" | "0" | "no" | "off") => Ok(false),
            other => Err(format!("must be true or false, not {other}")),
        })
    }

    /// A list of texts, each of which `check` accepts.
    pub fn list(&mut self, name: &str, check: impl Fn(&str) -> Result<(), String>) -> Vec<String> {
        self.list_of(name, |text| check(text).map(|()| text.to_owned()))
    }

    /// A list of texts, each of which `read` understands.
    pub fn list_of<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
        self.take(name, |value, is_text| {
            let items: Vec<String> = match value {
                Value::Array(items) => items
                    .iter()
                    .map(|item| item.as_str().map(|text| text.trim().to_owned()))
                    .collect::<Option<_>>()
                    .ok_or_else(|| "must be a list of texts".to_owned())?,
                Value::String(text) if is_text => {
                    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
                }
                other => return Err(format!("must be a list of texts, not {}", kind(other))),
            };
            items.iter().map(|item| read(item)).collect()
        })
    }
}

/// `[http] threads` becomes `http.threads`. A table within a section stays a value, and is refused where a text is wanted.
fn flatten(table: &Table) -> BTreeMap<String, Value> {
    let mut flat = BTreeMap::new();
    for (name, value) in table {
        match value {
            Value::Table(section) => {
                flat.extend(section.iter().map(|(inner, value)| (format!("{name}.{inner}"), value.clone())));
            }
            value => {
                flat.insert(name.clone(), value.clone());
            }
        }
    }
    flat
}

fn is_setting(variable: &str, text: &str) -> bool {
    let is_other = NO_SETTINGS.contains(&variable)
        || NO_SETTINGS_PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
        || (variable == "ISOBAR_PORT" && text.contains("://"));
    variable.starts_with(ENVIRONMENT_PREFIX) && !is_other
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a section",
    }
}

/// Returns true if a name has a section, so that it can only be meant for us (contract: The program).
fn has_section(name: &str) -> bool {
    name.contains('.')
}

/// The name that was probably meant: at most three letters away, and no more than a third of them.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let last = |name: &str| name.rsplit('.').next().map(str::to_owned);
    let best = names.map(|known| {
        let other_section = if last(name) == last(known) { 1 } else { usize::MAX };
        (distance(name, known).min(other_section), known)
    });
    let near = |distance: usize| distance <= 3 && 3 * distance <= name.chars().count();
    best.min().filter(|(distance, _)| near(*distance)).map(|(_, known)| known.as_str())
}

/// Levenshtein's distance.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
