//! Sources of settings: flags, environment, file and defaults, in layers. Reading collects all faults instead of
//! stopping at the first.

use std::collections::BTreeMap;
use std::fmt;

use toml::{Table, Value};

/// Prefix of environment variables that are settings.
const ENVIRONMENT_PREFIX: &str = "ISOBAR_";
/// Separator of section and name in such a variable.
const UNDERSCORES: &str = "__";
/// Variables with the prefix that are not settings: secrets of the first start, and variables of the client and of
/// tests.
const NO_SETTINGS: [&str; 7] = [
    "ISOBAR_ADMIN_PASSWORD",
    "ISOBAR_USER",
    "ISOBAR_PASSWORD",
    "ISOBAR_API_KEY",
    "ISOBAR_URL",
    "ISOBAR_CA",
    "ISOBAR_PROJECT",
];
/// Prefixes of ignored variables. Kubernetes sets SERVICE and PORT for a service called `isobar`.
const NO_SETTINGS_PREFIXES: [&str; 4] = ["ISOBAR_TEST_", "ISOBAR_SERVICE_", "ISOBAR_PORT_", "ISOBAR_BENCH_"];

/// A fault of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The setting and its source.
    pub place: String,
    /// The fault, in words.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

/// A setting from one source.
#[derive(Clone, Debug)]
struct Given {
    value: Value,
    /// Its name in that source: `ISOBAR_HTTP__THREADS`, `--listen`, `isobar.toml: http.threads`.
    place: String,
    /// True for flags and the environment: numbers, booleans and lists are unparsed text.
    is_text: bool,
}

/// All layers, of which a later one overrides the earlier ones, with the faults found so far.
pub struct Layers {
    defaults: BTreeMap<String, Value>,
    given: BTreeMap<String, Given>,
    faults: Vec<Fault>,
    warnings: Vec<Fault>,
}

impl Layers {
    /// Begins with the default file, which also defines the settings that exist.
    pub fn over(defaults: &Table) -> Self {
        Self { defaults: flatten(defaults), given: BTreeMap::new(), faults: Vec::new(), warnings: Vec::new() }
    }

    /// Adds a file as a layer.
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

    /// Adds the environment as a layer. An unknown variable without the double underscore of a section may belong to
    /// other software: it causes a warning, not a failure.
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

    /// Suggests the setting that an unknown name may mean.
    fn hint(&self, name: &str) -> Option<String> {
        nearest(name, self.defaults.keys()).map(|near| format!(" (did you mean {near}?)"))
    }

    /// Adds a flag as a layer.
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

    /// Adds a fault.
    pub fn fault(&mut self, place: String, message: String) {
        self.faults.push(Fault { place, message });
    }

    /// Adds a fault of a setting, with its source.
    pub fn fault_of(&mut self, name: &str, message: impl Into<String>) {
        let place = self.given.get(name).map_or_else(|| name.to_owned(), |given| given.place.clone());
        self.fault(place, message.into());
    }

    /// Returns the settings that are not at their default, with their sources.
    pub fn places(&self) -> impl Iterator<Item = (&str, &str)> {
        self.given.iter().map(|(name, given)| (name.as_str(), given.place.as_str()))
    }

    /// Returns the name and value of each setting, with its source if it is given.
    pub fn values(&self) -> impl Iterator<Item = (&str, &Value, Option<&str>)> {
        self.defaults.iter().map(|(name, value)| match self.given.get(name) {
            Some(given) => (name.as_str(), &given.value, Some(given.place.as_str())),
            None => (name.as_str(), value, None),
        })
    }

    /// Returns all faults, and all warnings.
    pub fn end(self) -> (Vec<Fault>, Vec<Fault>) {
        (self.faults, self.warnings)
    }

    /// Reads a setting with `read`, whose error says what is expected. An invalid one is a fault, and the default is
    /// used.
    fn take<T: Default>(&mut self, name: &str, read: impl Fn(&Value, bool) -> Result<T, String>) -> T {
        if let Some(given) = self.given.get(name) {
            match read(&given.value, given.is_text) {
                Ok(value) => return value,
                Err(message) => self.fault_of(name, message),
            }
        }
        self.defaults.get(name).and_then(|value| read(value, false).ok()).unwrap_or_default()
    }

    /// Reads a text.
    pub fn text(&mut self, name: &str) -> String {
        self.parsed(name, |text| Ok(text.to_owned())).unwrap_or_default()
    }

    /// Reads a text that `read` parses.
    pub fn parsed<T>(&mut self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        self.take(name, |value, _| match value {
            Value::String(text) => read(text.trim()).map(Some),
            other => Err(format!("must be a text, not {}", kind(other))),
        })
    }

    /// Reads a text or a list of texts. A text from the environment is a list if each of its parts between commas has one of
    /// these prefixes.
    pub fn texts<T>(
        &mut self,
        name: &str,
        prefixes: &[&str],
        read: impl Fn(&[&str]) -> Result<T, String>,
    ) -> Option<T> {
        let has_prefix = |text: &&str| prefixes.iter().any(|prefix| text.starts_with(prefix));
        self.take(name, |value, is_text| match value {
            Value::String(text) => {
                let parts: Vec<&str> = text.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
                let is_list = is_text && parts.len() > 1 && parts.iter().all(has_prefix);
                if is_list { read(&parts) } else { read(&[text.trim()]) }.map(Some)
            }
            Value::Array(items) => {
                let texts: Option<Vec<&str>> = items.iter().map(|item| item.as_str().map(str::trim)).collect();
                read(&texts.ok_or_else(|| "must be a text, or a list of texts".to_owned())?).map(Some)
            }
            other => Err(format!("must be a text, or a list of texts, not {}", kind(other))),
        })
    }

    /// Reads a whole number within bounds.
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

    /// Reads a number from 0 to 1.
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

    /// Reads a boolean.
    pub fn switch(&mut self, name: &str) -> bool {
        self.take(name, |value, is_text| match value {
            Value::Boolean(on) => Ok(*on),
            Value::String(text) if is_text && matches!(text.trim(), "true" | "1" | "yes" | "on") => Ok(true),
            Value::String(text) if is_text && matches!(text.trim(), "false" | "0" | "no" | "off") => Ok(false),
            other => Err(format!("must be true or false, not {other}")),
        })
    }

    /// Reads a list of texts that `check` accepts.
    pub fn list(&mut self, name: &str, check: impl Fn(&str) -> Result<(), String>) -> Vec<String> {
        self.list_of(name, |text| check(text).map(|()| text.to_owned()))
    }

    /// Reads a list of texts that `read` parses.
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

/// Flattens `[http] threads` to `http.threads`. A table within a section stays a value, and is refused where a text is
/// expected.
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

/// Returns true if a name has a section, which only our settings have (contract: The program).
fn has_section(name: &str) -> bool {
    name.contains('.')
}

/// Returns the most similar name: at most three letters away, and no more than a third of them.
fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let last = |name: &str| name.rsplit('.').next().map(str::to_owned);
    let best = names.map(|known| {
        let other_section = if last(name) == last(known) { 1 } else { usize::MAX };
        (distance(name, known).min(other_section), known)
    });
    let near = |distance: usize| distance <= 3 && 3 * distance <= name.chars().count();
    best.min().filter(|(distance, _)| near(*distance)).map(|(_, known)| known.as_str())
}

/// Returns the Levenshtein distance.
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
