//! Reads the file of SQLite, as of one moment, and never writes to it.

use std::fs::File;
use std::path::Path;

use futures::TryStreamExt as _;
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};
use sqlite_page_checksums::Open;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use super::rows::{ColumnKind, RegistryColumn, RegistryTable, quoted};
use super::{MoveFaults, RegistryMoveError, Result, StageMeter};
use crate::error::StoreError;
use crate::postgres::copied_rows::RowsDigest;
use crate::registry::migrations;
use crate::registry::sql::connections::plain;
use crate::registry::sql::{DriverError, failure, sqlite_file};

/// Bytes of the file that each process locks that has it open: those of SQLite's shared lock.
const SHARED_LOCK_AT: u64 = 0x4000_0002;
const SHARED_LOCK_BYTES: u64 = 510;
/// Rows that SQLite reads ahead; some have megabytes.
const ROWS_AHEAD: usize = 16;
/// Tables whose rows stay: the steps that a schema has, and the processes that serve it.
const STAYING_TABLES: [&str; 2] = ["schema_version", "nodes"];

/// File that is read.
pub(super) struct RegistrySource {
    connection: SqliteConnection,
    /// Number that changes when another connection changes the file.
    change: i64,
}

impl RegistrySource {
    /// Opens the file, whose schema must be that of this program.
    pub(super) async fn open(file: &str) -> Result<Self> {
        let path = plain(file);
        if !Path::new(path).is_file() {
            return Err(StoreError::unavailable(format!("there is no file {path}")).into());
        }
        // SQLite opens the file afterwards: closing it here would end the locks of this process.
        must_be_unused(path)?;
        let layer = sqlite_file::prepare(path, Open::AsItIs).await?;
        let options = SqliteConnectOptions::new().filename(path).read_only(true).row_buffer_size(ROWS_AHEAD);
        let options = match layer {
            Some(layer) => options.vfs(layer),
            None => options,
        };
        let connection = options.disable_statement_logging().connect().await.map_err(failed)?;
        let mut source = Self { connection, change: 0 };
        source.change = source.number("PRAGMA data_version").await?;
        source.run("BEGIN").await?;
        let has_steps = "SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'";
        if source.number(has_steps).await? == 0 {
            return Err(StoreError::Damaged(format!("{path} is no registry")).into());
        }
        let found = source.number("SELECT coalesce(max(version), 0) FROM schema_version").await?;
        let (found, known) = (u64::try_from(found).unwrap_or_default(), migrations::known());
        match found {
            _ if found == known => Ok(source),
            _ if found < known => Err(RegistryMoveError::OlderSource { found, known }),
            _ => Err(migrations::newer(found).into()),
        }
    }

    /// Describes the tables that are moved.
    pub(super) async fn tables(&mut self) -> Result<Vec<RegistryTable>> {
        let names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name";
        let mut tables = Vec::new();
        for row in self.all(names).await? {
            let name: String = row.try_get(0).map_err(failed)?;
            if STAYING_TABLES.contains(&&*name) {
                continue;
            }
            let columns = format!("SELECT name, type, \"notnull\", pk FROM pragma_table_info({})", literal(&name));
            let columns = self.all(&columns).await?;
            let columns = columns.iter().map(|row| column(&name, row)).collect::<Result<_, _>>()?;
            tables.push(RegistryTable { name, columns });
        }
        Ok(tables)
    }

    /// Lists references to rows that are not there.
    pub(super) async fn dangling(&mut self) -> Result<Vec<String>> {
        let dangling = "SELECT \"table\", parent, count(*) FROM pragma_foreign_key_check() GROUP BY \"table\", parent";
        let named = |row: &SqliteRow| {
            let (table, parent): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            Ok(format!("{} rows of {table} refer to rows of {parent} that are not there", row.try_get::<i64, _>(2)?))
        };
        let dangling = self.all(dangling).await?;
        dangling.iter().map(|row| named(row).map_err(|error: sqlx::Error| failed(error).into())).collect()
    }

    /// Reads all rows of a table, and names those that cannot be moved.
    pub(super) async fn read(
        &mut self,
        table: &RegistryTable,
        meter: &mut StageMeter<'_>,
        faults: &mut MoveFaults,
    ) -> Result<RowsDigest, StoreError> {
        let (mut digest, mut columns, query) = (RowsDigest::default(), Vec::new(), table.select());
        let mut rows = sqlx::query(AssertSqlSafe(query)).fetch(&mut self.connection);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            columns.clear();
            match table.write_row(&row, &mut columns) {
                Ok(()) => digest.take(&columns),
                Err(fault) => faults.add(fault),
            }
            meter.row_done();
        }
        Ok(digest)
    }

    /// Calls `take` with the rows of a table, encoded one after the other, in pieces of at least this many bytes.
    pub(super) async fn pieces(
        &mut self,
        table: &RegistryTable,
        piece_bytes: usize,
        meter: &mut StageMeter<'_>,
        mut take: impl AsyncFnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (mut piece, query) = (Vec::with_capacity(piece_bytes), table.select());
        let mut rows = sqlx::query(AssertSqlSafe(query)).fetch(&mut self.connection);
        while let Some(row) = rows.try_next().await.map_err(failed)? {
            table.write_count(&mut piece);
            table.write_row(&row, &mut piece).map_err(StoreError::Damaged)?;
            if piece.len() >= piece_bytes {
                take(&piece).await?;
                piece.clear();
            }
            meter.row_done();
        }
        take(&piece).await
    }

    /// Returns the last number that each table has given out.
    pub(super) async fn sequences(&mut self) -> Result<Vec<(String, i64)>, StoreError> {
        let rows = self.all("SELECT name, seq FROM sqlite_sequence").await?;
        rows.iter().map(|row| Ok((row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?))).collect()
    }

    /// Ends reading. Refuses a file that was changed meanwhile.
    pub(super) async fn end(mut self) -> Result<()> {
        self.run("COMMIT").await?;
        let change = self.number("PRAGMA data_version").await?;
        self.connection.close().await.map_err(failed)?;
        if change == self.change { Ok(()) } else { Err(RegistryMoveError::SourceChanged) }
    }

    async fn run(&mut self, statement: &'static str) -> Result<(), StoreError> {
        sqlx::raw_sql(statement).execute(&mut self.connection).await.map(drop).map_err(failed)
    }

    async fn number(&mut self, query: &'static str) -> Result<i64, StoreError> {
        let row = sqlx::query(query).fetch_one(&mut self.connection).await;
        row.and_then(|row| row.try_get(0)).map_err(failed)
    }

    async fn all(&mut self, query: &str) -> Result<Vec<SqliteRow>, StoreError> {
        sqlx::query(AssertSqlSafe(query.to_owned())).fetch_all(&mut self.connection).await.map_err(failed)
    }
}

fn column(table: &str, row: &SqliteRow) -> Result<RegistryColumn, StoreError> {
    let (name, word): (String, String) = (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
    let kind = ColumnKind::declared(&word)
        .ok_or_else(|| StoreError::Damaged(format!("{}.{} has the type {word}", quoted(table), quoted(&name))))?;
    let is_required = row.try_get::<i64, _>(2).map_err(failed)? != 0;
    let key_place = row.try_get(3).map_err(failed)?;
    // A primary key of SQLite may have NULL, one of PostgreSQL may not.
    Ok(RegistryColumn { name, kind, is_required: is_required || key_place > 0, key_place })
}

/// Fails if another process has the file open.
fn must_be_unused(path: &str) -> Result<()> {
    let file = File::open(path).map_err(StoreError::unavailable)?;
    let lock = Flock {
        start: SHARED_LOCK_AT,
        length: SHARED_LOCK_BYTES,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    match fcntl_getlk(&file, &lock).map_err(StoreError::unavailable)? {
        Some(_) => Err(RegistryMoveError::SourceInUse(path.to_owned())),
        None => Ok(()),
    }
}

fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn failed(error: sqlx::Error) -> StoreError {
    failure(DriverError::statement(error))
}
