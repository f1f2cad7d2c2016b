//! Describes the tables that are moved as the schema has them, and encodes their rows for a copy.

use sqlx::error::BoxDynError;
use sqlx::sqlite::{SqliteRow, SqliteValueRef};
use sqlx::{Decode, Row as _, Sqlite, TypeInfo as _, ValueRef as _};

use crate::postgres::copied_rows::{bytes, maybe, number};

/// Kind of the values in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Number,
    Float,
    Text,
    Bytes,
}

impl ColumnKind {
    /// Returns the kind of a column by its type in SQLite's schema.
    pub(super) fn declared(word: &str) -> Option<Self> {
        match word {
            "BIGINT" | "INTEGER" => Some(Self::Number),
            "DOUBLE PRECISION" => Some(Self::Float),
            "TEXT" => Some(Self::Text),
            "BLOB" => Some(Self::Bytes),
            _ => None,
        }
    }

    /// Returns the name that PostgreSQL has for the type.
    pub(super) fn in_postgres(self) -> &'static str {
        match self {
            Self::Number => "bigint",
            Self::Float => "double precision",
            Self::Text => "text",
            Self::Bytes => "bytea",
        }
    }

    /// Returns the name that the driver has for values of SQLite that fit.
    fn in_sqlite(self) -> &'static str {
        match self {
            Self::Number => "INTEGER",
            Self::Float => "REAL",
            Self::Text => "TEXT",
            Self::Bytes => "BLOB",
        }
    }
}

/// Column of a table.
#[derive(Clone, Debug)]
pub(super) struct RegistryColumn {
    pub(super) name: String,
    pub(super) kind: ColumnKind,
    /// True if it has no NULL.
    pub(super) is_required: bool,
    /// Place in the primary key, from 1; 0 outside of it.
    pub(super) key_place: i64,
}

/// Table whose rows are moved.
#[derive(Clone, Debug)]
pub(super) struct RegistryTable {
    pub(super) name: String,
    pub(super) columns: Vec<RegistryColumn>,
}

impl RegistryTable {
    fn column_list(&self) -> String {
        let columns: Vec<_> = self.columns.iter().map(|column| quoted(&column.name)).collect();
        columns.join(", ")
    }

    /// Returns the query for all rows in the file: along the table itself, as an index would hide what is damaged in it.
    pub(super) fn select(&self) -> String {
        format!("SELECT {}, rowid FROM {} NOT INDEXED", self.column_list(), quoted(&self.name))
    }

    /// Returns the statement that writes rows. They need no look by a vacuum later, as nobody sees them before the commit.
    pub(super) fn copy_in(&self) -> String {
        format!("COPY {} ({}) FROM STDIN (FORMAT binary, FREEZE)", quoted(&self.name), self.column_list())
    }

    /// Returns the statement that reads the rows again.
    pub(super) fn copy_out(&self) -> String {
        format!("COPY {} ({}) TO STDOUT (FORMAT binary)", quoted(&self.name), self.column_list())
    }

    /// Writes the number of columns that a row has.
    pub(super) fn write_count(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(&(self.columns.len() as i16).to_be_bytes());
    }

    /// Writes the columns of a row.
    ///
    /// # Errors
    /// The row and what is wrong with it, in words.
    pub(super) fn write_row(&self, row: &SqliteRow, to: &mut Vec<u8>) -> Result<(), String> {
        for (index, column) in self.columns.iter().enumerate() {
            let written = row.try_get_raw(index).map_err(BoxDynError::from).and_then(|value| column.write(value, to));
            written.map_err(|why| format!("{} ({}): {}: {why}", self.name, self.name_of(row), column.name))?;
        }
        Ok(())
    }

    /// Names a row by its primary key, or else by its place.
    fn name_of(&self, row: &SqliteRow) -> String {
        let mut key: Vec<_> = self.columns.iter().enumerate().filter(|(_, column)| column.key_place > 0).collect();
        key.sort_by_key(|(_, column)| column.key_place);
        let named = |(index, column): (usize, &RegistryColumn)| {
            let value = match column.kind {
                ColumnKind::Number => row.try_get_unchecked::<Option<i64>, _>(index).ok()??.to_string(),
                ColumnKind::Text => row.try_get_unchecked::<Option<String>, _>(index).ok()??,
                ColumnKind::Float | ColumnKind::Bytes => return None,
            };
            Some(format!("{} {value:?}", column.name))
        };
        let names: Vec<_> = key.into_iter().filter_map(named).collect();
        if !names.is_empty() {
            return names.join(", ");
        }
        row.try_get::<i64, _>(self.columns.len()).map_or_else(|_| "unknown".to_owned(), |place| format!("row {place}"))
    }
}

impl RegistryColumn {
    fn write(&self, value: SqliteValueRef<'_>, to: &mut Vec<u8>) -> Result<(), BoxDynError> {
        if value.is_null() {
            if self.is_required {
                return Err("there is no value".into());
            }
            maybe(to, None);
            return Ok(());
        }
        let found = value.type_info().name().to_owned();
        if found != self.kind.in_sqlite() {
            return Err(format!("it is {found}, not {}", self.kind.in_sqlite()).into());
        }
        match self.kind {
            ColumnKind::Number => number(to, decoded::<i64>(value)?),
            ColumnKind::Float => bytes(to, &decoded::<f64>(value)?.to_be_bytes()),
            ColumnKind::Bytes => bytes(to, decoded::<&[u8]>(value)?),
            ColumnKind::Text => {
                let text = decoded::<&str>(value)?;
                if text.contains('\0') {
                    return Err("the text has U+0000, which PostgreSQL allows in no text".into());
                }
                bytes(to, text.as_bytes());
            }
        }
        Ok(())
    }
}

fn decoded<'r, T: Decode<'r, Sqlite>>(value: SqliteValueRef<'r>) -> Result<T, BoxDynError> {
    T::decode(value)
}

/// Quotes a name for both dialects.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
