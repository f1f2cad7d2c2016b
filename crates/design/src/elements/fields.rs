//! `fields` of a storage element: descriptions of the keys of its values for users. Expressions cannot read them; texts
//! that quote a value are formatted by them (`meaning.rs`).

use std::borrow::Cow;
use std::collections::BTreeMap;

use isobar_model::json::{Json, Number, RawJson, compare_numbers};
use isobar_model::path::path_beneath;

use super::properties::Properties;
use crate::value::beginning;

/// Most paths that one storage element describes.
pub(super) const FIELDS_MAX: usize = 200;
/// Longest path, in characters.
const PATH_CHARS_MAX: usize = 512;
/// Longest title, in characters.
const FIELD_TITLE_CHARS_MAX: usize = 200;
/// Longest unit, in characters.
const UNIT_CHARS_MAX: usize = 32;
/// Most locales of one title.
const LOCALES_MAX: usize = 50;
/// Longest name of a locale, in characters.
const LOCALE_CHARS_MAX: usize = 35;
/// Most decimals of a number.
pub(super) const DECIMALS_MAX: usize = 12;
/// Most value texts of one path.
const WORDS_MAX: usize = 50;
/// Longest value that has a text, and longest text, in characters.
const WORD_CHARS_MAX: usize = 128;

/// Name of the property.
const PROPERTY: &str = "fields";
/// The root of all paths.
const ROOT: &str = "payload";

/// A member of a field; null counts as absent.
type Member<'j> = (Cow<'j, str>, Json<'j>);

/// Reads the property: an object by path, without nulls; `None` if it is empty.
///
/// Faults in a stored design are ignored, and the faulty parts left out: it was written before these rules, and must
/// keep running.
pub(super) fn read(properties: &mut Properties<'_>) -> Option<RawJson> {
    let value = properties.get(PROPERTY)?;
    let mut reader = Reader { faults: Vec::new() };
    let fields = reader.fields(value);
    if !properties.scope.code_time.is_of_stored() {
        for (place, message) in &reader.faults {
            properties.fault(place, message.as_str());
        }
    }
    let is_said = reader.faults.is_empty() && !fields.is_empty();
    is_said.then(|| RawJson::from(&Json::Object(fields)))
}

/// Reads fields, and collects their faults.
struct Reader {
    /// Faults with their places beneath the properties.
    faults: Vec<(String, String)>,
}

impl Reader {
    fn fault(&mut self, place: &str, message: impl Into<String>) {
        self.faults.push((place.to_owned(), message.into()));
    }

    fn fields<'j>(&mut self, value: &Json<'j>) -> Vec<Member<'j>> {
        let Json::Object(members) = value else {
            self.fault(PROPERTY, "must be an object");
            return Vec::new();
        };
        if members.len() > FIELDS_MAX {
            self.fault(PROPERTY, format!("must have at most {FIELDS_MAX} paths"));
            return Vec::new();
        }
        let mut paths = BTreeMap::<Vec<String>, &str>::new();
        let mut fields = Vec::with_capacity(members.len());
        for (path, value) in members.iter().filter(|(_, value)| !matches!(value, Json::Null)) {
            let place = format!("{PROPERTY}.{}", beginning(path, PATH_CHARS_MAX));
            match keys(path) {
                Err(message) => self.fault(&place, message),
                Ok(keys) => {
                    if let Some(other) = paths.insert(keys, path) {
                        self.fault(&place, format!("names the same as '{other}'"));
                    }
                }
            }
            fields.push((path.clone(), Json::Object(self.field(&place, value))));
        }
        fields
    }

    /// Reads the description of one path.
    fn field<'j>(&mut self, place: &str, value: &Json<'j>) -> Vec<Member<'j>> {
        let Json::Object(members) = value else {
            self.fault(place, "must be an object");
            return Vec::new();
        };
        let said: Vec<Member<'j>> = members.iter().filter(|(_, value)| !matches!(value, Json::Null)).cloned().collect();
        for (name, value) in &said {
            let place = format!("{place}.{}", beginning(name, WORD_CHARS_MAX));
            match name.as_ref() {
                "title" => self.title(&place, value),
                "unit" => self.text(&place, value, UNIT_CHARS_MAX),
                "decimals" => self.decimals(&place, value),
                "minimum" | "maximum" | "low" | "high" => self.number(&place, value),
                "words" => self.words(&place, value),
                _ => self.fault(&place, "unknown: title, unit, decimals, minimum, maximum, low, high or words"),
            }
        }
        self.ordered(place, value, "minimum", "maximum");
        self.ordered(place, value, "low", "high");
        said
    }

    fn text(&mut self, place: &str, value: &Json<'_>, most: usize) {
        if !value.as_text().is_some_and(|text| (1..=most).contains(&text.chars().count())) {
            self.fault(place, format!("must be a string of 1 to {most} characters"));
        }
    }

    fn title(&mut self, place: &str, value: &Json<'_>) {
        match value {
            Json::Text(_) => self.text(place, value, FIELD_TITLE_CHARS_MAX),
            Json::Object(texts) if (1..=LOCALES_MAX).contains(&texts.len()) => {
                self.texts(place, texts, LOCALE_CHARS_MAX, FIELD_TITLE_CHARS_MAX);
            }
            Json::Object(_) => self.fault(place, format!("must have 1 to {LOCALES_MAX} locales")),
            _ => self.fault(place, "must be a string, or an object of strings by locale"),
        }
    }

    fn words(&mut self, place: &str, value: &Json<'_>) {
        match value {
            Json::Object(words) if words.len() <= WORDS_MAX => self.texts(place, words, WORD_CHARS_MAX, WORD_CHARS_MAX),
            Json::Object(_) => self.fault(place, format!("must have at most {WORDS_MAX} words")),
            _ => self.fault(place, "must be an object of strings by value"),
        }
    }

    fn texts(&mut self, place: &str, texts: &[Member<'_>], name_most: usize, most: usize) {
        for (name, text) in texts {
            let place = format!("{place}.{}", beginning(name, name_most));
            if name.chars().count() > name_most {
                self.fault(&place, format!("its name must have at most {name_most} characters"));
            }
            self.text(&place, text, most);
        }
    }

    fn decimals(&mut self, place: &str, value: &Json<'_>) {
        let whole =
            |number: &Number<'_>| number.as_i64().is_some_and(|number| (0..=DECIMALS_MAX as i64).contains(&number));
        if !matches!(value, Json::Number(number) if whole(number)) {
            self.fault(place, format!("must be a whole number from 0 to {DECIMALS_MAX}"));
        }
    }

    fn number(&mut self, place: &str, value: &Json<'_>) {
        if !matches!(value, Json::Number(_)) {
            self.fault(place, "must be a number");
        }
    }

    /// Refuses a lower bound above the upper one.
    fn ordered(&mut self, place: &str, field: &Json<'_>, lower: &str, upper: &str) {
        if let (Some(Json::Number(low)), Some(Json::Number(high))) = (field.get(lower), field.get(upper))
            && compare_numbers(low, high).is_gt()
        {
            self.fault(&format!("{place}.{lower}"), format!("must be at most {upper}"));
        }
    }
}

/// Returns the keys of a path, empty for the payload itself, or the fault of the path.
pub(super) fn keys(path: &str) -> Result<Vec<String>, String> {
    if path.chars().count() > PATH_CHARS_MAX {
        return Err(format!("a path has at most {PATH_CHARS_MAX} characters"));
    }
    if path == ROOT {
        return Ok(Vec::new());
    }
    path_beneath(ROOT, path)
        .ok_or_else(|| "must be a path as payload.a.b or payload[\"a b\"], or payload itself".to_owned())
}
