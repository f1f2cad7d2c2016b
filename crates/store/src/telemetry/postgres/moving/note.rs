//! Keeps the note of a move in the database, from its beginning until it is finished: while it is there, nothing is served.

use sqlx::postgres::{PgConnection, PgPool};
use sqlx::{AssertSqlSafe, Connection as _};

use super::super::connections::{GROUPS_LOCK_CLASS, ReadColumn as _, failed};
use super::MoveError;
use super::tuples::MovedTable;
use crate::error::{Result, StoreError};
use crate::telemetry::moved::{MovePlace, MovedPart};

/// Lock that keeps two moves from writing at once.
const MOVE_LOCK: i64 = 0x0069_736f_6261_7213;

const NOTE_IS_THERE: &str = "SELECT to_regclass('telemetry.move') IS NOT NULL";
const MAKE_NOTE: &str = "CREATE TABLE telemetry.move (source TEXT NOT NULL, sequence BIGINT NOT NULL, device BIGINT NOT NULL, \
    part SMALLINT NOT NULL, name BYTEA NOT NULL, next BIGINT NOT NULL, devices BIGINT NOT NULL, events BIGINT NOT NULL, \
    \"values\" BIGINT NOT NULL, lacking BIGINT NOT NULL)";
const READ_NOTE: &str =
    "SELECT source, sequence, device, part, name, next, devices, events, \"values\", lacking FROM telemetry.move";
const FORGET_NOTE: &str = "DELETE FROM telemetry.move";
const WRITE_NOTE: &str = "INSERT INTO telemetry.move (source, sequence, device, part, name, next, devices, events, \"values\", \
    lacking) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// The error for a database to which a move has not finished.
#[derive(Debug, thiserror::Error)]
#[error("the move of telemetry to this database has not finished: run isobar move again until it has")]
struct UnfinishedMove;

/// Progress of a move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MoveNote {
    /// Identity of the source, and the number of its last change.
    pub source: (String, u64),
    /// Place from which it continues.
    pub place: MovePlace,
    /// Devices whose state is moved.
    pub devices: u64,
    /// Events that are moved.
    pub events: u64,
    /// Values that are moved.
    pub values: u64,
    /// Events that history lacked.
    pub lacking: u64,
}

/// Fails while a move to the database has not finished.
pub async fn must_be_finished(pool: &PgPool) -> Result<()> {
    let is_there: bool = sqlx::query(NOTE_IS_THERE).fetch_one(pool).await.map_err(failed)?.column(0)?;
    if is_there { Err(StoreError::unavailable(UnfinishedMove)) } else { Ok(()) }
}

/// Excludes other moves for the rest of the connection, and platforms that use the database.
pub async fn exclude_others(connection: &mut PgConnection) -> std::result::Result<(), MoveError> {
    let lock = sqlx::query("SELECT pg_advisory_lock($1)").bind(MOVE_LOCK).execute(&mut *connection).await;
    match lock.map_err(failed) {
        // The lock was waited for: the connection of a move that was killed may take a moment to end.
        Err(StoreError::Busy) => return Err(MoveError::OtherMove),
        locked => locked?,
    };
    let served = format!(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = {GROUPS_LOCK_CLASS} AND database = \
         (SELECT oid FROM pg_database WHERE datname = current_database())"
    );
    let served: i64 = sqlx::query(AssertSqlSafe(served)).fetch_one(connection).await.map_err(failed)?.column(0)?;
    if served > 0 { Err(MoveError::Served) } else { Ok(()) }
}

/// Reads the note of a move, or begins one where the database has no rows.
pub async fn read_or_begin(
    connection: &mut PgConnection,
    source: (String, u64),
    place: MovePlace,
) -> std::result::Result<(MoveNote, bool), MoveError> {
    let mut tx = connection.begin().await.map_err(failed)?;
    let is_there: bool = sqlx::query(NOTE_IS_THERE).fetch_one(&mut *tx).await.map_err(failed)?.column(0)?;
    let found = match is_there {
        true => read(&mut tx).await?,
        false => {
            must_be_empty(&mut tx).await?;
            sqlx::raw_sql(MAKE_NOTE).execute(&mut *tx).await.map_err(failed)?;
            None
        }
    };
    let is_again = match &found {
        Some(found) if found.source == source => return Ok((found.clone(), false)),
        Some(found) if found.source.0 != source.0 => return Err(MoveError::OtherSource),
        Some(_) => true,
        None => false,
    };
    if is_again {
        // The platform has run on the source since: what is moved may be outdated.
        let tables: Vec<_> = MovedTable::ALL.iter().map(|table| format!("telemetry.{}", table.name())).collect();
        let clear = format!("TRUNCATE {}", tables.join(", "));
        sqlx::raw_sql(AssertSqlSafe(clear)).execute(&mut *tx).await.map_err(failed)?;
    }
    let note = MoveNote { source, place, ..MoveNote::default() };
    write(&mut tx, &note).await?;
    tx.commit().await.map_err(failed)?;
    Ok((note, is_again))
}

async fn must_be_empty(connection: &mut PgConnection) -> std::result::Result<(), MoveError> {
    for table in MovedTable::ALL {
        let any = format!("SELECT EXISTS (SELECT 1 FROM telemetry.{})", table.name());
        let any = sqlx::query(AssertSqlSafe(any)).fetch_one(&mut *connection).await.map_err(failed)?;
        if any.column(0)? {
            return Err(MoveError::ForeignRows(table.name()));
        }
    }
    Ok(())
}

async fn read(connection: &mut PgConnection) -> Result<Option<MoveNote>> {
    let Some(row) = sqlx::query(READ_NOTE).fetch_optional(connection).await.map_err(failed)? else { return Ok(None) };
    let part = MovedPart::of(row.column(3)?);
    let place = MovePlace {
        device: row.count(2)?,
        part: part.ok_or_else(|| StoreError::Damaged("the note of a move names an unknown part".to_owned()))?,
        name: row.column::<Vec<u8>>(4)?,
        next: row.count(5)?,
    };
    Ok(Some(MoveNote {
        source: (row.column(0)?, row.count(1)?),
        place,
        devices: row.count(6)?,
        events: row.count(7)?,
        values: row.count(8)?,
        lacking: row.count(9)?,
    }))
}

/// Writes the note.
pub async fn write(connection: &mut PgConnection, note: &MoveNote) -> Result<()> {
    sqlx::query(FORGET_NOTE).execute(&mut *connection).await.map_err(failed)?;
    let place = &note.place;
    let query = sqlx::query(WRITE_NOTE).bind(&note.source.0).bind(note.source.1 as i64).bind(place.device as i64);
    let query = query.bind(place.part as i16).bind(&place.name).bind(place.next as i64);
    let query = query.bind(note.devices as i64).bind(note.events as i64).bind(note.values as i64);
    query.bind(note.lacking as i64).execute(connection).await.map(drop).map_err(failed)
}
