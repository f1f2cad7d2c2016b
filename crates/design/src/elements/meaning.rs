//! The description of a key, for texts that quote its value: title, unit, decimals, and texts in place of values.

use std::collections::HashMap;
use std::sync::Arc;

use isobar_model::json::Json;

use super::fields;
use crate::expression::Expression;
use crate::value::Num;
use crate::value::held_bytes::HeldBytes;

/// Numbers from here on are quoted unchanged: decimals are meaningless for them.
const ROUNDED_BELOW: f64 = 1e15;
/// Locale of the title that is used, which is that of texts without translations.
const LOCALE: &str = "en";

/// Description of a key.
#[derive(Debug, Default)]
pub(crate) struct Meaning {
    title: Box<str>,
    pub(crate) unit: Box<str>,
    decimals: Option<usize>,
    words: Vec<(Box<str>, Box<str>)>,
}

impl HeldBytes for Meaning {
    fn held_bytes(&self) -> usize {
        self.title.held_bytes() + self.unit.held_bytes() + self.words.held_bytes()
    }
}

impl Meaning {
    /// Reads the description of a path; faulty parts are omitted.
    fn read(said: &Json<'_>) -> Self {
        let text = |name: &str| said.get(name).and_then(Json::as_text).unwrap_or_default().into();
        let title = match said.get("title") {
            Some(Json::Object(titles)) => {
                let own = titles.iter().find(|(locale, _)| locale == LOCALE).or(titles.first());
                own.and_then(|(_, title)| title.as_text()).unwrap_or_default().into()
            }
            _ => text("title"),
        };
        let decimals = match said.get("decimals") {
            Some(Json::Number(number)) => number.as_i64().and_then(|decimals| usize::try_from(decimals).ok()),
            _ => None,
        };
        let words = match said.get("words") {
            Some(Json::Object(words)) => {
                words.iter().filter_map(|(value, word)| Some((value.as_ref().into(), word.as_text()?.into()))).collect()
            }
            _ => Vec::new(),
        };
        Self {
            title,
            unit: text("unit"),
            decimals: decimals.filter(|decimals| *decimals <= fields::DECIMALS_MAX),
            words,
        }
    }

    /// Formats a value for users, given its plain text.
    pub(crate) fn told(&self, text: &str, number: Option<Num>, has_title: bool, has_unit: bool) -> String {
        let word = self.words.iter().find(|(value, _)| **value == *text).map(|(_, word)| word);
        let mut told = match (word, number) {
            (Some(word), _) => word.to_string(),
            (None, Some(number)) => self.rounded(number).unwrap_or_else(|| text.to_owned()),
            (None, None) => text.to_owned(),
        };
        if word.is_none() && number.is_some() && has_unit && !self.unit.is_empty() {
            told = format!("{told} {}", self.unit);
        }
        if has_title && !self.title.is_empty() {
            told = format!("{}: {told}", self.title);
        }
        told
    }

    fn rounded(&self, number: Num) -> Option<String> {
        let decimals = self.decimals?;
        match number {
            Num::Int(int) if decimals == 0 => Some(int.to_string()),
            Num::Int(int) => Some(format!("{int}.{:0<decimals$}", "")),
            Num::Double(double) if double.abs() < ROUNDED_BELOW => {
                let rounded = format!("{double:.decimals$}");
                let is_nothing = !rounded.bytes().any(|digit| (b'1'..=b'9').contains(&digit));
                Some(rounded.strip_prefix('-').filter(|_| is_nothing).map(str::to_owned).unwrap_or(rounded))
            }
            Num::Double(_) => None,
        }
    }
}

/// Descriptions of keys by the storage elements of a design.
#[derive(Debug, Default)]
pub(crate) struct Meanings {
    /// Descriptions by the element's index among the storages, and the names of a path.
    stored: HashMap<(u32, Vec<String>), Arc<Meaning>>,
    /// Descriptions by path only: that of the first storage element.
    incoming: HashMap<Vec<String>, Arc<Meaning>>,
}

impl Meanings {
    /// Adds the fields of a storage element.
    pub(crate) fn add(&mut self, storage: u32, fields: &Json<'_>) {
        let Json::Object(fields) = fields else { return };
        for (path, said) in fields.iter().take(fields::FIELDS_MAX) {
            let Ok(keys) = fields::keys(path) else { continue };
            let meaning = Arc::new(Meaning::read(said));
            self.incoming.entry(keys.clone()).or_insert_with(|| Arc::clone(&meaning));
            self.stored.insert((storage, keys), meaning);
        }
    }

    /// Finds the description of the value that an expression names, if it does nothing else.
    pub(crate) fn of(&self, expression: &Expression) -> Option<Arc<Meaning>> {
        let (storage, keys) = expression.named_value()?;
        match storage {
            Some(storage) => self.stored.get(&(storage, keys)),
            None => self.incoming.get(&keys),
        }
        .cloned()
    }
}
