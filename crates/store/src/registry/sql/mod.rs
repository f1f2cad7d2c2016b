//! Plain SQL with bound parameters, the same text for both dialects. Only here is it known which one answers.

mod advisory_locks;
pub(crate) mod connections;
mod driver;
mod fitness;
mod gathered;
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
pub(crate) use driver::{Connection, DriverError};

use crate::error::{Result, StoreError};

/// The few places where the dialects say one thing in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    pub(crate) fn of(connection: &impl Connection) -> Self {
        connection.dialect()
    }

    /// What is spelled differently, as each spells it.
    pub(crate) fn either(self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        match self {
            Self::Sqlite => sqlite,
            Self::Postgres => postgres,
        }
    }

    /// Holds the rows read until the transaction ends, for a change. SQLite has one writer: it holds everything.
    pub(crate) fn hold_for_change(self) -> &'static str {
        self.either("", " FOR NO KEY UPDATE")
    }

    /// Holds the rows read until the transaction ends so that nothing else may refer to them or change them.
    pub(crate) fn hold_alone(self) -> &'static str {
        self.either("", " FOR UPDATE")
    }

    /// Keeps the rows read from being removed until the transaction ends.
    pub(crate) fn hold_in_place(self) -> &'static str {
        self.either("", " FOR KEY SHARE")
    }

    /// Where a text lies in another, from 1; 0 where it does not: a search without wildcards.
    pub(crate) fn position(self) -> &'static str {
        self.either("instr", "strpos")
    }

    /// A column that SQLite's planner must not look up in an index; PostgreSQL's has statistics and decides by itself.
    pub(crate) fn unindexed(self, column: &str) -> String {
        match self {
            Self::Sqlite => format!("+{column}"),
            Self::Postgres => column.to_owned(),
        }
    }

    /// Whether many rows that an index finds are better not looked up one by one: SQLite finds each of them anew, in whatever
    /// page it lies. PostgreSQL's planner knows when to read them in their order.
    pub(crate) fn reads_scattered_rows_dearly(self) -> bool {
        self == Self::Sqlite
    }

    /// The larger of two numbers.
    pub(crate) fn larger(self) -> &'static str {
        self.either("max", "greatest")
    }

    /// The texts of one bound JSON array as rows: one parameter, however long the list is.
    fn rows_of_texts(self) -> &'static str {
        self.either("(SELECT value FROM json_each(?))", "(SELECT jsonb_array_elements_text(?::jsonb))")
    }

    /// The numbers of one bound JSON array as rows.
    fn rows_of_numbers(self) -> &'static str {
        self.either("(SELECT value FROM json_each(?))", "(SELECT jsonb_array_elements_text(?::jsonb)::bigint)")
    }

    /// The arrays of one bound JSON array as rows of these columns, texts or numbers.
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

/// A column of a relation that is bound as one parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Column {
    Text(&'static str),
    Number(&'static str),
}

/// A statement in the making: text with a `?` for each value, and the values in their order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sql {
    text: String,
    values: Vec<Value>,
}

impl Sql {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), values: Vec::new() }
    }

    /// Binds the next `?`.
    pub(crate) fn bind(mut self, value: impl Bound) -> Self {
        self.values.push(value.bound());
        self
    }

    /// `VALUES` and as many rows of so many places, to be bound one after the other.
    pub(crate) fn values(self, rows: usize, columns: usize) -> Self {
        let row = format!("({})", vec!["?"; columns].join(", "));
        self.text(" VALUES ").text(&vec![row; rows].join(", "))
    }

    /// Goes on with more text.
    pub(crate) fn text(mut self, text: &str) -> Self {
        self.text.push_str(text);
        self
    }

    /// Goes on with another piece, its values after those bound so far.
    pub(crate) fn then(mut self, piece: Sql) -> Self {
        self.text.push_str(&piece.text);
        self.values.extend(piece.values);
        self
    }

    /// `IN` a list of texts.
    pub(crate) fn among<T: ToString>(self, dialect: Dialect, texts: impl IntoIterator<Item = T>) -> Self {
        // No row has a text with U+0000 in it, and PostgreSQL would refuse the whole question.
        let texts = texts.into_iter().map(|text| text.to_string()).filter(|text| !text.contains('\0'));
        let list: Vec<_> = texts.map(serde_json::Value::String).collect();
        self.text(" IN ").text(dialect.rows_of_texts()).bind(serde_json::Value::Array(list).to_string())
    }

    /// `IN` a list of numbers.
    pub(crate) fn among_numbers(self, dialect: Dialect, numbers: &[i64]) -> Self {
        let list = serde_json::Value::from(numbers).to_string();
        self.text(" IN ").text(dialect.rows_of_numbers()).bind(list)
    }

    /// A relation of `item` and `moment`, from pairs.
    pub(crate) fn moments(
        self,
        dialect: Dialect,
        pairs: impl IntoIterator<Item = (serde_json::Value, Timestamp)>,
    ) -> Self {
        let list = pairs.into_iter().map(|(item, moment)| serde_json::json!([item, moment.millis()]));
        self.relation(dialect, &[Column::Text("item"), Column::Number("moment")], list)
    }

    /// A relation of these columns, from arrays of as many texts and numbers; what is null stays so.
    pub(crate) fn relation(
        self,
        dialect: Dialect,
        columns: &[Column],
        rows: impl IntoIterator<Item = serde_json::Value>,
    ) -> Self {
        let list = serde_json::Value::Array(rows.into_iter().collect());
        self.text(&dialect.rows_of_arrays(columns)).bind(list.to_string())
    }

    /// A relation of `item` and `amount`, from pairs.
    pub(crate) fn amounts(self, dialect: Dialect, pairs: impl IntoIterator<Item = (serde_json::Value, u64)>) -> Self {
        let list = pairs.into_iter().map(|(item, amount)| serde_json::json!([item, amount]));
        self.relation(dialect, &[Column::Text("item"), Column::Number("amount")], list)
    }

    /// Its text, as it is written here.
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

/// PostgreSQL counts its parameters: `$1`, `$2`.
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

/// The first row, if there is one.
pub(crate) async fn one(connection: &impl Connection, sql: Sql) -> Result<Option<Row>> {
    let statement = sql.statement(connection.dialect(), AnswerKind::FirstRow);
    Ok(connection.ask(statement).await.map_err(failure)?.rows.pop().map(Row))
}

/// All rows.
pub(crate) async fn all(connection: &impl Connection, sql: Sql) -> Result<Vec<Row>> {
    let reading = connection.ask(sql.statement(connection.dialect(), AnswerKind::AllRows));
    let answer = match connection.dialect() {
        Dialect::Sqlite => gathered::gathered(reading).await,
        Dialect::Postgres => reading.await,
    };
    Ok(answer.map_err(failure)?.rows.into_iter().map(Row).collect())
}

/// Carries a change out and says how many rows it touched.
pub(crate) async fn run(connection: &impl Connection, sql: Sql) -> Result<u64> {
    let statement = sql.statement(connection.dialect(), AnswerKind::Count);
    Ok(connection.ask(statement).await.map_err(failure)?.touched)
}

/// Carries out statements that have no values, in the words of the dialect.
pub(crate) async fn run_script(connection: &impl Connection, text: String) -> Result<()> {
    let statement = Statement { text, values: Vec::new(), kind: AnswerKind::Success };
    connection.ask(statement).await.map(drop).map_err(failure)
}

/// A failure of the database in this crate's words. Unique names are claimed with `ON CONFLICT` and never fail here; a
/// foreign key that fails refers to what is gone.
pub(crate) fn failure(error: DriverError) -> StoreError {
    let (DriverError::Connection(cause) | DriverError::Statement(cause)) = &error else {
        return StoreError::unavailable(error);
    };
    let Some(database) = cause.as_database_error() else {
        return match **cause {
            sqlx::Error::PoolTimedOut => StoreError::Busy,
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

/// Whether the database refused a statement for what it says: a constraint, a value that is too large or of another type,
/// a trigger.
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

/// A value that a parameter can take.
pub(crate) trait Bound {
    /// The value.
    fn bound(self) -> Value;
    /// No value of this type.
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
    // Truth is stored as a number: SQLite has no boolean, and one way serves both.
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

/// U+0000 is no character of a text in PostgreSQL. It is left out in both dialects, so that both keep the same.
pub(crate) fn without_nul(mut text: String) -> String {
    if text.contains('\0') {
        text.retain(|character| character != '\0');
    }
    text
}

/// A row of an answer; what cannot be read is damage, never a panic.
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

    /// What a number means, which stands for one of a few things.
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

    /// An identifier, a lineage: whatever is read from its text.
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

    /// JSON that was checked before it was stored.
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

/// The 32 bytes of a digest or a key.
pub(crate) fn thirty_two(column: &str, bytes: Vec<u8>) -> Result<[u8; 32]> {
    let length = bytes.len();
    bytes.try_into().map_err(|_| StoreError::Damaged(format!("column {column}: {length} bytes, not 32")))
}
