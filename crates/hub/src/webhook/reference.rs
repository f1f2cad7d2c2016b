//! References into a document: a JSONPath, or the name of a top-level member (contract: Integration webhook).

use isobar_model::error::{Error, Result};
use isobar_model::json::Json;
use isobar_model::jsonpath::{Exhausted, JsonPath, Steps};

/// A reference, and where its faults are told.
#[derive(Debug)]
pub(super) struct Reference {
    field: String,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Path(JsonPath),
    Member(String),
}

impl Reference {
    /// Reads a reference; what begins with `$` is a JSONPath.
    pub fn read(field: String, text: &str) -> Result<Self> {
        let kind = match text.starts_with('$') {
            true => match JsonPath::parse(text) {
                Ok(path) => Kind::Path(path),
                Err(fault) => return Err(Error::invalid(field, format!("is no JSONPath (RFC 9535): {fault}"))),
            },
            false => Kind::Member(text.to_owned()),
        };
        Ok(Self { field, kind })
    }

    /// Everything that it finds in a document. A path that takes too much work is a fault of the parameter.
    pub fn all<'v>(&self, document: &'v Json<'v>, steps: &mut Steps) -> Result<Vec<&'v Json<'v>>> {
        match &self.kind {
            Kind::Path(path) => path.find(document, steps).map_err(|spent| self.too_much(spent)),
            Kind::Member(name) => {
                let members = if let Json::Object(members) = document { members.len() } else { 0 };
                steps.take(1 + members / 8).map_err(|spent| self.too_much(spent))?;
                Ok(document.get(name).into_iter().collect())
            }
        }
    }

    /// Its value: what it finds, or an array of it where that is more than one.
    pub fn value<'v>(&self, document: &'v Json<'v>, steps: &mut Steps) -> Result<Option<ReferenceValue<'v>>> {
        let mut found = self.all(document, steps)?;
        Ok(match found.len() {
            0 => None,
            1 => found.pop().map(ReferenceValue::One),
            _ => Some(ReferenceValue::Several(found)),
        })
    }

    /// The refusal of a delivery for this reference's sake.
    pub fn refuse(&self, why: impl Into<String>) -> Error {
        Error::invalid(self.field.as_str(), why)
    }

    fn too_much(&self, spent: Exhausted) -> Error {
        self.refuse(spent.to_string())
    }
}

/// What a reference found.
pub(super) enum ReferenceValue<'v> {
    One(&'v Json<'v>),
    Several(Vec<&'v Json<'v>>),
}

impl ReferenceValue<'_> {
    /// Whether that is one JSON null.
    pub fn is_null(&self) -> bool {
        matches!(self, ReferenceValue::One(Json::Null))
    }

    /// Writes it as JSON, numbers as they were written; false when more than `most` bytes are there by then.
    pub fn write(&self, out: &mut Vec<u8>, most: usize) -> bool {
        match self {
            ReferenceValue::One(value) => value.write(out),
            ReferenceValue::Several(values) => {
                out.push(b'[');
                for (index, value) in values.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    value.write(out);
                    // The same large value may have been found a million times.
                    if out.len() > most {
                        return false;
                    }
                }
                out.push(b']');
            }
        }
        out.len() <= most
    }
}
