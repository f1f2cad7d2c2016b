//! Checks of input that collect every fault before they refuse.

use std::str::FromStr;

use crate::error::{Error, Fault, Result};
use crate::json::{Json, RawJson};
use crate::time::Timestamp;

/// Largest number accepted as an amount: whole numbers up to it are exact as doubles.
pub const AMOUNT_MAX: f64 = 1e15;

/// Collects the faults of an input.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Makes an empty collection.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fault.
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Fault::new(field, message));
    }

    /// Adds faults found elsewhere.
    pub fn extend(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.0.extend(faults);
    }

    /// Returns the faults with `path` prefixed to their fields.
    pub fn beneath(self, path: &str) -> Vec<Fault> {
        self.0.into_iter().map(|fault| Fault::new(format!("{path}.{}", fault.field), fault.message)).collect()
    }

    /// Returns true if there is any fault.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Checks the length of a text, in characters.
    pub fn length(&mut self, field: &str, text: &str, min: usize, max: usize) {
        let length = text.chars().count();
        if length < min || length > max {
            self.add(field, format!("must be {min} to {max} characters long"));
        }
    }

    /// Checks that a text has no U+0000, which registries cannot store.
    pub fn whole(&mut self, field: &str, text: &str) {
        if text.contains('\0') {
            self.add(field, "must not hold the character U+0000");
        }
    }

    /// Checks like [`Faults::length`], if there is a text.
    pub fn length_if(&mut self, field: &str, text: Option<&str>, min: usize, max: usize) {
        if let Some(text) = text {
            self.length(field, text, min, max);
        }
    }

    /// Checks that a text may be an e-mail address: 3 to 254 characters, one `@`, something before it, a dotted name
    /// after it, no space. A wrong length is the only fault reported; U+0000 is left to [`Faults::whole`].
    pub fn email(&mut self, field: &str, text: &str) {
        if !(3..=254).contains(&text.chars().count()) {
            return self.length(field, text, 3, 254);
        }
        let odd =
            |c: char| (c.is_control() && c != '\0') || c.is_whitespace() || matches!(c, '<' | '>' | ',' | ';' | '"');
        let (local, domain) = text.rsplit_once('@').unwrap_or(("", ""));
        let sound = !local.is_empty()
            && !local.contains('@')
            && !domain.is_empty()
            && !domain.starts_with('.')
            && !domain.ends_with('.')
            && !domain.contains("..")
            && !text.chars().any(odd);
        if !sound {
            self.add(field, "must be an e-mail address");
        }
    }

    /// Checks that a text is a fully qualified domain name (RFC 1123, 2.1; RFC 1035, 2.3.4): two or more labels of
    /// letters, digits and hyphens, the last of which is not a number.
    pub fn domain(&mut self, field: &str, text: &str) {
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        let last = text.rsplit_once('.').map(|(_, last)| last);
        let sound = text.len() <= 253
            && text.split('.').all(is_label)
            && last.is_some_and(|last| last.bytes().any(|byte| !byte.is_ascii_digit()));
        if !sound {
            self.add(field, "must be a fully qualified domain name");
        }
    }

    /// Returns the value of a result; collects its faults and returns `None`; passes on any other error.
    pub fn gather<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        Ok(or_faults(result)?.map_err(|found| self.extend(found)).ok())
    }

    /// Returns the value, or the error if there are faults.
    pub fn unless_any<T>(self, value: T) -> Result<T> {
        self.end().map(|()| value)
    }

    /// Converts the faults, at least one, into an error.
    pub fn into_error(self) -> Error {
        Error::Invalid(self.0)
    }

    /// Returns an error if there are faults.
    pub fn end(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::Invalid(self.0)) }
    }
}

/// A change to a member that a client may leave out, clear or set (contract: Conventions, PUT).
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Patch<T> {
    /// Left out: keeps its value.
    #[default]
    Keep,
    /// `null`: cleared.
    Clear,
    /// Set to a value.
    Set(T),
}

impl<T> Patch<T> {
    /// Returns the value after the change.
    pub fn over(self, present: Option<T>) -> Option<T> {
        match self {
            Patch::Keep => present,
            Patch::Clear => None,
            Patch::Set(value) => Some(value),
        }
    }

    /// Applies `change` to the value of a set.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Patch<U> {
        match self {
            Patch::Keep => Patch::Keep,
            Patch::Clear => Patch::Clear,
            Patch::Set(value) => Patch::Set(change(value)),
        }
    }
}

/// Reads members of a JSON object and collects their faults. Members that are not read are ignored.
pub struct Input<'a> {
    tree: &'a Json<'a>,
    prefix: &'a str,
    /// Faults found so far.
    pub faults: Faults,
}

impl<'a> Input<'a> {
    /// Makes a reader of a body, which must be an object.
    pub fn body(tree: &'a Json<'a>) -> Result<Self> {
        match tree {
            Json::Object(_) => Ok(Self::item(tree, "")),
            other => Err(Error::invalid("body", format!("must be an object, not {}", other.kind()))),
        }
    }

    /// Makes a reader of an object at `path` in the body.
    pub fn item(tree: &'a Json<'a>, path: &'a str) -> Self {
        Self { tree, prefix: path, faults: Faults::new() }
    }

    /// Returns the path of a member in the input.
    pub fn path(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}.{name}", self.prefix) }
    }

    /// Returns the member, if present.
    pub fn member(&self, name: &str) -> Option<&'a Json<'a>> {
        self.tree.get(name)
    }

    /// Adds a fault of a member.
    pub fn fault(&mut self, name: &str, message: impl Into<String>) {
        let path = self.path(name);
        self.faults.add(path, message);
    }

    /// Adds a fault if a member is missing.
    pub fn require(&mut self, name: &str) {
        if self.member(name).is_none() {
            self.fault(name, "is required");
        }
    }

    /// Reads an optional member by `read`; adds the fault "must be `kind`" if that returns `None`.
    fn of_kind<T>(&mut self, name: &str, kind: &str, read: impl FnOnce(&'a Json<'a>) -> Option<T>) -> Option<T> {
        let member = self.member(name)?;
        let value = read(member);
        if value.is_none() {
            self.fault(name, format!("must be {kind}, not {}", member.kind()));
        }
        value
    }

    /// Reads like [`Input::of_kind`]; `null` clears.
    fn patch<T>(&mut self, name: &str, kind: &str, read: impl FnOnce(&'a Json<'a>) -> Option<T>) -> Patch<T> {
        match self.member(name) {
            Some(Json::Null) => Patch::Clear,
            _ => self.of_kind(name, kind, read).map_or(Patch::Keep, Patch::Set),
        }
    }

    /// Reads a text of `min` to `max` characters that may be left out, cleared or set.
    pub fn text_patch(&mut self, name: &str, min: usize, max: usize) -> Patch<String> {
        let text = self.patch(name, "a string", Json::as_text);
        if let Patch::Set(text) = text {
            let path = self.path(name);
            self.faults.length(&path, text, min, max);
            self.faults.whole(&path, text);
        }
        text.map(str::to_owned)
    }

    /// Reads an optional text that must not be null.
    pub fn text(&mut self, name: &str, min: usize, max: usize) -> Option<String> {
        let text = self.text_patch(name, min, max);
        if text == Patch::Clear {
            self.fault(name, "must not be null");
        }
        text.over(None)
    }

    /// Reads a required text. If it is missing, adds a fault and returns an empty text.
    pub fn required_text(&mut self, name: &str, min: usize, max: usize) -> String {
        self.require(name);
        self.text(name, min, max).unwrap_or_default()
    }

    /// Reads a required e-mail address.
    pub fn required_email(&mut self, name: &str) -> String {
        let text = self.required_text(name, 0, usize::MAX);
        if matches!(self.member(name), Some(Json::Text(_))) {
            let path = self.path(name);
            self.faults.email(&path, &text);
        }
        text
    }

    /// Reads required JSON other than null; adds a fault otherwise.
    pub fn required_json(&mut self, name: &str) -> RawJson {
        self.require(name);
        let json = self.member(name).unwrap_or(&Json::Null);
        if self.member(name) == Some(&Json::Null) {
            self.fault(name, "must not be null");
        }
        json.into()
    }

    /// Reads an optional identifier; `null` counts as left out.
    pub fn id<T: FromStr>(&mut self, name: &str) -> Option<T> {
        self.parsed(name, "is not an identifier")
    }

    /// Reads an identifier that may be left out, cleared or set.
    pub fn id_patch<T: FromStr>(&mut self, name: &str) -> Patch<T> {
        match self.member(name) {
            Some(Json::Null) => Patch::Clear,
            _ => self.id(name).map_or(Patch::Keep, Patch::Set),
        }
    }

    /// Reads an identifier that may be left out, cleared or set; an empty text clears it too, as the specification
    /// takes any text of 36 characters.
    pub fn id_or_empty_patch<T: FromStr>(&mut self, name: &str) -> Patch<T> {
        match self.member(name) {
            Some(Json::Text(text)) if text.is_empty() => Patch::Clear,
            _ => self.id_patch(name),
        }
    }

    /// Reads an optional moment; `null` counts as left out.
    pub fn time(&mut self, name: &str) -> Option<Timestamp> {
        self.parsed(name, "is not an RFC 3339 date-time")
    }

    /// Parses an optional text; adds `fault` if that fails.
    fn parsed<T: FromStr>(&mut self, name: &str, fault: &str) -> Option<T> {
        let value = self.patch(name, "a string", Json::as_text).over(None)?.parse().ok();
        if value.is_none() {
            self.fault(name, fault);
        }
        value
    }

    /// Reads an optional boolean.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        self.of_kind(name, "a boolean", Json::as_bool)
    }

    /// Reads an optional number from 0 to [`AMOUNT_MAX`].
    pub fn amount(&mut self, name: &str) -> Option<f64> {
        let number = self.of_kind(name, "a number", Json::as_f64)?;
        let is_sound = (0.0..=AMOUNT_MAX).contains(&number);
        if !is_sound {
            self.fault(name, format!("must be from 0 to {AMOUNT_MAX}"));
        }
        is_sound.then_some(number)
    }

    /// Reads an optional object that must not be null.
    pub fn object(&mut self, name: &str) -> Option<&'a Json<'a>> {
        self.of_kind(name, "an object", object)
    }

    /// Reads an object, as it was sent, that may be left out, cleared or set.
    pub fn object_patch(&mut self, name: &str) -> Patch<RawJson> {
        self.patch(name, "an object", object).map(RawJson::from)
    }

    /// Reads the members of a nested object by `read`, with its path.
    pub fn nested<T>(&mut self, name: &str, read: impl FnOnce(&mut Input<'_>) -> T) -> Patch<T> {
        self.patch(name, "an object", object).map(|tree| {
            let path = self.path(name);
            let mut inner = Input::item(tree, &path);
            let value = read(&mut inner);
            self.faults.extend(inner.faults.0);
            value
        })
    }

    /// Reads an optional list of at most `most` items.
    pub fn items(&mut self, name: &str, most: usize) -> Option<&'a [Json<'a>]> {
        let items = self.of_kind(name, "an array", Json::as_array)?;
        if items.len() > most {
            self.fault(name, format!("must hold at most {most} items"));
            return None;
        }
        Some(items)
    }

    /// Reads an optional list of at most `count` texts of at most `max` characters; `null` counts as left out.
    pub fn texts(&mut self, name: &str, count: usize, max: usize) -> Option<Vec<String>> {
        if self.member(name) == Some(&Json::Null) {
            return None;
        }
        let items = self.items(name, count)?;
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = self.path(&format!("{name}[{index}]"));
            match item {
                Json::Text(text) if text.chars().count() <= max => {
                    self.faults.whole(&path, text);
                    texts.push(text.clone().into_owned());
                }
                Json::Text(_) => self.faults.add(path, format!("must be at most {max} characters long")),
                other => self.faults.add(path, format!("must be a string, not {}", other.kind())),
            }
        }
        Some(texts)
    }

    /// Returns the value, or the error if there are faults.
    pub fn unless_any<T>(self, value: T) -> Result<T> {
        self.faults.unless_any(value)
    }

    /// Returns the faults found so far.
    pub fn into_faults(self) -> Faults {
        self.faults
    }
}

/// Returns the items of a body that is an array of at most `most`; `noun` names them in the fault.
pub fn body_items<'t>(tree: &'t Json<'t>, most: usize, noun: &str) -> Result<&'t [Json<'t>]> {
    match tree {
        Json::Array(items) if items.len() <= most => Ok(items),
        Json::Array(_) => Err(Error::invalid("body", format!("must hold at most {most} {noun}"))),
        other => Err(Error::invalid("body", format!("must be an array, not {}", other.kind()))),
    }
}

/// Reads a body that is an array of at most `most` objects, and reports the faults of all of them at once.
pub fn read_objects<T>(tree: &Json<'_>, most: usize, read: impl Fn(Input<'_>) -> Result<T>) -> Result<Vec<T>> {
    let mut faults = Faults::new();
    let mut items = Vec::new();
    for (index, item) in body_items(tree, most, "items")?.iter().enumerate() {
        let path = format!("[{index}]");
        match item {
            Json::Object(_) => items.extend(faults.gather(read(Input::item(item, &path)))?),
            other => faults.add(path, format!("must be an object, not {}", other.kind())),
        }
    }
    faults.unless_any(items)
}

/// Separates the faults of one item among many from errors that end the reading of all.
pub fn or_faults<T>(read: Result<T>) -> Result<std::result::Result<T, Vec<Fault>>> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(Error::Invalid(faults)) => Ok(Err(faults)),
        Err(error) => Err(error),
    }
}

/// Returns the tree if it is an object.
fn object<'t>(tree: &'t Json<'t>) -> Option<&'t Json<'t>> {
    matches!(tree, Json::Object(_)).then_some(tree)
}
