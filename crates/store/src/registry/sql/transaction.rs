//! Writes to the registry. Every change passes through here, so that only committed changes are acknowledged.
//!
//! The driver counts how deep it is in transactions, and a database that ends a transaction by itself (SQLite does when
//! its disk is full) makes that count wrong: the next transaction would be nested in one that never ends. Therefore a
//! connection is checked before it is handed out, and closed if a transaction is open on it; and a transaction in which
//! a statement failed, or was dropped half-way, accepts no other statement and is never committed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use isobar_model::time::Clock;
use parking_lot::Mutex;
use sqlx::Connection as _;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnection, SqlitePoolOptions};

use super::driver::{Answer, OpenTransaction, Pool, Statement};
use super::{Connection, Dialect, DriverError, Sql, failure, run, run_script};
use crate::error::{Result, StoreError};
use crate::postgres::{begin_session, has_ended, is_there, takes_room};

/// Time since the last commit within which a registry counts as healthy; after it a change is tried.
const PROVEN_FOR: Duration = Duration::from_secs(30);

/// Connections that write. SQLite has a single one, so writers queue here and never meet a locked database.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pool: Pool,
    health: Arc<Health>,
}

impl Writer {
    pub(crate) fn new(pool: Pool) -> Self {
        let needs_room = matches!(pool.dialect(), Dialect::Postgres);
        Self { pool, health: Arc::new(Health { needs_room, ..Health::default() }) }
    }

    /// Begins a transaction that writes. On SQLite it is the only one; on PostgreSQL transactions lock single rows.
    pub(crate) async fn begin(&self) -> Result<Transaction> {
        let begun = self.pool.begin_to_write().await.map_err(failure);
        self.health.failed_if(&begun);
        Ok(Transaction {
            inner: begun?,
            is_broken: AtomicBool::new(false),
            has_changed: AtomicBool::new(false),
            health: Arc::clone(&self.health),
        })
    }

    /// Executes a change that is a single statement, and returns how many rows it touched.
    pub(crate) async fn run(&self, sql: Sql) -> Result<u64> {
        if matches!(self.pool.dialect(), Dialect::Postgres) {
            // Boxed: the many who change something by one statement would all carry it on their stacks.
            return Box::pin(self.run_in_transaction(sql)).await;
        }
        let touched = run(&self.pool, sql).await;
        self.health.failed_if(&touched);
        let touched = touched?;
        if touched > 0 {
            self.health.committed();
        }
        Ok(touched)
    }

    /// Executes a change as a transaction of its own: a statement alone that the network holds back would overwrite what was
    /// acknowledged since.
    async fn run_in_transaction(&self, sql: Sql) -> Result<u64> {
        let tx = self.begin().await?;
        let touched = run(&tx, sql).await?;
        tx.commit().await?;
        Ok(touched)
    }

    /// Returns `Ok` if changes can be committed: a recent one was, or one is now.
    pub(crate) async fn healthy(&self) -> Result<()> {
        let _turn = self.health.trying.lock().await;
        if self.health.is_proven() {
            return Ok(());
        }
        if self.health.wants_room() {
            run_script(&self.begin().await?, takes_room("")).await?;
        }
        match self.run(Sql::new("UPDATE pulse SET beats = beats + 1")).await? {
            0 => Err(StoreError::Damaged("the row of the registry's pulse is gone".to_owned())),
            _ => {
                self.health.proven();
                Ok(())
            }
        }
    }

    pub(crate) async fn close(&self) {
        self.pool.close().await;
    }
}

/// Transaction that writes. Dropping it rolls it back.
pub(crate) struct Transaction {
    inner: OpenTransaction,
    /// True if a statement failed or was dropped before its end: then the state of the transaction in the database is
    /// unknown.
    is_broken: AtomicBool,
    has_changed: AtomicBool,
    health: Arc<Health>,
}

impl Transaction {
    /// Makes the changes durable.
    pub(crate) async fn commit(self) -> Result<()> {
        if self.is_broken.load(Ordering::Acquire) {
            // PostgreSQL would answer COMMIT with a rollback, and report success.
            return Err(StoreError::unavailable(DriverError::Broken));
        }
        let committed = self.inner.commit().await.map_err(failure);
        self.health.failed_if(&committed);
        if committed.is_ok() && self.has_changed.load(Ordering::Acquire) {
            self.health.committed();
        }
        committed
    }
}

/// Guard that marks a transaction as broken unless its statement succeeds.
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
impl Connection for Transaction {
    fn dialect(&self) -> Dialect {
        self.inner.dialect()
    }

    /// Executes a statement, unless an earlier one failed.
    async fn ask(&self, statement: Statement) -> std::result::Result<Answer, DriverError> {
        if self.is_broken.load(Ordering::Acquire) {
            return Err(DriverError::Broken);
        }
        let mut underway = Underway { breaks: Some(&self.is_broken) };
        match self.inner.ask(statement).await {
            Ok(answer) => {
                underway.breaks = None;
                if answer.touched > 0 {
                    self.has_changed.store(true, Ordering::Release);
                }
                Ok(answer)
            }
            Err(error) => {
                self.health.failed_if::<()>(&Err(failure(error.clone())));
                Err(error)
            }
        }
    }
}

/// Outcome of the last change.
#[derive(Debug, Default)]
struct Health {
    last: Mutex<LastChange>,
    /// Lock of the task that tries to commit a change.
    trying: tokio::sync::Mutex<()>,
    /// True if a change that is committed after a failed one proves nothing: PostgreSQL changes a row where it stands, also
    /// while its disk is full.
    needs_room: bool,
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
        matches!(*self.last.lock(), LastChange::Committed(at) if Clock::System.elapsed(at) < PROVEN_FOR)
    }

    /// Returns true if it has to be proven that there is room for further rows.
    fn wants_room(&self) -> bool {
        self.needs_room && matches!(*self.last.lock(), LastChange::Failed)
    }

    fn committed(&self) {
        if !self.wants_room() {
            self.proven();
        }
    }

    fn proven(&self) {
        let before = std::mem::replace(&mut *self.last.lock(), LastChange::Committed(Clock::System.instant()));
        if matches!(before, LastChange::Failed) {
            tracing::warn!("the registry commits changes again");
        }
    }

    /// Records a change that failed because of the database, not because of its content.
    fn failed_if<T>(&self, result: &Result<T>) {
        let Err(error @ (StoreError::Unavailable(_) | StoreError::Damaged(_))) = result else { return };
        let before = std::mem::replace(&mut *self.last.lock(), LastChange::Failed);
        if !matches!(before, LastChange::Failed) {
            tracing::error!(%error, "the registry could not commit a change");
        }
    }
}

/// Checks every connection of a pool to SQLite when it is returned and before it is handed out again.
pub(crate) fn guard_sqlite(pool: SqlitePoolOptions) -> SqlitePoolOptions {
    pool.before_acquire(|connection, _| Box::pin(is_at_rest(connection))).after_release(|connection, _| {
        Box::pin(async move {
            // A rollback that was begun by dropping a transaction has ended after this ping.
            connection.ping().await?;
            Ok(is_outside(connection))
        })
    })
}

/// Makes every connection of a pool to PostgreSQL begin with a statement, and checks it before it is handed out. A
/// connection that was used within the time `sure_for` is not pinged.
pub(crate) fn guard_postgres(pool: PgPoolOptions, begin: &'static str, sure_for: Duration) -> PgPoolOptions {
    pool.test_before_acquire(false)
        .before_acquire(move |connection, last| {
            Box::pin(async move {
                if last.idle_for >= sure_for && !is_there(connection).await {
                    return Ok(false);
                }
                // The driver knows of every transaction that is open, because none is given up while it begins.
                Ok(is_outside(connection))
            })
        })
        .after_release(|connection, _| Box::pin(async move { Ok(has_ended(connection).await) }))
        .after_connect(move |connection, _| {
            Box::pin(async move {
                begin_session(connection).await?;
                sqlx::raw_sql(begin).execute(connection).await.map(drop)
            })
        })
}

/// Makes PostgreSQL acknowledge a commit only when it is durable, whatever the default of the server or role. Stricter
/// settings stay. A transaction whose process stands still holds its locks, for which other
/// processes wait, for five seconds at most.
pub(crate) const DURABLE: &str = "SELECT set_config('synchronous_commit', 'on', false) \
     WHERE current_setting('synchronous_commit') NOT IN ('on', 'remote_apply'); \
     SET idle_in_transaction_session_timeout = '5s'";
/// Makes each transaction read the state of one moment. Set once for a connection rather than in every transaction.
pub(crate) const OF_ONE_MOMENT: &str =
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// Returns true if no transaction is open, neither for the driver nor for SQLite, which would refuse to begin another.
async fn is_at_rest(connection: &mut SqliteConnection) -> std::result::Result<bool, sqlx::Error> {
    if !is_outside(connection) {
        return Ok(false);
    }
    sqlx::raw_sql("BEGIN; COMMIT").execute(connection).await.map(|_| true)
}

/// Returns true if the driver has no open transaction. The driver cannot leave a transaction that the database has
/// ended: such a connection is closed.
fn is_outside<C: sqlx::Connection>(connection: &C) -> bool {
    let is_outside = !connection.is_in_transaction();
    if !is_outside {
        tracing::warn!("a connection to the registry was left within a transaction, and is closed");
    }
    is_outside
}

#[cfg(test)]
mod tests;
