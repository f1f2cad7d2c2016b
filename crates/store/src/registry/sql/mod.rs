//! Writes plain SQL with bound parameters, the same text for both dialects. Only this module knows which database
//! answers.

mod advisory_locks;
pub(crate) mod connections;
mod driver;
pub(crate) mod sqlite_file;
pub(crate) mod transaction;

use std::str::FromStr;

use bytes::Bytes;
use isobar_model::access::Lineage;
use isobar_model::ids::{
    AlarmId, ApiKeyId, BoardLinkId, DashboardId, DeviceId, DeviceKey, NotificationId, OrganizationId, ProjectId,
    SessionId, SettingId, UserId, ViewId,
};
use isobar_model::json::RawJson;
use isobar_model::secret::Digest;
use isobar_model::time::Timestamp;

pub(crate) use advisory_locks::AdvisoryLock;
use driver::{AnswerKind, RawRow, Readable, Statement, Value};
pub(crate) use driver::{Connection, DriverError, OwnConnection};

use crate::error::{Result, StoreError};
use crate::postgres::note_no_connection;

/// Database that answers. Its methods spell the few phrases in which the two differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    pub(crate) fn of(connection: &impl Connection) -> Self {
        connection.dialect()
    }

    /// Chooses the spelling of this dialect.
    pub(crate) fn either(self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        match self {
            Self::Sqlite => sqlite,
            Self::Postgres => postgres,
        }
    }

    /// Locks the rows read for a change until the transaction ends. SQLite needs no clause: its one writer locks
    /// everything.
    pub(crate) fn hold_for_change(self) -> &'static str {
        self.either("", " FOR NO KEY UPDATE")
    }

    /// Locks the rows read for a change, and leaves out those that others have locked.
    pub(crate) fn hold_free(self) -> &'static str {
        self.either("", " FOR NO KEY UPDATE SKIP LOCKED")
    }

    /// Locks the rows read until the transaction ends, so that no other transaction can refer to them or change them.
    pub(crate) fn hold_alone(self) -> &'static str {
        self.either("", " FOR UPDATE")
    }

    /// Locks the rows read against removal until the transaction ends.
    pub(crate) fn hold_in_place(self) -> &'static str {
        self.either("", " FOR KEY SHARE")
    }

    /// Names the function that returns the position of a text in another, from 1, or 0 if it is absent: a search
    /// without wildcards.
    pub(crate) fn position(self) -> &'static str {
        self.either("instr", "strpos")
    }

    /// Spells a column so that SQLite's planner does not use its index; PostgreSQL's planner has statistics and decides
    /// by itself.
    pub(crate) fn unindexed(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("+{column}"),
            Self::Postgres => column.to_owned(),
        }
    }

    /// Returns true if looking up many indexed rows one by one is slow. SQLite seeks each row anew, whatever page holds
    /// it; PostgreSQL's planner knows when to read rows in their physical order.
    pub(crate) fn reads_scattered_rows_dearly(self) -> bool {
        self == Self::Sqlite
    }

    /// Names the function that returns the larger of two numbers.
    pub(crate) fn larger(self) -> &'static str {
        self.either("max", "greatest")
    }

    /// Selects the texts of one bound JSON array as rows: one parameter, whatever the length of the list.
    fn rows_of_texts(self) -> &'static str {
        self.either("(SELECT value FROM json_each(?))", "(SELECT jsonb_array_elements_text(?::jsonb))")
    }

    /// Selects the numbers of one bound JSON array as rows.
    fn rows_of_numbers(self) -> &'static str {
        self.either("(SELECT value FROM json_each(?))", "(SELECT jsonb_array_elements_text(?::jsonb)::bigint)")
    }

    /// Selects the arrays in one bound JSON array as rows of these columns, texts or numbers.
    fn rows_of_arrays(self, columns: &[Column]) -> String {
        let column = |(index, column): (usize, &Column)| match (self, column) {
            (Self::Sqlite, Column::Text(name) | Column::Number(name)) => {
                format!("json_extract(value, '$[{index}]') AS {name}")
            }
            (Self::Postgres, Column::Text(name)) => format!("entry->>{index} AS {name}"),
            (Self::Postgres, Column::Number(name)) => format!("(entry->>{index})::bigint AS {name}"),
        };
        let columns: Vec<_> = columns.iter().enumerate().map(column).collect();
        let from = self.either("json_each(?)", "jsonb_array_elements(?::jsonb) AS entry");
        format!("(SELECT {} FROM {from})", columns.join(", "))
    }
}

/// Column of a relation that is bound as one parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    Text(&'static str),
    Number(&'static str),
}

/// Builder of a statement: text with a `?` for each value, and the values in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sql {
    text: String,
    values: Vec<Value>,
}

impl Sql {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), values: Vec::new() }
    }

    /// Binds a value to the next `?`.
    pub(crate) fn bind(mut self, value: impl Bound) -> Self {
        self.values.push(value.bound());
        self
    }

    /// Appends `VALUES` with this number of rows and columns of placeholders, to be bound one after the other.
    pub(crate) fn values(self, rows: usize, columns: usize) -> Self {
        let row = format!("({})", vec!["?"; columns].join(", "));
        self.text(" VALUES ").text(&vec![row; rows].join(", "))
    }

    /// Appends text.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// Appends another builder's text, and its values after those bound already.
    pub(crate) fn then(mut self, piece: Sql) -> Self {
        self.text.push_str(&piece.text);
        self.values.extend(piece.values);
        self
    }

    /// Appends `IN` and a list of texts.
    pub(crate) fn among<T: ToString>(self, dialect: Dialect, texts: impl IntoIterator<Item = T>) -> Self {
        // No stored text contains U+0000, and PostgreSQL would refuse the whole question.
        let texts = texts.into_iter().map(|text| text.to_string()).filter(|text| !text.contains('\0'));
        let list: Vec<_> = texts.map(serde_json::Value::String).collect();
        self.text(" IN ").text(dialect.rows_of_texts()).bind(serde_json::Value::Array(list).to_string())
    }

    /// Appends `IN` and a list of numbers.
    pub(crate) fn among_numbers(self, dialect: Dialect, numbers: &[i64]) -> Self {
        let list = serde_json::Value::from(numbers).to_string();
        self.text(" IN ").text(dialect.rows_of_numbers()).bind(list)
    }

    /// Appends a relation with the columns `item` and `moment`, from pairs.
    pub(crate) fn moments(
        self,
        dialect: Dialect,
        pairs: impl IntoIterator<Item = (serde_json::Value, Timestamp)>,
    ) -> Self {
        let list = pairs.into_iter().map(|(item, moment)| serde_json::json!([item, moment.millis()]));
        self.relation(dialect, &[Column::Text("item"), Column::Number("moment")], list)
    }

    /// Appends a relation with these columns, from arrays of as many texts and numbers; nulls stay null.
    pub(crate) fn relation(
        self,
        dialect: Dialect,
        columns: &[Column],
        rows: impl IntoIterator<Item = serde_json::Value>,
    ) -> Self {
        let list = serde_json::Value::Array(rows.into_iter().collect());
        self.text(&dialect.rows_of_arrays(columns)).bind(list.to_string())
    }

    /// Appends a relation with the columns `item` and `amount`, from pairs.
    pub(crate) fn amounts(self, dialect: Dialect, pairs: impl IntoIterator<Item = (serde_json::Value, u64)>) -> Self {
        let list = pairs.into_iter().map(|(item, amount)| serde_json::json!([item, amount]));
        self.relation(dialect, &[Column::Text("item"), Column::Number("amount")], list)
    }

    /// Returns the text before it is spelled for a dialect.
    #[cfg(test)]
    pub(crate) fn written(&self) -> &str {
        &self.text
    }

    fn statement(self, dialect: Dialect, kind: AnswerKind) -> Statement {
        let text = match dialect {
            Dialect::Postgres => numbered(&self.text),
            Dialect::Sqlite => self.text,
        };
        Statement { text, values: self.values, kind }
    }
}

/// Numbers the parameters as PostgreSQL demands: `$1`, `$2`.
fn numbered(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 32);
    for (index, part) in text.split('?').enumerate() {
        if index > 0 {
            out.push('$');
            out.push_str(&index.to_string());
        }
        out.push_str(part);
    }
    out
}

/// Returns the first row, or `None`.
pub(crate) async fn one(connection: &impl Connection, sql: Sql) -> Result<Option<Row>> {
    let statement = sql.statement(connection.dialect(), AnswerKind::FirstRow);
    Ok(connection.ask(statement).await.map_err(failure)?.rows.pop().map(Row))
}

/// Returns all rows.
pub(crate) async fn all(connection: &impl Connection, sql: Sql) -> Result<Vec<Row>> {
    let statement = sql.statement(connection.dialect(), AnswerKind::AllRows);
    Ok(connection.ask(statement).await.map_err(failure)?.rows.into_iter().map(Row).collect())
}

/// Executes a change and returns how many rows it touched.
pub(crate) async fn run(connection: &impl Connection, sql: Sql) -> Result<u64> {
    let statement = sql.statement(connection.dialect(), AnswerKind::Count);
    Ok(connection.ask(statement).await.map_err(failure)?.touched)
}

/// Executes statements that have no values, in the spelling of the dialect.
pub(crate) async fn run_script(connection: &impl Connection, text: String) -> Result<()> {
    let statement = Statement { text, values: Vec::new(), kind: AnswerKind::Success };
    connection.ask(statement).await.map(drop).map_err(failure)
}

/// Converts a failure of the database to an error of this crate. Unique names are claimed with `ON CONFLICT` and never
/// fail here; a foreign key that fails refers to a row that was removed.
pub(crate) fn failure(error: DriverError) -> StoreError {
    let cause = match &error {
        DriverError::Connection(cause) | DriverError::Statement(cause) => cause,
        DriverError::Away(away) => return away.clone().into(),
        DriverError::Broken => return StoreError::unavailable(error),
    };
    let Some(database) = cause.as_database_error() else {
        return match **cause {
            sqlx::Error::PoolTimedOut => {
                note_no_connection();
                StoreError::Busy
            }
            _ => StoreError::unavailable(error),
        };
    };
    if database.is_foreign_key_violation() {
        return StoreError::Gone("what it refers to");
    }
    match database.code().as_deref() {
        // SQLITE_BUSY and its extended forms; deadlock, serialization failure, lock timeout, too many connections.
        Some("5" | "261" | "517" | "40P01" | "40001" | "55P03" | "53300") => StoreError::Busy,
        Some(code) if sqlite_file::tells_of_damage(code) => sqlite_file::damage(&error),
        _ => StoreError::unavailable(error),
    }
}

/// Returns true if the database refused a statement because of its content: a constraint, a value that is too large or
/// of another type, a trigger.
pub(crate) fn refuses(cause: &(dyn std::error::Error + 'static)) -> bool {
    let Some(DriverError::Statement(cause)) = cause.downcast_ref::<DriverError>() else { return false };
    let Some(code) = cause.as_database_error().and_then(|error| error.code()) else { return false };
    match code.parse::<u32>() {
        // SQLSTATE has five characters; the first two are its class: data, integrity, program limits.
        _ if code.len() == 5 => ["22", "23", "54", "P0"].iter().any(|class| code.starts_with(class)),
        // Extended codes of SQLite have the plain one in their last byte: TOOBIG, CONSTRAINT, MISMATCH, RANGE.
        Ok(code) => matches!(code & 0xff, 18 | 19 | 20 | 25),
        Err(_) => false,
    }
}

/// Value that a parameter can take.
pub(crate) trait Bound {
    /// Converts the value to one that the driver binds.
    fn bound(self) -> Value;
    /// Returns the null of this type.
    fn absent() -> Value;
}

macro_rules! bound {
    ($($type:ty => $variant:ident, $read:expr;)*) => {$(
        impl Bound for $type {
            fn bound(self) -> Value {
                let read: fn($type) -> _ = $read;
                Value::$variant(Some(read(self)))
            }

            fn absent() -> Value {
                Value::$variant(None)
            }
        }
    )*};
}

bound! {
    String => Text, without_nul;
    i64 => Number, |number| number;
    u64 => Number, |number| i64::try_from(number).unwrap_or(i64::MAX);
    f64 => Float, |number| number;
    // Booleans are stored as numbers: SQLite has no boolean type, and one form serves both.
    bool => Number, i64::from;
    Timestamp => Number, Timestamp::millis;
    DeviceKey => Number, |key| i64::try_from(key.0).unwrap_or(i64::MAX);
    Digest => Bytes, |digest| digest.0.to_vec();
    Vec<u8> => Bytes, |bytes| bytes;
    RawJson => Text, |json| json.text().to_owned();
    OrganizationId => Text, |id| id.to_string();
    UserId => Text, |id| id.to_string();
    ProjectId => Text, |id| id.to_string();
    DeviceId => Text, |id| id.to_string();
    SessionId => Text, |id| id.to_string();
    DashboardId => Text, |id| id.to_string();
    BoardLinkId => Text, |id| id.to_string();
    ApiKeyId => Text, |id| id.to_string();
    SettingId => Text, |id| id.to_string();
    NotificationId => Text, |id| id.to_string();
    AlarmId => Text, |id| id.to_string();
    ViewId => Text, |id| id.to_string();
}

impl Bound for &str {
    fn bound(self) -> Value {
        Value::Text(Some(without_nul(self.to_owned())))
    }

    fn absent() -> Value {
        Value::Text(None)
    }
}

impl<T: Bound> Bound for Option<T> {
    fn bound(self) -> Value {
        self.map_or_else(T::absent, T::bound)
    }

    fn absent() -> Value {
        T::absent()
    }
}

/// Removes U+0000, which PostgreSQL allows in no text. Both dialects leave it out, so that both store the same.
pub(crate) fn without_nul(mut text: String) -> String {
    if text.contains('\0') {
        text.retain(|character| character != '\0');
    }
    text
}

/// Row of an answer. A column that cannot be read is reported as damage, without a panic.
pub(crate) struct Row(RawRow);

impl Row {
    fn get<T: Readable>(&self, column: &str) -> Result<T> {
        self.0.get(column).map_err(|error| StoreError::Damaged(format!("column {column}: {error}")))
    }

    pub(crate) fn text(&self, column: &str) -> Result<String> {
        self.get(column)
    }

    pub(crate) fn text_if(&self, column: &str) -> Result<Option<String>> {
        self.get(column)
    }

    pub(crate) fn number(&self, column: &str) -> Result<i64> {
        self.get(column)
    }

    pub(crate) fn number_if(&self, column: &str) -> Result<Option<i64>> {
        self.get(column)
    }

    pub(crate) fn count(&self, column: &str) -> Result<u64> {
        let number: i64 = self.get(column)?;
        u64::try_from(number).map_err(|_| StoreError::Damaged(format!("column {column}: {number} is no count")))
    }

    pub(crate) fn truth(&self, column: &str) -> Result<bool> {
        Ok(self.number(column)? != 0)
    }

    pub(crate) fn float(&self, column: &str) -> Result<f64> {
        self.get(column)
    }

    pub(crate) fn float_if(&self, column: &str) -> Result<Option<f64>> {
        self.get(column)
    }

    /// Reads a number that stands for one of a few variants.
    pub(crate) fn named<T>(&self, column: &str, read: impl FnOnce(i64) -> Option<T>) -> Result<T> {
        let number = self.number(column)?;
        read(number).ok_or_else(|| StoreError::Damaged(format!("column {column}: {number} means nothing")))
    }

    pub(crate) fn named_if<T>(&self, column: &str, read: impl FnOnce(i64) -> Option<T>) -> Result<Option<T>> {
        self.number_if(column)?.map(|_| self.named(column, read)).transpose()
    }

    pub(crate) fn time(&self, column: &str) -> Result<Timestamp> {
        self.number(column).map(Timestamp::from_millis)
    }

    pub(crate) fn time_if(&self, column: &str) -> Result<Option<Timestamp>> {
        Ok(self.get::<Option<i64>>(column)?.map(Timestamp::from_millis))
    }

    pub(crate) fn bytes(&self, column: &str) -> Result<Vec<u8>> {
        self.get(column)
    }

    pub(crate) fn digest_if(&self, column: &str) -> Result<Option<Digest>> {
        let bytes: Option<Vec<u8>> = self.get(column)?;
        bytes.map(|bytes| thirty_two(column, bytes).map(Digest)).transpose()
    }

    /// Reads a column whose type is parsed from text, such as an identifier.
    pub(crate) fn id<T: FromStr>(&self, column: &str) -> Result<T> {
        parse(column, &self.text(column)?)
    }

    pub(crate) fn id_if<T: FromStr>(&self, column: &str) -> Result<Option<T>> {
        self.text_if(column)?.map(|text| parse(column, &text)).transpose()
    }

    pub(crate) fn lineage(&self, column: &str) -> Result<Lineage> {
        let text = self.text(column)?;
        Lineage::parse(&text).ok_or_else(|| StoreError::Damaged(format!("column {column}: {text:?} is no lineage")))
    }

    /// Reads JSON that was checked before it was stored.
    pub(crate) fn json(&self, column: &str) -> Result<RawJson> {
        Ok(RawJson::trusted(Bytes::from(self.text(column)?)))
    }

    pub(crate) fn json_if(&self, column: &str) -> Result<Option<RawJson>> {
        Ok(self.text_if(column)?.map(|text| RawJson::trusted(Bytes::from(text))))
    }

    pub(crate) fn key(&self, column: &str) -> Result<DeviceKey> {
        self.count(column).map(DeviceKey)
    }
}

fn parse<T: FromStr>(column: &str, text: &str) -> Result<T> {
    text.parse().map_err(|_| StoreError::Damaged(format!("column {column}: {text:?} is no identifier")))
}

/// Converts bytes to the 32 bytes of a digest or a key.
pub(crate) fn thirty_two(column: &str, bytes: Vec<u8>) -> Result<[u8; 32]> {
    let length = bytes.len();
    bytes.try_into().map_err(|_| StoreError::Damaged(format!("column {column}: {length} bytes, not 32")))
}
