//! Resolves references into a document: a JSONPath, or the name of a top-level member (contract: Integration webhook).

use isobar_model::error::{Error, Result};
use isobar_model::json::Json;
use isobar_model::jsonpath::{Exhausted, JsonPath, Steps};

/// A reference, with the field name for its faults.
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
    /// Parses a reference; a text that begins with `$` is a JSONPath.
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

    /// Returns all nodes that it finds in a document. A path that needs too much work is a fault of the parameter.
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

    /// Returns its value: the node that it finds, or an array of several.
    pub fn value<'v>(&self, document: &'v Json<'v>, steps: &mut Steps) -> Result<Option<ReferenceValue<'v>>> {
        let mut found = self.all(document, steps)?;
        Ok(match found.len() {
            0 => None,
            1 => found.pop().map(ReferenceValue::One),
            _ => Some(ReferenceValue::Several(found)),
        })
    }

    /// Makes an error that refuses a delivery because of this reference.
    pub fn refuse(&self, why: impl Into<String>) -> Error {
        Error::invalid(self.field.as_str(), why)
    }

    fn too_much(&self, spent: Exhausted) -> Error {
        self.refuse(spent.to_string())
    }
}

/// The nodes that a reference found.
pub(super) enum ReferenceValue<'v> {
    One(&'v Json<'v>),
    Several(Vec<&'v Json<'v>>),
}

impl ReferenceValue<'_> {
    /// Returns true if the value is a single JSON null.
    pub fn is_null(&self) -> bool {
        matches!(self, ReferenceValue::One(Json::Null))
    }

    /// Writes the value as JSON, with numbers unchanged; returns false if `out` exceeds `most` bytes.
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
