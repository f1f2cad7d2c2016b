//! The connections: how each dialect is opened, and how it keeps writers apart.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;
use isobar_pages::Open;
use sqlx::pool::PoolOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use super::driver::{DriverError, OpenTransaction, Pool};
use super::transaction::{self, Transaction, Writer};
use super::{Dialect, Sql, failure, fitness, one, sqlite_file};
use crate::error::{Result, StoreError};

/// Connections that read SQLite at the same time. Each has a thread of its own.
const SQLITE_READERS_MAX: u32 = 4;
/// Connections to PostgreSQL that read, and that write.
const POSTGRES_READERS_MAX: u32 = 8;
const POSTGRES_WRITERS_MAX: u32 = 8;
/// How long a call waits for a connection before the store is busy.
const ACQUIRE_WAIT: Duration = Duration::from_secs(10);
/// A connection to PostgreSQL that answered so short a time ago is not asked whether it is there before it is read from: that
/// would be a way there and back more for each read.
const SURE_FOR: Duration = Duration::from_millis(100);
/// How long SQLite waits for another process that writes. A stop was seen to meet it five times, one after the other (in what is
/// being written of the outbox and of the usage, and in the last try of these and of the activity), and has 10 s.
const SQLITE_BUSY_WAIT: Duration = Duration::from_secs(1);
/// What each connection to SQLite keeps of the file, in KiB (a negative number of pages means that). Nothing is mapped:
/// each connection would map all of it, and the process would count as large as the file times the connections.
const SQLITE_CACHE: &str = "-16384";
/// From so many pages in its log on, SQLite carries them into the file with the next commit and syncs that: with few at a time.
/// Others that sync wait for it, and so does whoever waits for the processor on which the system writes the pages out: up to
/// 4 ms with the thousand that are usual.
const SQLITE_CHECKPOINT_PAGES: &str = "100";
/// Rows that a connection to SQLite reads ahead of whoever takes them: more than a page has.
const SQLITE_ROWS: usize = 256;

/// The connections of a registry.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    /// For what only reads.
    pub(crate) read: Pool,
    /// For what writes.
    pub(crate) write: Writer,
    pub(crate) dialect: Dialect,
    /// Where PostgreSQL is; none: it is a file of SQLite.
    server: Option<ServerAddress>,
}

/// The address of a server. It may have a password in it, so nothing shows it.
#[derive(Clone)]
struct ServerAddress(Arc<str>);

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerAddress")
    }
}

impl Connections {
    pub(crate) async fn open(address: &str) -> Result<Self> {
        Self::open_how(address, Open::ToUse).await
    }

    async fn open_how(address: &str, how: Open) -> Result<Self> {
        if let Some(path) = address.strip_prefix("sqlite:") {
            return Self::open_sqlite(path, how).await;
        }
        if address.starts_with("postgres://") || address.starts_with("postgresql://") {
            return Self::open_postgres(address).await;
        }
        Err(StoreError::unavailable("a registry's address begins with sqlite: or postgres://"))
    }

    /// Opens a registry that is there; a SQLite file is opened as it is.
    pub(crate) async fn open_existing(address: &str) -> Result<Self> {
        if let Some(path) = address.strip_prefix("sqlite:").map(plain)
            && !std::path::Path::new(path).is_file()
        {
            return Err(StoreError::unavailable(format!("there is no file {path}")));
        }
        Self::open_how(address, Open::AsItIs).await
    }

    async fn open_sqlite(path: &str, how: Open) -> Result<Self> {
        if path.is_empty() || path.contains(":memory:") {
            return Err(StoreError::unavailable("sqlite: needs the path of a file"));
        }
        let layer = sqlite_file::prepare(plain(path), how).await?;
        // The writer first: it turns the write-ahead log on.
        let write = open_sqlite_pool(path, layer, 1).await?;
        let read = open_sqlite_pool(path, layer, SQLITE_READERS_MAX).await?;
        Ok(Self { read, write: Writer::new(write), dialect: Dialect::Sqlite, server: None })
    }

    async fn open_postgres(address: &str) -> Result<Self> {
        let write = match open_postgres_pool(address, POSTGRES_WRITERS_MAX, transaction::DURABLE, None).await {
            // The pool has tried for a while and does not tell what was in its way.
            Err(StoreError::Busy) => return Err(no_postgres(address, ACQUIRE_WAIT).await),
            pool => pool?,
        };
        match Clock::System.timeout(ACQUIRE_WAIT, fitness::must_be_fit(address)).await {
            Ok(fit) => fit?,
            Err(_) => {
                let why =
                    format!("PostgreSQL, or a pooler before it, answered no further connections in {ACQUIRE_WAIT:?}");
                return Err(StoreError::unavailable(why));
            }
        }
        let read =
            open_postgres_pool(address, POSTGRES_READERS_MAX, transaction::OF_ONE_MOMENT, Some(SURE_FOR)).await?;
        let server = Some(ServerAddress(address.into()));
        Ok(Self { read, write: Writer::new(write), dialect: Dialect::Postgres, server })
    }

    /// Whether a question is answered within this time; where it is not, why.
    pub(crate) async fn answers(&self, within: Duration) -> Result<()> {
        match Clock::System.timeout(within, one(&self.read, Sql::new("SELECT 1 AS answer"))).await {
            Err(_) | Ok(Err(StoreError::Busy)) => match &self.server {
                Some(ServerAddress(address)) => Err(no_postgres(address, within).await),
                None => Err(StoreError::Busy),
            },
            Ok(answer) => answer.map(drop),
        }
    }

    /// A transaction that writes.
    pub(crate) async fn begin(&self) -> Result<Transaction> {
        self.write.begin().await
    }

    /// A transaction that reads: every question of it is answered as of the same moment. It ends when it is dropped, and
    /// nobody waits for that.
    pub(crate) async fn snapshot(&self) -> Result<OpenTransaction> {
        // Connections that were lost a moment ago are found out here, where nothing has been asked yet.
        for _ in 0..POSTGRES_READERS_MAX {
            match self.read.begin().await.map_err(failure) {
                Err(StoreError::Unavailable(_)) => {}
                begun => return begun,
            }
        }
        self.read.begin().await.map_err(failure)
    }

    pub(crate) async fn close(&self) -> Result<()> {
        // Readers first: the last connection of SQLite folds the write-ahead log into the file.
        self.read.close().await;
        self.write.close().await;
        Ok(())
    }
}

/// Why PostgreSQL gives no connection: what a single one meets. [`StoreError::Busy`]: it is let in, so all of the pool are in use.
async fn no_postgres(address: &str, within: Duration) -> StoreError {
    let let_in = async { PgConnection::connect(address).await?.close().await };
    match Clock::System.timeout(within, let_in).await {
        Ok(Ok(())) => StoreError::Busy,
        Ok(Err(cause)) => StoreError::unavailable(cause),
        Err(_) => StoreError::unavailable(format!("PostgreSQL gave no connection within {within:?}")),
    }
}

fn pool_options<DB: sqlx::Database>(connections: u32) -> PoolOptions<DB> {
    PoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE_WAIT)
}

/// Opens connections without a log line for every statement.
async fn open_postgres_pool(
    address: &str,
    connections: u32,
    begin: &'static str,
    sure_for: Option<Duration>,
) -> Result<Pool> {
    let options = address.parse::<PgConnectOptions>().map_err(DriverError::connection).map_err(failure)?;
    let pool = transaction::guard_postgres(pool_options(connections), begin, sure_for);
    Pool::open_postgres(pool, options.disable_statement_logging()).await.map_err(failure)
}

/// The path of a SQLite file, which may be written as in a URL.
pub(crate) fn plain(path: &str) -> &str {
    path.strip_prefix("//").unwrap_or(path)
}

async fn open_sqlite_pool(path: &str, layer: Option<&'static str>, connections: u32) -> Result<Pool> {
    // The path goes in as it is, so that no character of it means anything.
    let options = SqliteConnectOptions::new()
        .filename(plain(path))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(SQLITE_BUSY_WAIT)
        .pragma("cache_size", SQLITE_CACHE)
        .row_buffer_size(SQLITE_ROWS)
        .pragma("wal_autocheckpoint", SQLITE_CHECKPOINT_PAGES)
        .disable_statement_logging();
    let options = match layer {
        Some(layer) => options.vfs(layer),
        None => options,
    };
    Pool::open_sqlite(transaction::guard_sqlite(pool_options(connections)), options).await.map_err(failure)
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::super::super::support::OwnDatabase;
    use super::*;

    /// Long enough for whoever is let in.
    const WITHIN: Duration = Duration::from_secs(3);
    /// Nobody listens there.
    const NOWHERE: &str = "postgres://somebody:secret@127.0.0.1:1/nothing";

    /// The connections for what reads, each of them in use.
    async fn all_readers(connections: &Connections, count: u32) -> Vec<OpenTransaction> {
        let mut held = Vec::new();
        for _ in 0..count {
            held.push(connections.snapshot().await.unwrap());
        }
        held
    }

    #[tokio::test]
    async fn a_registry_whose_connections_are_all_in_use_is_slow_and_not_away() {
        let folder = tempfile::tempdir().unwrap();
        let file = format!("sqlite:{}", folder.path().join("registry.db").display());
        let database = OwnDatabase::new().await;
        for (address, readers) in [(&file, SQLITE_READERS_MAX), (&database.address, POSTGRES_READERS_MAX)] {
            let connections = Connections::open(address).await.unwrap();
            connections.answers(WITHIN).await.unwrap();
            let held = all_readers(&connections, readers).await;
            let answer = connections.answers(WITHIN).await;
            assert!(matches!(answer, Err(StoreError::Busy)), "{answer:?}");
            drop(held);
            connections.answers(WITHIN).await.unwrap();
            connections.close().await.unwrap();
        }
        database.remove().await;
    }

    #[tokio::test]
    async fn a_registry_that_is_away_says_why_and_keeps_its_password() {
        let database = OwnDatabase::new().await;
        let mut connections = Connections::open(&database.address).await.unwrap();
        let held = all_readers(&connections, POSTGRES_READERS_MAX).await;
        connections.server = Some(ServerAddress(NOWHERE.into()));
        let away = connections.answers(WITHIN).await.unwrap_err();
        let cause = away.source().unwrap().to_string();
        assert!(cause.contains("refused"), "{cause}");
        assert!(!format!("{connections:?}{away:?}").contains("secret"));
        drop(held);
        connections.close().await.unwrap();
        database.remove().await;
    }
}
