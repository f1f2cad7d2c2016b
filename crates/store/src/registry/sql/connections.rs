//! Opens the connections of each dialect, and separates readers from writers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use isobar_model::time::Clock;
use sqlite_page_checksums::Open;
use sqlx::pool::PoolOptions;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use super::driver::{DriverError, OpenTransaction, OwnConnection, Pool};
use super::transaction::{self, Transaction, Writer};
use super::{Dialect, Sql, failure, one, sqlite_file};
use crate::error::{Result, StoreError};
use crate::postgres::{DatabaseWatch, fitness, must_take_writes, place};

/// Bounds the connections that read SQLite at the same time. Each has a thread of its own.
const SQLITE_READERS_MAX: u32 = 4;
/// Bounds the connections to PostgreSQL that read. The next constant bounds those that write.
const POSTGRES_READERS_MAX: u32 = 6;
const POSTGRES_WRITERS_MAX: u32 = 4;
/// Bounds the connections of a process to PostgreSQL for its registry, with those for the watch and for others' changes.
pub const REGISTRY_CONNECTIONS_MAX: u32 = POSTGRES_READERS_MAX + POSTGRES_WRITERS_MAX + 2;
/// Time that a call waits for a connection before the store answers `Busy`.
const ACQUIRE_WAIT: Duration = Duration::from_secs(10);
/// Time within which a connection to PostgreSQL that answered is reused for reading without a ping. A ping would cost
/// each read one more round trip.
const READS_SURE_FOR: Duration = Duration::from_millis(100);
/// Time that SQLite waits for another process that writes. A shutdown was seen to wait five times in a row (for the
/// writes of the outbox and of the usage in progress, and for the last try of these and of the activity), and has 10 s.
const SQLITE_BUSY_WAIT: Duration = Duration::from_secs(1);
/// Size of the page cache of each connection to SQLite, in KiB (SQLite reads a negative number as KiB). Memory mapping
/// is off: each connection would map the whole file, and the process would count as large as the file times the
/// connections.
const SQLITE_CACHE: &str = "-16384";
/// Pages in the write-ahead log from which SQLite copies them into the file with the next commit and syncs the file.
/// The number is small because other syncs wait for this one, and so does every thread that needs the processor on
/// which the system writes the pages: up to 4 ms with the usual thousand pages.
const SQLITE_CHECKPOINT_PAGES: &str = "100";
/// Rows that a connection to SQLite reads ahead of its consumer: more than a page of a list has.
const SQLITE_ROWS: usize = 256;

/// Connections of a registry.
#[derive(Clone, Debug)]
pub(crate) struct Connections {
    /// Connections that only read.
    pub(crate) read: Pool,
    /// Connection or connections that write.
    pub(crate) write: Writer,
    pub(crate) dialect: Dialect,
    /// Address of PostgreSQL; `None` means a SQLite file.
    server: Option<ServerAddress>,
}

/// Address of a server. Its `Debug` hides it, because it may contain a password.
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
            return Self::open_postgres(address, how).await;
        }
        Err(StoreError::unavailable("a registry's address begins with sqlite: or postgres://"))
    }

    /// Opens a registry that exists already; a SQLite file is opened unchanged.
    pub(crate) async fn open_existing(address: &str) -> Result<Self> {
        if let Some(path) = address.strip_prefix("sqlite:").map(plain)
            && !std::path::Path::new(path).is_file()
        {
            return Err(StoreError::unavailable(format!("there is no file {path}")));
        }
        Self::open_how(address, Open::AsItIs).await
    }

    /// Returns host, port and database of the server; `None` for a SQLite file.
    pub(crate) fn place(&self) -> Option<String> {
        self.server.as_ref()?.0.parse().ok().map(|options| place(&options).to_string())
    }

    async fn open_sqlite(path: &str, how: Open) -> Result<Self> {
        if path.is_empty() || path.contains(":memory:") {
            return Err(StoreError::unavailable("sqlite: needs the path of a file"));
        }
        let layer = sqlite_file::prepare(plain(path), how).await?;
        // Open the writer first: it turns the write-ahead log on.
        let write = open_sqlite_pool(path, layer, 1).await?;
        let read = open_sqlite_pool(path, layer, SQLITE_READERS_MAX).await?;
        Ok(Self { read, write: Writer::new(write), dialect: Dialect::Sqlite, server: None })
    }

    async fn open_postgres(address: &str, how: Open) -> Result<Self> {
        let write = match open_postgres_pool(address, POSTGRES_WRITERS_MAX, transaction::DURABLE, Duration::ZERO).await
        {
            // The pool retried for a while and does not report the cause.
            Err(StoreError::Busy) => return Err(no_postgres(address, ACQUIRE_WAIT).await),
            pool => pool?,
        };
        fitness::must_have_sessions(address, "stores.registry").await?;
        // One may be looked at.
        if matches!(how, Open::ToUse) {
            fitness::must_be_primary(address, "stores.registry").await?;
        }
        fitness::must_hold_every_text(address).await?;
        let read =
            open_postgres_pool(address, POSTGRES_READERS_MAX, transaction::OF_ONE_MOMENT, READS_SURE_FOR).await?;
        let server = Some(ServerAddress(address.into()));
        let watch = Arc::new(DatabaseWatch::begin("registry", address)?);
        let (read, write) = (Pool::watched(read, &watch), Writer::new(Pool::watched(write, &watch)));
        Ok(Self { read, write, dialect: Dialect::Postgres, server })
    }

    /// Returns `Ok` if a question is answered within this time, else the cause.
    pub(crate) async fn answers(&self, within: Duration) -> Result<()> {
        match Clock::System.timeout(within, one(&self.read, Sql::new("SELECT 1 AS answer"))).await {
            Err(_) | Ok(Err(StoreError::Busy)) => match &self.server {
                Some(ServerAddress(address)) => Err(no_postgres(address, within).await),
                None => Err(StoreError::Busy),
            },
            Ok(answer) => answer.map(drop),
        }
    }

    /// Opens a connection to PostgreSQL outside of the pools.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] on SQLite, or if there is no connection.
    pub(crate) async fn own_connection(&self) -> Result<OwnConnection> {
        let Some(ServerAddress(address)) = &self.server else {
            return Err(StoreError::unavailable("only a registry on PostgreSQL can be shared by processes"));
        };
        let options = address.parse::<PgConnectOptions>().map_err(DriverError::connection).map_err(failure)?;
        OwnConnection::open(&options).await.map_err(failure)
    }

    /// Begins a transaction that writes.
    pub(crate) async fn begin(&self) -> Result<Transaction> {
        self.write.begin().await
    }

    /// Begins a transaction that reads: every question in it sees the state of the same moment. The transaction ends
    /// when it is dropped, without waiting.
    pub(crate) async fn snapshot(&self) -> Result<OpenTransaction> {
        // Connections lost a moment ago are detected here, before anything has been asked of them.
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

/// Finds out why PostgreSQL gives no connection, by opening a single one. Returns [`StoreError::Busy`] if that
/// succeeds: then all connections of the pool are in use.
async fn no_postgres(address: &str, within: Duration) -> StoreError {
    let let_in = async {
        let mut connection = PgConnection::connect(address).await.map_err(StoreError::unavailable)?;
        must_take_writes(&mut connection).await?;
        connection.close().await.map_err(StoreError::unavailable)
    };
    match Clock::System.timeout(within, let_in).await {
        Ok(Ok(())) => StoreError::Busy,
        Ok(Err(error)) => error,
        Err(_) => StoreError::unavailable(format!("PostgreSQL gave no connection within {within:?}")),
    }
}

fn pool_options<DB: sqlx::Database>(connections: u32) -> PoolOptions<DB> {
    PoolOptions::new().max_connections(connections).acquire_timeout(ACQUIRE_WAIT)
}

/// Opens connections that write no log line for each statement.
async fn open_postgres_pool(
    address: &str,
    connections: u32,
    begin: &'static str,
    sure_for: Duration,
) -> Result<PgPool> {
    let options = address.parse::<PgConnectOptions>().map_err(DriverError::connection).map_err(failure)?;
    let pool = transaction::guard_postgres(pool_options(connections), begin, sure_for);
    let opened = pool.connect_with(options.disable_statement_logging()).await;
    opened.map_err(DriverError::connection).map_err(failure)
}

/// Returns the path of a SQLite file, without the slashes of a URL.
pub(crate) fn plain(path: &str) -> &str {
    path.strip_prefix("//").unwrap_or(path)
}

async fn open_sqlite_pool(path: &str, layer: Option<&'static str>, connections: u32) -> Result<Pool> {
    // The path is passed verbatim, outside a URL, so that no character in it has a meaning.
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
    use super::super::super::support::OwnDatabase;
    use super::*;

    /// Time long enough for a connection that is accepted.
    const WITHIN: Duration = Duration::from_secs(3);
    /// Address on which no server listens.
    const NOWHERE: &str = "postgres://somebody:secret@127.0.0.1:1/nothing";

    /// Takes all connections that read, each within a transaction.
    async fn all_readers(connections: &Connections, count: u32) -> Vec<OpenTransaction> {
        let mut held = Vec::new();
        for _ in 0..count {
            held.push(connections.snapshot().await.unwrap());
        }
        held
    }

    #[tokio::test]
    async fn registry_with_all_connections_in_use_is_slow() {
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
    async fn unreachable_registry_names_the_cause_but_no_password() {
        let database = OwnDatabase::new().await;
        let mut connections = Connections::open(&database.address).await.unwrap();
        let held = all_readers(&connections, POSTGRES_READERS_MAX).await;
        connections.server = Some(ServerAddress(NOWHERE.into()));
        let away = connections.answers(WITHIN).await.unwrap_err();
        let cause = away.to_string();
        assert!(cause.contains("refused"), "{cause}");
        assert!(!format!("{connections:?}{away:?}").contains("secret"));
        drop(held);
        connections.close().await.unwrap();
        database.remove().await;
    }
}
