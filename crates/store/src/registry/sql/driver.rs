//! Drives SQLite and PostgreSQL behind one trait, for a pool of connections and for an open transaction alike.

use std::sync::Arc;

use async_trait::async_trait;
use futures::lock::Mutex;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgRow};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool, SqlitePoolOptions, SqliteRow};
use sqlx::{AssertSqlSafe, Decode, Postgres, Row as _, Sqlite, Type};

use super::Dialect;
use crate::postgres::{Away, AwayDatabase, DatabaseWatch, WatchedPool, begun, connect};

type Outcome<T> = Result<T, DriverError>;

/// Failure of the driver, before it becomes a [`StoreError`](crate::error::StoreError). The errors of sqlx are shared,
/// because two places look at them.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// No connection could be opened, or no transaction begun on one.
    #[error(transparent)]
    Connection(Arc<sqlx::Error>),
    /// A statement or a commit failed.
    #[error(transparent)]
    Statement(Arc<sqlx::Error>),
    #[error("an earlier statement of the transaction failed")]
    Broken,
    #[error(transparent)]
    Away(#[from] Away),
}

impl DriverError {
    pub(super) fn connection(cause: sqlx::Error) -> Self {
        Self::Connection(Arc::new(cause))
    }

    pub(crate) fn statement(cause: sqlx::Error) -> Self {
        Self::Statement(Arc::new(cause))
    }
}

/// Value bound to a parameter. Null values have a type too, because PostgreSQL asks for the type of every parameter.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Number(Option<i64>),
    Float(Option<f64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// Kind of answer that a statement has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AnswerKind {
    /// Number of rows that the statement changed.
    Count,
    FirstRow,
    AllRows,
    /// Only success. The text may have several statements, unprepared and without values.
    Success,
}

/// Statement in the spelling of the dialect that executes it.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(super) text: String,
    pub(super) values: Vec<Value>,
    pub(super) kind: AnswerKind,
}

/// Answer to a statement. Fields that the kind of answer does not have are empty.
#[derive(Default)]
pub(crate) struct Answer {
    pub(super) rows: Vec<RawRow>,
    /// Number of rows that were changed.
    pub(super) touched: u64,
}

/// Row as the driver returns it.
pub(crate) enum RawRow {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// Type that both databases can decode.
pub(crate) trait Readable:
    for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>
{
}

impl<T> Readable for T where T: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>
{}

impl RawRow {
    pub(super) fn get<T: Readable>(&self, column: &str) -> Result<T, sqlx::Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }
}

/// Defines the function that executes a statement on a connection of one database.
macro_rules! answer {
    ($name:ident, $database:ty, $connection:ty, $row:path) => {
        async fn $name(connection: &mut $connection, statement: Statement) -> Result<Answer, sqlx::Error> {
            let Statement { text, values, kind } = statement;
            let text = AssertSqlSafe(text);
            let mut answer = Answer::default();
            if matches!(kind, AnswerKind::Success) {
                sqlx::raw_sql(text).execute(connection).await?;
                return Ok(answer);
            }
            let mut query = sqlx::query::<$database>(text);
            for value in values {
                query = match value {
                    Value::Number(number) => query.bind(number),
                    Value::Float(number) => query.bind(number),
                    Value::Text(text) => query.bind(text),
                    Value::Bytes(bytes) => query.bind(bytes),
                };
            }
            match kind {
                AnswerKind::FirstRow => answer.rows.extend(query.fetch_optional(connection).await?.map($row)),
                AnswerKind::AllRows => {
                    answer.rows = query.fetch_all(connection).await?.into_iter().map($row).collect();
                }
                AnswerKind::Count | AnswerKind::Success => {
                    answer.touched = query.execute(connection).await?.rows_affected();
                }
            }
            Ok(answer)
        }
    };
}

answer!(answer_of_sqlite, Sqlite, SqliteConnection, RawRow::Sqlite);
answer!(answer_of_postgres, Postgres, PgConnection, RawRow::Postgres);

/// Executes statements: a pool or an open transaction.
#[async_trait]
pub(crate) trait Connection: Sync {
    fn dialect(&self) -> Dialect;

    async fn ask(&self, statement: Statement) -> Outcome<Answer>;
}

/// Connections to one database. Clones share them.
#[derive(Clone, Debug)]
pub(crate) enum Pool {
    Sqlite(SqlitePool),
    /// Nothing waits for a database that is away.
    Postgres(Arc<WatchedPool>),
}

impl Pool {
    pub(super) async fn open_sqlite(pool: SqlitePoolOptions, options: SqliteConnectOptions) -> Outcome<Self> {
        pool.connect_with(options).await.map(Self::Sqlite).map_err(DriverError::connection)
    }

    pub(super) fn watched(pool: PgPool, watch: &Arc<DatabaseWatch>) -> Self {
        Self::Postgres(Arc::new(WatchedPool::new(pool, Arc::clone(watch))))
    }

    /// Begins a transaction. On SQLite it only reads until its first write.
    pub(super) async fn begin(&self) -> Outcome<OpenTransaction> {
        match self {
            Self::Sqlite(pool) => self.opened(pool.begin().await.map(Session::Sqlite)),
            Self::Postgres(pool) => self.opened_in(pool).await,
        }
    }

    /// Begins a transaction that writes. On SQLite no other transaction writes until this one ends.
    pub(super) async fn begin_to_write(&self) -> Outcome<OpenTransaction> {
        match self {
            Self::Sqlite(pool) => self.opened(pool.begin_with("BEGIN IMMEDIATE").await.map(Session::Sqlite)),
            Self::Postgres(pool) => self.opened_in(pool).await,
        }
    }

    async fn opened_in(&self, pool: &WatchedPool) -> Outcome<OpenTransaction> {
        let (away, pool) = (pool.away(), pool.get());
        let opens =
            async { self.opened(begun(&pool).await.map(|transaction| Session::Postgres(transaction, away.clone()))) };
        Box::pin(away.ask(opens)).await
    }

    fn opened(&self, begun: Result<Session, sqlx::Error>) -> Outcome<OpenTransaction> {
        let session = Mutex::new(begun.map_err(DriverError::connection)?);
        Ok(OpenTransaction { dialect: self.dialect(), session })
    }

    pub(super) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

#[async_trait]
impl Connection for Pool {
    fn dialect(&self) -> Dialect {
        match self {
            Self::Sqlite(_) => Dialect::Sqlite,
            Self::Postgres(_) => Dialect::Postgres,
        }
    }

    async fn ask(&self, statement: Statement) -> Outcome<Answer> {
        match self {
            Self::Sqlite(pool) => {
                let mut connection = pool.acquire().await.map_err(DriverError::connection)?;
                answer_of_sqlite(&mut connection, statement).await.map_err(DriverError::statement)
            }
            Self::Postgres(pool) => {
                let asked = async {
                    let mut connection = pool.get().acquire().await.map_err(DriverError::connection)?;
                    answer_of_postgres(&mut connection, statement).await.map_err(DriverError::statement)
                };
                pool.away().ask(asked).await
            }
        }
    }
}

/// Single connection to PostgreSQL, outside of the pools. It is not opened again when it is lost.
#[derive(Debug)]
pub(crate) struct OwnConnection(Mutex<PgConnection>);

impl OwnConnection {
    pub(super) async fn open(options: &PgConnectOptions) -> Outcome<Self> {
        connect(options).await.map(|own| Self(Mutex::new(own))).map_err(DriverError::connection)
    }

    /// Returns the driver's connection, for copies.
    pub(crate) fn session(&mut self) -> &mut PgConnection {
        self.0.get_mut()
    }
}

#[async_trait]
impl Connection for OwnConnection {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn ask(&self, statement: Statement) -> Outcome<Answer> {
        answer_of_postgres(&mut *self.0.lock().await, statement).await.map_err(DriverError::statement)
    }
}

enum Session {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'static, Postgres>, AwayDatabase),
}

/// Open transaction. Dropping it rolls it back, before its connection is used again.
pub(crate) struct OpenTransaction {
    dialect: Dialect,
    session: Mutex<Session>,
}

impl OpenTransaction {
    pub(super) async fn commit(self) -> Outcome<()> {
        match self.session.into_inner() {
            Session::Sqlite(transaction) => transaction.commit().await.map_err(DriverError::statement),
            Session::Postgres(transaction, away) => {
                away.ask(async { transaction.commit().await.map_err(DriverError::statement) }).await
            }
        }
    }
}

#[async_trait]
impl Connection for OpenTransaction {
    fn dialect(&self) -> Dialect {
        self.dialect
    }

    async fn ask(&self, statement: Statement) -> Outcome<Answer> {
        match &mut *self.session.lock().await {
            Session::Sqlite(transaction) => {
                answer_of_sqlite(transaction, statement).await.map_err(DriverError::statement)
            }
            Session::Postgres(transaction, away) => {
                let asked = async { answer_of_postgres(transaction, statement).await.map_err(DriverError::statement) };
                away.ask(asked).await
            }
        }
    }
}
