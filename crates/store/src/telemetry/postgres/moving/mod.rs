//! Moves the telemetry of a stopped embedded store into the tables of a database.
//!
//! Rows are copied device by device, in pieces of bounded size. Each piece is a transaction, and has in it the note of the
//! place from which the next one continues ([`note`]): so a move that is interrupted at any moment goes on where it was.
//! Then both sides are read again and compared ([`compare`]). Only what is finished is served.

mod compare;
mod note;
mod tuples;

use std::sync::Arc;

use isobar_model::time::Timestamp;
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgPool, Postgres};
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::task::JoinHandle;

use self::compare::Comparison;
use self::note::MoveNote;
pub use self::note::must_be_finished;
use self::tuples::{MOVED_TABLES, MovedTable, table_of, write_count, write_row};
use super::connections::{self, failed};
use super::migrations;
use super::numbers::COUNTED_BITS;
use super::partitions::Partitions;
use crate::error::{Result, StoreError};
use crate::postgres::copied_rows::{begin_copy, end_copy};
use crate::postgres::fitness;
use crate::telemetry::embedded::StoppedStore;
use crate::telemetry::moved::{MovePlace, MovedPart, MovedRow, MovedRowSink};
use crate::telemetry::time_order::{TimeOrder, moment};

/// Rows of a piece, and (next constant) the bytes after which it is full.
const COPIED_ROWS: u64 = 20_000;
const COPIED_BYTES: usize = 8 << 20;

/// The reason for which telemetry is not moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The database has rows that are not of a move.
    #[error(
        "the database already has telemetry (in telemetry.{0}) that is not from a move: it may be that of another platform. \
         Name an empty database, or drop its schema telemetry if nobody needs that"
    )]
    ForeignRows(&'static str),
    /// A move from another source has begun.
    #[error(
        "a move to this database has begun from another folder. Go on with that one, or drop the schema telemetry of the \
         database to begin anew"
    )]
    OtherSource,
    /// Another move is under way.
    #[error("another isobar move is writing to this database")]
    OtherMove,
    /// A platform uses the database.
    #[error("a platform is running on this database: stop it first")]
    Served,
    /// The moved rows are not equal to their source.
    #[error(
        "what was moved is not the same as in the source:\n  {}\nThe database is not served. To begin anew, drop its schema \
         telemetry (DROP SCHEMA telemetry CASCADE) and run the command again", .0.join("\n  ")
    )]
    Different(Vec<String>),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Sizes of a move.
#[derive(Clone, Copy, Debug)]
pub struct MoveOptions {
    /// Rows, and (next field) bytes after which a piece ends.
    pub piece_rows: u64,
    /// See the field before.
    pub piece_bytes: usize,
}

impl Default for MoveOptions {
    fn default() -> Self {
        Self { piece_rows: COPIED_ROWS, piece_bytes: COPIED_BYTES }
    }
}

/// Progress of a move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveProgress {
    /// Devices that were moved or compared.
    pub devices: u64,
    /// Devices of the source.
    pub of_devices: u64,
    /// Events of their histories.
    pub events: u64,
    /// Stored values.
    pub values: u64,
}

/// Rows that were moved, and are the same on both sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MoveTotals {
    /// Devices, events, values.
    pub progress: MoveProgress,
    /// Series.
    pub series: u64,
    /// States of elements.
    pub states: u64,
    /// Queued cloud events.
    pub queued: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// Entries of the outbox.
    pub outbox: u64,
    /// Events that timelines of the source name and its history lacks: they could not be read before either.
    pub lacking: u64,
}

/// A piece of the rows, encoded for the database.
struct CopyPiece {
    copies: [Vec<u8>; MOVED_TABLES],
    rows: [u64; MOVED_TABLES],
    /// Positions in time of the events.
    orders: Vec<TimeOrder>,
    lacking: u64,
    /// Room that is left.
    rows_left: u64,
    bytes_left: usize,
}

impl CopyPiece {
    fn new(options: MoveOptions) -> Self {
        Self {
            copies: Default::default(),
            rows: [0; MOVED_TABLES],
            orders: Vec::new(),
            lacking: 0,
            rows_left: options.piece_rows.max(1),
            bytes_left: options.piece_bytes,
        }
    }
}

impl MovedRowSink for CopyPiece {
    fn take(&mut self, device: u64, row: &MovedRow<'_>) {
        let table = table_of(row);
        let copy = &mut self.copies[table as usize];
        if copy.is_empty() {
            begin_copy(copy);
        }
        let before = copy.len();
        write_count(table, copy);
        write_row(device, row, copy);
        self.rows[table as usize] += 1;
        self.rows_left = self.rows_left.saturating_sub(1);
        self.bytes_left = self.bytes_left.saturating_sub(copy.len() - before);
        if let MovedRow::Event(event) = row {
            self.orders.push(event.order);
        }
    }

    fn lacks_event(&mut self, _device: u64) {
        self.lacking += 1;
    }

    fn is_full(&self) -> bool {
        self.rows_left == 0 || self.bytes_left == 0
    }
}

/// A piece that is read, and the place from which the next one continues.
type ReadPiece = JoinHandle<Result<(CopyPiece, MovePlace)>>;

/// A move under way. It can be dropped at any moment, and begun again.
pub struct TelemetryMove {
    source: Arc<StoppedStore>,
    pool: PgPool,
    connection: PoolConnection<Postgres>,
    partitions: Partitions,
    options: MoveOptions,
    note: MoveNote,
    of_devices: u64,
    ahead: Option<ReadPiece>,
    comparison: Option<Comparison>,
}

impl TelemetryMove {
    /// Begins a move, or continues one; its tables are made if they are not there. Also returns true if a former move is
    /// begun anew, because a platform has run on the source since.
    pub async fn begin(
        source: StoppedStore,
        address: &str,
        options: MoveOptions,
    ) -> std::result::Result<(Self, bool), MoveError> {
        fitness::must_have_sessions(address, "--to").await?;
        fitness::must_be_primary(address, "--to").await?;
        let pool = connections::to_change(address).await?;
        migrations::migrate(&pool).await?;
        let mut connection = pool.acquire().await.map_err(failed)?;
        note::exclude_others(&mut connection).await?;
        let read = move || {
            let place = source.place_from(0)?;
            numbers_must_fit(&source)?;
            let of_devices = source.devices_from(0)?;
            Ok::<_, StoreError>((source, place, of_devices))
        };
        let (source, place, of_devices) =
            tokio::task::spawn_blocking(read).await.map_err(StoreError::unavailable)??;
        let (identity, sequence) = source.identity();
        let (note, is_anew) = note::read_or_begin(&mut connection, (identity.to_owned(), sequence), place).await?;
        let (source, partitions) = (Arc::new(source), Partitions::default());
        let (ahead, comparison) = (None, None);
        let begun = Self { source, pool, connection, partitions, options, note, of_devices, ahead, comparison };
        Ok((begun, is_anew))
    }

    /// Returns the progress of copying.
    pub fn progress(&self) -> MoveProgress {
        let MoveNote { devices, events, values, .. } = self.note;
        MoveProgress { devices, of_devices: self.of_devices, events, values }
    }

    /// Copies the next piece; returns false if all are copied.
    pub async fn copy(&mut self) -> Result<bool> {
        if self.note.place.part == MovedPart::End {
            return Ok(false);
        }
        let ahead = self.ahead.take().unwrap_or_else(|| self.read_ahead(self.note.place.clone()));
        let (mut piece, place) = ahead.await.map_err(StoreError::unavailable)??;
        if place.part != MovedPart::End {
            self.ahead = Some(self.read_ahead(place.clone()));
        }
        let rows = |table: MovedTable| piece.rows[table as usize];
        let note = MoveNote {
            place,
            devices: self.note.devices + rows(MovedTable::Head),
            events: self.note.events + rows(MovedTable::Event),
            values: self.note.values + rows(MovedTable::Value),
            lacking: self.note.lacking + piece.lacking,
            source: self.note.source.clone(),
        };
        self.write(&mut piece, &note).await?;
        self.note = note;
        Ok(true)
    }

    fn read_ahead(&self, place: MovePlace) -> ReadPiece {
        let (source, mut piece) = (Arc::clone(&self.source), CopyPiece::new(self.options));
        tokio::task::spawn_blocking(move || {
            let end = source.read(place, &mut piece)?;
            Ok((piece, end))
        })
    }

    async fn write(&mut self, piece: &mut CopyPiece, note: &MoveNote) -> Result<()> {
        let missing = self.partitions.missing(piece.orders.iter().copied());
        self.partitions.make(&mut self.connection, missing).await?;
        let mut tx = self.connection.begin().await.map_err(failed)?;
        for (table, rows) in MovedTable::ALL.into_iter().zip(&mut piece.copies) {
            if rows.is_empty() {
                continue;
            }
            end_copy(rows);
            let statement = table.copy_in();
            let mut copy = tx.copy_in_raw(&statement).await.map_err(failed)?;
            copy.send(&rows[..]).await.map_err(failed)?;
            copy.finish().await.map_err(failed)?;
        }
        note::write(&mut tx, note).await?;
        tx.commit().await.map_err(failed)
    }

    /// Compares the next devices with the source; returns their progress, or `None` if all are compared. Call it after
    /// everything is copied.
    pub async fn compare(&mut self) -> std::result::Result<Option<MoveProgress>, MoveError> {
        let mut comparison = match self.comparison.take() {
            Some(comparison) => comparison,
            None => Comparison::begin(&self.source, &mut self.connection).await?,
        };
        let goes_on = comparison.step(&mut self.connection).await?;
        let comparison = self.comparison.insert(comparison);
        if goes_on {
            return Ok(Some(compared(comparison, self.of_devices)));
        }
        match comparison.differences.is_empty() {
            true => Ok(None),
            false => Err(MoveError::Different(comparison.differences.clone())),
        }
    }

    /// Finishes the move: from now on the store can be opened. Compares first what is not compared yet.
    pub async fn finish(mut self) -> std::result::Result<MoveTotals, MoveError> {
        while self.copy().await? {}
        while self.compare().await?.is_some() {}
        let source = Arc::clone(&self.source);
        let marks = tokio::task::spawn_blocking(move || source.marks()).await.map_err(StoreError::unavailable)??;
        let tables: Vec<_> = MovedTable::ALL.iter().map(|table| format!("telemetry.{}", table.name())).collect();
        let analyze = format!("ANALYZE {}", tables.join(", "));
        sqlx::raw_sql(AssertSqlSafe(analyze)).execute(&mut *self.connection).await.map_err(failed)?;
        let mut tx = self.connection.begin().await.map_err(failed)?;
        // The head of a device that has no data: its number is not given out again.
        let head = "INSERT INTO telemetry.head (device, seq, last_commit, device_events, cloud_events, device_order, \
                    cloud_order, queued) SELECT $1, 1, 1, 0, 0, $2, $2, 0 WHERE $1 > 0 ON CONFLICT DO NOTHING";
        let head = sqlx::query(head).bind(marks.greatest_device as i64).bind(TimeOrder::MIN.to_be_bytes());
        head.execute(&mut *tx).await.map_err(failed)?;
        // The newest event may be that of a device that is deleted: identifiers go on behind it nevertheless.
        let newest =
            (marks.newest > 0).then(|| Timestamp::from_millis(moment(marks.newest).millis().saturating_add(1)));
        for (name, millis) in [("seen", marks.seen), ("cutoff", marks.cutoff), ("newest", newest)] {
            let Some(millis) = millis else { continue };
            let note = sqlx::query(
                "INSERT INTO telemetry.moment (name, millis) VALUES ($1, $2) \
                 ON CONFLICT (name) DO UPDATE SET millis = excluded.millis",
            );
            note.bind(name).bind(millis.millis()).execute(&mut *tx).await.map_err(failed)?;
        }
        if let Some(identity) = marks.identity {
            // The registry knows the store by it.
            let carry = sqlx::query("UPDATE telemetry.membership SET identity = $1::uuid").bind(identity.to_string());
            carry.execute(&mut *tx).await.map_err(failed)?;
        }
        // Also of a store without data it is known that it is this platform's: see membership.
        sqlx::raw_sql("SELECT nextval('telemetry.process'); DROP TABLE telemetry.move")
            .execute(&mut *tx)
            .await
            .map_err(failed)?;
        tx.commit().await.map_err(failed)?;
        let totals = self.totals();
        drop(self.connection);
        self.pool.close().await;
        Ok(totals)
    }

    fn totals(&self) -> MoveTotals {
        let Some(comparison) = &self.comparison else { return MoveTotals::default() };
        let equal = |table: MovedTable| comparison.equal[table as usize];
        MoveTotals {
            progress: compared(comparison, self.of_devices),
            series: equal(MovedTable::Last),
            states: equal(MovedTable::State),
            queued: equal(MovedTable::Queue),
            keys: equal(MovedTable::Key),
            outbox: equal(MovedTable::Outbox),
            lacking: self.note.lacking,
        }
    }
}

fn compared(comparison: &Comparison, of_devices: u64) -> MoveProgress {
    let equal = |table: MovedTable| comparison.equal[table as usize];
    MoveProgress {
        devices: equal(MovedTable::Head),
        of_devices,
        events: equal(MovedTable::Event),
        values: equal(MovedTable::Value),
    }
}

/// Refuses a source whose numbers of series or of the outbox could be given again by a process on the database.
fn numbers_must_fit(source: &StoppedStore) -> Result<()> {
    match source.greatest_number()? >> COUNTED_BITS {
        0 => Ok(()),
        _ => Err(StoreError::Damaged("numbers of series or of the outbox are too large".to_owned())),
    }
}
