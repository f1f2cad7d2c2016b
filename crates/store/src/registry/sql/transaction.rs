//! Writing: whatever changes the registry goes through here, so that nothing is acknowledged that was not committed.
//!
//! The driver counts how deep it is in transactions, and a database that ends a transaction by itself (SQLite does when
//! its disk is full) leaves that count behind: the next transaction would be a part of one that nobody ends. So a
//! connection is looked at before anybody gets it, and closed when it is not at rest; and a transaction in which a
//! statement failed, or was dropped half-way, takes no other and is never committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sea_orm::sqlx::sqlite::SqliteConnection;
use sea_orm::sqlx::{self, Connection as _};
use sea_orm::{
    ConnectOptions, ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr, ExecResult,
    QueryResult, SqliteTransactionMode, Statement, TransactionOptions, TransactionTrait,
};

use super::{Sql, failure, run};
use crate::error::{Result, StoreError};

/// A registry that committed a change so long ago, or less, is healthy; beyond that a change is tried.
const PROVEN_FOR: Duration = Duration::from_secs(30);

/// Steps of SQLite's machine, some tenth of a millisecond, after which a question that takes longer lets others have the
/// processor.
const SQLITE_STEPS_A_LOOK: i32 = 2_000;

/// The connections that write. In SQLite it is a single one, so writers queue here and never meet a locked database.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pool: DatabaseConnection,
    health: Arc<Health>,
}

impl Writer {
    pub(crate) fn new(pool: DatabaseConnection) -> Self {
        Self { pool, health: Arc::default() }
    }

    /// A transaction that writes. In SQLite it is the only one; in PostgreSQL rows are held one by one.
    pub(crate) async fn begin(&self) -> Result<Transaction> {
        let options = TransactionOptions {
            sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
            ..TransactionOptions::default()
        };
        let begun = self.pool.begin_with_options(options).await.map_err(failure);
        self.health.failed_if(&begun);
        Ok(Transaction {
            inner: begun?,
            is_broken: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            health: Arc::clone(&self.health),
        })
    }

    /// Carries out a change that is a single statement, and says how many rows it touched.
    pub(crate) async fn run(&self, sql: Sql) -> Result<u64> {
        let touched = run(&self.pool, sql).await;
        self.health.failed_if(&touched);
        let touched = touched?;
        if touched > 0 {
            self.health.committed();
        }
        Ok(touched)
    }

    /// Whether changes can be committed: one was, a moment ago, or is now.
    pub(crate) async fn healthy(&self) -> Result<()> {
        let _turn = self.health.trying.lock().await;
        if self.health.is_proven() {
            return Ok(());
        }
        match self.run(Sql::new("UPDATE pulse SET beats = beats + 1")).await? {
            0 => Err(StoreError::Damaged("the row of the registry's pulse is gone".to_owned())),
            _ => Ok(()),
        }
    }

    pub(crate) async fn close(&self) -> Result<()> {
        self.pool.close_by_ref().await.map_err(failure)
    }
}

/// A transaction that writes. It is rolled back when it is dropped.
pub(crate) struct Transaction {
    inner: DatabaseTransaction,
    /// A statement failed, or nobody waited for its end: what the database made of the transaction is not known.
    is_broken: AtomicBool,
    has_changed: AtomicBool,
    health: Arc<Health>,
}

impl Transaction {
    /// Makes its changes durable.
    pub(crate) async fn commit(self) -> Result<()> {
        if self.is_broken.load(Ordering::Acquire) {
            // PostgreSQL would answer COMMIT with a rollback, and call that a success.
            return Err(StoreError::unavailable(broken()));
        }
        let committed = self.inner.commit().await.map_err(failure);
        self.health.failed_if(&committed);
        if committed.is_ok() && self.has_changed.load(Ordering::Acquire) {
            self.health.committed();
        }
        committed
    }

    /// Carries a statement out, unless an earlier one failed.
    async fn watched<T>(
        &self,
        statement: impl Future<Output = std::result::Result<T, DbErr>> + Send,
    ) -> std::result::Result<T, DbErr> {
        if self.is_broken.load(Ordering::Acquire) {
            return Err(broken());
        }
        let mut underway = Underway { breaks: Some(&self.is_broken) };
        match statement.await {
            Ok(done) => {
                underway.breaks = None;
                Ok(done)
            }
            Err(error) => {
                self.health.failed_if::<()>(&Err(failure(error.clone())));
                Err(error)
            }
        }
    }
}

fn broken() -> DbErr {
    DbErr::Custom("an earlier statement of the transaction failed".to_owned())
}

/// Marks a transaction as broken, unless its statement came to a good end.
struct Underway<'a> {
    breaks: Option<&'a AtomicBool>,
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        if let Some(is_broken) = self.breaks {
            is_broken.store(true, Ordering::Release);
        }
    }
}

#[async_trait::async_trait]
impl ConnectionTrait for Transaction {
    fn get_database_backend(&self) -> DbBackend {
        self.inner.get_database_backend()
    }

    async fn execute_raw(&self, statement: Statement) -> std::result::Result<ExecResult, DbErr> {
        let done = self.watched(self.inner.execute_raw(statement)).await?;
        if done.rows_affected() > 0 {
            self.has_changed.store(true, Ordering::Release);
        }
        Ok(done)
    }

    async fn execute_unprepared(&self, sql: &str) -> std::result::Result<ExecResult, DbErr> {
        self.watched(self.inner.execute_unprepared(sql)).await
    }

    async fn query_one_raw(&self, statement: Statement) -> std::result::Result<Option<QueryResult>, DbErr> {
        self.watched(self.inner.query_one_raw(statement)).await
    }

    async fn query_all_raw(&self, statement: Statement) -> std::result::Result<Vec<QueryResult>, DbErr> {
        self.watched(self.inner.query_all_raw(statement)).await
    }
}

/// What became of the last change.
#[derive(Debug, Default)]
struct Health {
    last: Mutex<LastChange>,
    /// Held by the one that tries whether changes can be committed.
    trying: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
enum LastChange {
    #[default]
    Unknown,
    Committed(Instant),
    Failed,
}

impl Health {
    fn is_proven(&self) -> bool {
        matches!(*self.last.lock(), LastChange::Committed(at) if at.elapsed() < PROVEN_FOR)
    }

    fn committed(&self) {
        let before = std::mem::replace(&mut *self.last.lock(), LastChange::Committed(Instant::now()));
        if matches!(before, LastChange::Failed) {
            tracing::warn!("the registry commits changes again");
        }
    }

    /// Notes a change that failed because of the database, not because of what was asked.
    fn failed_if<T>(&self, result: &Result<T>) {
        let Err(error @ (StoreError::Unavailable(_) | StoreError::Damaged(_))) = result else { return };
        let before = std::mem::replace(&mut *self.last.lock(), LastChange::Failed);
        if !matches!(before, LastChange::Failed) {
            let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            tracing::error!(%error, cause, "the registry could not commit a change");
        }
    }
}

/// Has every connection of a pool looked at when it comes back and before it is given out again.
pub(crate) fn guard(options: &mut ConnectOptions) {
    options
        .map_sqlx_sqlite_before_acquire(|connection, _| Box::pin(is_at_rest(connection)))
        .map_sqlx_sqlite_pool_opts(|pool| {
            let pool = pool.after_connect(|connection, _| {
                Box::pin(async move {
                    // The driver gives each connection a thread of its own, and what one asks may take long.
                    connection.lock_handle().await?.set_progress_handler(SQLITE_STEPS_A_LOOK, || {
                        isobar_threads::rest_at_times();
                        true
                    });
                    Ok(())
                })
            });
            pool.after_release(|connection, _| {
                Box::pin(async move {
                    // A rollback that was begun by dropping a transaction has ended after this.
                    connection.ping().await?;
                    Ok(is_outside(connection))
                })
            })
        })
        // PostgreSQL tells with every answer whether a transaction is open, and the driver begins none within another.
        .map_sqlx_postgres_before_acquire(|connection, _| Box::pin(async { Ok(is_outside(connection)) }));
}

/// Has every connection to PostgreSQL of a pool begin with a statement.
pub(crate) fn begin_with(options: &mut ConnectOptions, statement: &'static str) {
    options.map_sqlx_postgres_pool_opts(move |pool| {
        pool.after_connect(move |connection, _| {
            Box::pin(async move { sqlx::raw_sql(statement).execute(connection).await.map(|_| ()) })
        })
    });
}

/// A commit is acknowledged when it is durable, whatever the server or the role is set to by default. What is stricter stays.
pub(crate) const DURABLE: &str =
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'";
/// What is read in one transaction is of one moment. Said once for a connection, and not once more in every transaction.
pub(crate) const OF_ONE_MOMENT: &str =
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// Whether no transaction is open: neither for the driver, nor for SQLite, which would refuse to begin another.
async fn is_at_rest(connection: &mut SqliteConnection) -> std::result::Result<bool, sqlx::Error> {
    if !is_outside(connection) {
        return Ok(false);
    }
    sqlx::raw_sql("BEGIN; COMMIT").execute(connection).await.map(|_| true)
}

/// Whether the driver is in no transaction. It cannot leave one that the database has ended: such a connection is closed.
fn is_outside<C: sqlx::Connection>(connection: &C) -> bool {
    let is_outside = !connection.is_in_transaction();
    if !is_outside {
        tracing::warn!("a connection to the registry was left within a transaction, and is closed");
    }
    is_outside
}

#[cfg(test)]
mod tests;
