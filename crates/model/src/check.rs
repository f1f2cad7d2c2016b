//! Checks of input that gather every fault before they refuse.

use std::str::FromStr;

use crate::error::{Error, Fault, Result};
use crate::json::{Json, RawJson};
use crate::time::Timestamp;

/// Largest amount that an input may name: every whole number up to it is exact.
pub const AMOUNT_MAX: f64 = 1e15;

/// Gathers the faults of an input.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// No faults yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes a fault.
    pub fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Fault::new(field, message));
    }

    /// Takes over faults found elsewhere.
    pub fn extend(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.0.extend(faults);
    }

    /// The faults of something that lies at `path` in the input.
    pub fn beneath(self, path: &str) -> Vec<Fault> {
        self.0.into_iter().map(|fault| Fault::new(format!("{path}.{}", fault.field), fault.message)).collect()
    }

    /// Whether any fault was noted.
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

    /// Checks that a text can be kept as it is: no registry keeps U+0000, and two texts that differ in it alone would
    /// become one.
    pub fn whole(&mut self, field: &str, text: &str) {
        if text.contains('\0') {
            self.add(field, "must not hold the character U+0000");
        }
    }

    /// As [`Faults::length`], when the text is there.
    pub fn length_if(&mut self, field: &str, text: Option<&str>, min: usize, max: usize) {
        if let Some(text) = text {
            self.length(field, text, min, max);
        }
    }

    /// Checks that a text may be an e-mail address: 3 to 254 characters, one `@`, something before it, a dotted name after
    /// it, no space. Of one that is too long or too short nothing else is said; U+0000 is for [`Faults::whole`] to tell.
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
    /// letters, digits and hyphens, the last of them no number.
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

    /// Takes over the faults of a result and goes on without its value; any other error ends the input's reading.
    pub fn gather<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        Ok(or_faults(result)?.map_err(|found| self.extend(found)).ok())
    }

    /// The value, unless faults were noted.
    pub fn unless_any<T>(self, value: T) -> Result<T> {
        self.end().map(|()| value)
    }

    /// The error of the faults that were noted: of one at least.
    pub fn into_error(self) -> Error {
        Error::Invalid(self.0)
    }

    /// Refuses when faults were noted.
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
    /// The value after the change.
    pub fn over(self, present: Option<T>) -> Option<T> {
        match self {
            Patch::Keep => present,
            Patch::Clear => None,
            Patch::Set(value) => Some(value),
        }
    }

    /// The same change, with what `change` makes of the value.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Patch<U> {
        match self {
            Patch::Keep => Patch::Keep,
            Patch::Clear => Patch::Clear,
            Patch::Set(value) => Patch::Set(change(value)),
        }
    }
}

/// Reads the members of a JSON object and notes what is wrong with them. Members that nobody asks for are ignored.
pub struct Input<'a> {
    tree: &'a Json<'a>,
    prefix: &'a str,
    /// What was found wrong so far.
    pub faults: Faults,
}

impl<'a> Input<'a> {
    /// A reader of a body, which must be an object.
    pub fn body(tree: &'a Json<'a>) -> Result<Self> {
        match tree {
            Json::Object(_) => Ok(Self::item(tree, "")),
            other => Err(Error::invalid("body", format!("must be an object, not {}", other.kind()))),
        }
    }

    /// A reader of an object that lies at `path` in the body.
    pub fn item(tree: &'a Json<'a>, path: &'a str) -> Self {
        Self { tree, prefix: path, faults: Faults::new() }
    }

    /// The path of a member in the input.
    pub fn path(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_owned() } else { format!("{}.{name}", self.prefix) }
    }

    /// The member, if it is there.
    pub fn member(&self, name: &str) -> Option<&'a Json<'a>> {
        self.tree.get(name)
    }

    /// Notes a fault of a member.
    pub fn fault(&mut self, name: &str, message: impl Into<String>) {
        let path = self.path(name);
        self.faults.add(path, message);
    }

    /// Notes that a member must be there, if it is not.
    pub fn require(&mut self, name: &str) {
        if self.member(name).is_none() {
            self.fault(name, "is required");
        }
    }

    /// What `read` makes of a member that may be left out. What it makes nothing of is not `kind`, and a fault.
    fn of_kind<T>(&mut self, name: &str, kind: &str, read: impl FnOnce(&'a Json<'a>) -> Option<T>) -> Option<T> {
        let member = self.member(name)?;
        let value = read(member);
        if value.is_none() {
            self.fault(name, format!("must be {kind}, not {}", member.kind()));
        }
        value
    }

    /// The same of a member that may also be cleared.
    fn patch<T>(&mut self, name: &str, kind: &str, read: impl FnOnce(&'a Json<'a>) -> Option<T>) -> Patch<T> {
        match self.member(name) {
            Some(Json::Null) => Patch::Clear,
            _ => self.of_kind(name, kind, read).map_or(Patch::Keep, Patch::Set),
        }
    }

    /// A text of `min` to `max` characters that may be left out, cleared or set.
    pub fn text_patch(&mut self, name: &str, min: usize, max: usize) -> Patch<String> {
        let text = self.patch(name, "a string", Json::as_text);
        if let Patch::Set(text) = text {
            let path = self.path(name);
            self.faults.length(&path, text, min, max);
            self.faults.whole(&path, text);
        }
        text.map(str::to_owned)
    }

    /// A text that may be left out, but not be null.
    pub fn text(&mut self, name: &str, min: usize, max: usize) -> Option<String> {
        let text = self.text_patch(name, min, max);
        if text == Patch::Clear {
            self.fault(name, "must not be null");
        }
        text.over(None)
    }

    /// A text that must be there. Where it is not, a fault is noted and the text is empty.
    pub fn required_text(&mut self, name: &str, min: usize, max: usize) -> String {
        self.require(name);
        self.text(name, min, max).unwrap_or_default()
    }

    /// An e-mail address that must be there.
    pub fn required_email(&mut self, name: &str) -> String {
        let text = self.required_text(name, 0, usize::MAX);
        if matches!(self.member(name), Some(Json::Text(_))) {
            let path = self.path(name);
            self.faults.email(&path, &text);
        }
        text
    }

    /// JSON that must be there, and not be null. Where it is not, a fault is noted.
    pub fn required_json(&mut self, name: &str) -> RawJson {
        self.require(name);
        let json = self.member(name).unwrap_or(&Json::Null);
        if self.member(name) == Some(&Json::Null) {
            self.fault(name, "must not be null");
        }
        json.into()
    }

    /// An identifier that may be left out; `null` counts as left out.
    pub fn id<T: FromStr>(&mut self, name: &str) -> Option<T> {
        self.parsed(name, "is not an identifier")
    }

    /// An identifier that may be left out, cleared or set.
    pub fn id_patch<T: FromStr>(&mut self, name: &str) -> Patch<T> {
        match self.member(name) {
            Some(Json::Null) => Patch::Clear,
            _ => self.id(name).map_or(Patch::Keep, Patch::Set),
        }
    }

    /// An identifier that may be left out, cleared or set, where the specification takes any text of 36 characters: an
    /// empty one clears it too.
    pub fn id_or_empty_patch<T: FromStr>(&mut self, name: &str) -> Patch<T> {
        match self.member(name) {
            Some(Json::Text(text)) if text.is_empty() => Patch::Clear,
            _ => self.id_patch(name),
        }
    }

    /// A moment that may be left out; `null` counts as left out.
    pub fn time(&mut self, name: &str) -> Option<Timestamp> {
        self.parsed(name, "is not an RFC 3339 date-time")
    }

    /// What a text says that may be left out; `fault` where it says nothing of the kind.
    fn parsed<T: FromStr>(&mut self, name: &str, fault: &str) -> Option<T> {
        let value = self.patch(name, "a string", Json::as_text).over(None)?.parse().ok();
        if value.is_none() {
            self.fault(name, fault);
        }
        value
    }

    /// A boolean that may be left out.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        self.of_kind(name, "a boolean", Json::as_bool)
    }

    /// A number from 0 to [`AMOUNT_MAX`] that may be left out.
    pub fn amount(&mut self, name: &str) -> Option<f64> {
        let number = self.of_kind(name, "a number", Json::as_f64)?;
        let is_sound = (0.0..=AMOUNT_MAX).contains(&number);
        if !is_sound {
            self.fault(name, format!("must be from 0 to {AMOUNT_MAX}"));
        }
        is_sound.then_some(number)
    }

    /// An object that may be left out, but not be null.
    pub fn object(&mut self, name: &str) -> Option<&'a Json<'a>> {
        self.of_kind(name, "an object", object)
    }

    /// An object, kept as it is, that may be left out, cleared or set.
    pub fn object_patch(&mut self, name: &str) -> Patch<RawJson> {
        self.patch(name, "an object", object).map(RawJson::from)
    }

    /// An object with members of its own, read by `read` under its path.
    pub fn nested<T>(&mut self, name: &str, read: impl FnOnce(&mut Input<'_>) -> T) -> Patch<T> {
        self.patch(name, "an object", object).map(|tree| {
            let path = self.path(name);
            let mut inner = Input::item(tree, &path);
            let value = read(&mut inner);
            self.faults.extend(inner.faults.0);
            value
        })
    }

    /// The items of a list of at most `most`, that may be left out.
    pub fn items(&mut self, name: &str, most: usize) -> Option<&'a [Json<'a>]> {
        let items = self.of_kind(name, "an array", Json::as_array)?;
        if items.len() > most {
            self.fault(name, format!("must hold at most {most} items"));
            return None;
        }
        Some(items)
    }

    /// A list of at most `count` texts of at most `max` characters, that may be left out; `null` counts as left out.
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

    /// The value read from the input, unless faults were noted.
    pub fn unless_any<T>(self, value: T) -> Result<T> {
        self.faults.unless_any(value)
    }

    /// What was found wrong so far.
    pub fn into_faults(self) -> Faults {
        self.faults
    }
}

/// The items of a body that is an array of at most so many of a noun.
pub fn body_items<'t>(tree: &'t Json<'t>, most: usize, noun: &str) -> Result<&'t [Json<'t>]> {
    match tree {
        Json::Array(items) if items.len() <= most => Ok(items),
        Json::Array(_) => Err(Error::invalid("body", format!("must hold at most {most} {noun}"))),
        other => Err(Error::invalid("body", format!("must be an array, not {}", other.kind()))),
    }
}

/// Reads a body that is an array of at most so many objects; all that is wrong with any of them is told at once.
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

/// What was read of one item of many, or its faults; any other error ends the reading of all.
pub fn or_faults<T>(read: Result<T>) -> Result<std::result::Result<T, Vec<Fault>>> {
    match read {
        Ok(value) => Ok(Ok(value)),
        Err(Error::Invalid(faults)) => Ok(Err(faults)),
        Err(error) => Err(error),
    }
}

/// The tree itself, if it is an object.
fn object<'t>(tree: &'t Json<'t>) -> Option<&'t Json<'t>> {
    matches!(tree, Json::Object(_)).then_some(tree)
}
