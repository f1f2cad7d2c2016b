//! Columns of a CSV, as given by the parameter `columns` (contract: Data).

use isobar_hub::FilterField;
use isobar_model::json::Step;

/// A column of a CSV.
#[derive(Clone, Debug)]
pub(crate) struct CsvColumn {
    /// Name as the client wrote it.
    pub name: String,
    pub source: ColumnSource,
}

/// Source of a column's cells.
#[derive(Clone, Debug)]
pub(crate) enum ColumnSource {
    Id,
    CreatedAt,
    /// Path within the payload.
    Payload(Vec<Step>),
}

impl CsvColumn {
    /// Makes the column of a field, under the client's name for it.
    pub fn new(name: &str, field: FilterField) -> Self {
        let source = match field {
            FilterField::Id => ColumnSource::Id,
            FilterField::CreatedAt => ColumnSource::CreatedAt,
            FilterField::Payload(path) => ColumnSource::Payload(path.into_iter().map(Step::new).collect()),
        };
        Self { name: name.to_owned(), source }
    }

    /// Returns the default columns.
    pub fn usual() -> Vec<Self> {
        vec![
            Self::new("createdAt", FilterField::CreatedAt),
            Self::new("id", FilterField::Id),
            Self::new("payload", FilterField::Payload(Vec::new())),
        ]
    }
}
