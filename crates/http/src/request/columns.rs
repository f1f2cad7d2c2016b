//! The columns of a CSV, as the parameter `columns` names them (contract: Data).

use isobar_hub::FilterField;
use isobar_model::json::Step;

/// A column of a CSV.
#[derive(Clone, Debug)]
pub(crate) struct CsvColumn {
    /// Its name, in the words of the client.
    pub name: String,
    pub source: ColumnSource,
}

/// Where the cells of a column come from.
#[derive(Clone, Debug)]
pub(crate) enum ColumnSource {
    Id,
    CreatedAt,
    /// The path within the payload.
    Payload(Vec<Step>),
}

impl CsvColumn {
    /// The column of a field, under the name that the client calls it by.
    pub fn new(name: &str, field: FilterField) -> Self {
        let source = match field {
            FilterField::Id => ColumnSource::Id,
            FilterField::CreatedAt => ColumnSource::CreatedAt,
            FilterField::Payload(path) => ColumnSource::Payload(path.into_iter().map(Step::new).collect()),
        };
        Self { name: name.to_owned(), source }
    }

    /// The columns of a CSV whose request names none.
    pub fn usual() -> Vec<Self> {
        vec![
            Self::new("createdAt", FilterField::CreatedAt),
            Self::new("id", FilterField::Id),
            Self::new("payload", FilterField::Payload(Vec::new())),
        ]
    }
}
