//! Checks of input that gather every fault before they refuse.

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
        match result {
            Ok(value) => Ok(Some(value)),
            Err(Error::Invalid(found)) => {
                self.extend(found);
                Ok(None)
            }
            Err(error) => Err(error),
        }
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
            Json::Object(_) => Ok(Self { tree, prefix: "", faults: Faults::new() }),
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

    /// A text of `min` to `max` characters that may be left out, cleared or set.
    pub fn text_patch(&mut self, name: &str, min: usize, max: usize) -> Patch<String> {
        match self.member(name) {
            None => Patch::Keep,
            Some(Json::Null) => Patch::Clear,
            Some(Json::Text(text)) => {
                let path = self.path(name);
                self.faults.length(&path, text, min, max);
                self.faults.whole(&path, text);
                Patch::Set(text.clone().into_owned())
            }
            Some(other) => {
                self.fault(name, format!("must be a string, not {}", other.kind()));
                Patch::Keep
            }
        }
    }

    /// A text that may be left out, but not be null.
    pub fn text(&mut self, name: &str, min: usize, max: usize) -> Option<String> {
        match self.text_patch(name, min, max) {
            Patch::Set(text) => Some(text),
            Patch::Keep => None,
            Patch::Clear => {
                self.fault(name, "must not be null");
                None
            }
        }
    }

    /// A text that must be there. Where it is not, a fault is noted and the text is empty.
    pub fn required_text(&mut self, name: &str, min: usize, max: usize) -> String {
        if self.member(name).is_none() {
            self.fault(name, "is required");
        }
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

    /// An identifier that may be left out; `null` counts as left out.
    pub fn id<T: std::str::FromStr>(&mut self, name: &str) -> Option<T> {
        match self.member(name) {
            None | Some(Json::Null) => None,
            Some(Json::Text(text)) => {
                let id = text.parse().ok();
                if id.is_none() {
                    self.fault(name, "is not an identifier");
                }
                id
            }
            Some(other) => {
                self.fault(name, format!("must be a string, not {}", other.kind()));
                None
            }
        }
    }

    /// A moment that may be left out; `null` counts as left out.
    pub fn time(&mut self, name: &str) -> Option<Timestamp> {
        match self.member(name) {
            None | Some(Json::Null) => None,
            Some(Json::Text(text)) => {
                let time = text.parse().ok();
                if time.is_none() {
                    self.fault(name, "is not an RFC 3339 date-time");
                }
                time
            }
            Some(other) => {
                self.fault(name, format!("must be a string, not {}", other.kind()));
                None
            }
        }
    }

    /// A boolean that may be left out.
    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        match self.member(name) {
            None => None,
            Some(Json::Bool(value)) => Some(*value),
            Some(other) => {
                self.fault(name, format!("must be a boolean, not {}", other.kind()));
                None
            }
        }
    }

    /// A number from 0 to [`AMOUNT_MAX`] that may be left out.
    pub fn amount(&mut self, name: &str) -> Option<f64> {
        match self.member(name) {
            None => None,
            Some(Json::Number(number)) if (0.0..=AMOUNT_MAX).contains(&number.as_f64()) => Some(number.as_f64()),
            Some(Json::Number(_)) => {
                self.fault(name, format!("must be from 0 to {AMOUNT_MAX}"));
                None
            }
            Some(other) => {
                self.fault(name, format!("must be a number, not {}", other.kind()));
                None
            }
        }
    }

    /// An object, kept as it is, that may be left out, cleared or set.
    pub fn object_patch(&mut self, name: &str) -> Patch<RawJson> {
        match self.member(name) {
            None => Patch::Keep,
            Some(Json::Null) => Patch::Clear,
            Some(object @ Json::Object(_)) => Patch::Set(object.into()),
            Some(other) => {
                self.fault(name, format!("must be an object, not {}", other.kind()));
                Patch::Keep
            }
        }
    }

    /// An object with members of its own, read by `read` under its path.
    pub fn nested<T>(&mut self, name: &str, read: impl FnOnce(&mut Input<'_>) -> T) -> Patch<T> {
        match self.member(name) {
            None => Patch::Keep,
            Some(Json::Null) => Patch::Clear,
            Some(tree @ Json::Object(_)) => {
                let path = self.path(name);
                let mut inner = Input { tree, prefix: &path, faults: Faults::new() };
                let value = read(&mut inner);
                let found = inner.faults;
                self.faults.extend(found.0);
                Patch::Set(value)
            }
            Some(other) => {
                self.fault(name, format!("must be an object, not {}", other.kind()));
                Patch::Keep
            }
        }
    }

    /// A list of at most `count` texts of at most `max` characters, that may be left out.
    pub fn texts(&mut self, name: &str, count: usize, max: usize) -> Option<Vec<String>> {
        let items = match self.member(name) {
            None | Some(Json::Null) => return None,
            Some(Json::Array(items)) => items,
            Some(other) => {
                self.fault(name, format!("must be an array, not {}", other.kind()));
                return None;
            }
        };
        if items.len() > count {
            self.fault(name, format!("must hold at most {count} items"));
            return None;
        }
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match item {
                Json::Text(text) if text.chars().count() <= max => {
                    let path = self.path(&format!("{name}[{index}]"));
                    self.faults.whole(&path, text);
                    texts.push(text.clone().into_owned());
                }
                Json::Text(_) => {
                    self.fault(&format!("{name}[{index}]"), format!("must be at most {max} characters long"))
                }
                other => self.fault(&format!("{name}[{index}]"), format!("must be a string, not {}", other.kind())),
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
