//! Fills the database, in one transaction.

use std::time::Duration;

use futures::TryStreamExt as _;
use isobar_model::time::Clock;

use super::rows::{RegistryTable, quoted};
use super::source::RegistrySource;
use super::{NAMED_ROWS_MAX, RegistryMoveError, Result, StageMeter};
use crate::error::StoreError;
use crate::postgres::copied_rows::{CopiedRowReader, RowsDigest, begin_copy, end_copy};
use crate::registry::migrations;
use crate::registry::sql::connections::Connections;
use crate::registry::sql::transaction::DURABLE;
use crate::registry::sql::{
    AdvisoryLock, Connection, Dialect, DriverError, OwnConnection, Sql, all, failure, one, run_script,
};

/// Bytes of rows that are sent at a time.
const SENT_BYTES: usize = 1 << 20;
/// Time within which the database must say what became of a commit whose answer was lost, and (next constant) the pause
/// between two questions.
const OUTCOME_WAIT: Duration = Duration::from_secs(60);
const OUTCOME_PAUSE: Duration = Duration::from_millis(500);
/// Settings of the connection: a lock is not waited for forever, and statements for a command that was ended end soon.
const MOVE_SETTINGS: &str = "SET idle_in_transaction_session_timeout = 0; SET lock_timeout = '10s'; \
    SET client_connection_check_interval = '2s'";

/// Table that is there from the beginning of a move until it has finished.
const MARK: &str = "registry_move";
const MAKE_MARK: &str = "CREATE TABLE IF NOT EXISTS registry_move (begun TIMESTAMPTZ NOT NULL DEFAULT now())";
const REMOVE_MARK: &str = "DROP TABLE registry_move";
/// Condition for relations `c` of the schema that is filled, without those of extensions and the mark.
macro_rules! own_relations {
    () => {
        "c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) \
         AND c.relname <> 'registry_move' AND NOT EXISTS (SELECT FROM pg_depend d \
         WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')"
    };
}

/// Names a relation that is there.
const FIND_RELATION: &str = concat!(
    "SELECT current_schema() AS schema, min(c.relname::text) AS relation FROM pg_class c \
     WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') AND ",
    own_relations!(),
    " HAVING count(*) > 0"
);
/// Names all columns of the tables, with their types.
const FIND_COLUMNS: &str = concat!(
    "SELECT c.relname::text AS relation, a.attname::text AS name, format_type(a.atttypid, a.atttypmod) AS kind \
     FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid \
     WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND ",
    own_relations!()
);
/// Names what rows are quicker to copy without: indexes that are no constraints, and foreign keys; each with the
/// statements that remove it and make it again. Foreign keys come last: they need indexes.
const FIND_DETACHABLE: &str = concat!(
    "SELECT 1 AS rank, format('DROP INDEX %I', i.relname) AS remove, pg_get_indexdef(i.oid) AS make \
     FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class c ON c.oid = x.indrelid \
     WHERE NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.oid AND k.contype IN ('p', 'u', 'x')) AND ",
    own_relations!(),
    " UNION ALL SELECT 2, format('ALTER TABLE %I DROP CONSTRAINT %I', c.relname, k.conname), \
     format('ALTER TABLE %I ADD CONSTRAINT %I %s', c.relname, k.conname, pg_get_constraintdef(k.oid)) \
     FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid WHERE k.contype = 'f' AND ",
    own_relations!(),
    " ORDER BY 1, 3"
);
/// Names the triggers that are off, each with the statement that turns it on.
const FIND_TRIGGERS: &str = concat!(
    "SELECT format('ALTER TABLE %I ENABLE TRIGGER %I', c.relname, t.tgname) AS enable \
     FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE NOT t.tgisinternal AND t.tgenabled = 'D' AND ",
    own_relations!()
);
/// Names the column of a table whose numbers a sequence gives out.
const FIND_NUMBERED: &str = "SELECT a.attname::text AS name FROM pg_attribute a \
    WHERE a.attrelid = CAST(? AS regclass) AND a.attidentity <> ''";

/// The error for a database to which a move has not finished.
#[derive(Debug, thiserror::Error)]
#[error(
    "the move of the registry to this database has not finished: run isobar move again until it has. To begin with an empty \
     platform instead, drop the table {MARK}"
)]
struct UnfinishedRegistryMove;

/// Fails while a move to the database has not finished.
pub(in crate::registry) async fn must_be_moved(connection: &impl Connection) -> Result<(), StoreError> {
    if Dialect::of(connection) == Dialect::Sqlite {
        return Ok(());
    }
    let mark = Sql::new("SELECT CAST(to_regclass(?) IS NOT NULL AS INT)::BIGINT AS is_there").bind(MARK);
    match one(connection, mark).await?.map_or(Ok(false), |row| row.truth("is_there"))? {
        true => Err(StoreError::unavailable(UnfinishedRegistryMove)),
        false => Ok(()),
    }
}

/// Keys and indexes that were removed from empty tables, to be made again when they are full.
pub(super) struct DetachedParts(Vec<String>);

impl DetachedParts {
    pub(super) fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

/// Database that is filled.
pub(super) struct RegistryTarget {
    db: Connections,
    own: OwnConnection,
    /// Tables that only PostgreSQL has, and those whose rows stay; they are empty.
    others: Vec<String>,
}

impl RegistryTarget {
    pub(super) async fn open(address: &str) -> Result<Self> {
        let db = Connections::open(address).await?;
        let own = db.own_connection().await?;
        run_script(&own, format!("{DURABLE}; {MOVE_SETTINGS}")).await?;
        Ok(Self { db, own, others: Vec::new() })
    }

    /// Refuses a schema in which something is.
    async fn must_be_vacant(&self) -> Result<()> {
        let Some(row) = one(&self.own, Sql::new(FIND_RELATION)).await? else { return Ok(()) };
        Err(RegistryMoveError::Occupied { schema: row.text("schema")?, table: row.text("relation")? })
    }

    /// Makes the schema and takes it back: refuses a database that cannot have it, and tables that do not fit.
    pub(super) async fn try_schema(&self, tables: &[RegistryTable]) -> Result<()> {
        self.begin_alone().await?;
        migrations::migrate(&self.own).await?;
        self.must_agree(tables).await?;
        Ok(run_script(&self.own, "ROLLBACK".to_owned()).await?)
    }

    /// Marks the database: from now on no platform starts on it before the move has finished.
    pub(super) async fn mark(&self) -> Result<()> {
        self.begin_alone().await?;
        run_script(&self.own, MAKE_MARK.to_owned()).await?;
        Ok(run_script(&self.own, "COMMIT".to_owned()).await?)
    }

    /// Begins a transaction that no other move, and no platform that starts, is beside.
    async fn begin_alone(&self) -> Result<()> {
        run_script(&self.own, "BEGIN".to_owned()).await?;
        match AdvisoryLock::Schema.hold(&self.own).await {
            // The lock was waited for: the connection of a move that was killed may take a moment to end.
            Err(StoreError::Busy) => return Err(RegistryMoveError::OtherWriter),
            held => held?,
        }
        self.must_be_vacant().await
    }

    /// Begins the transaction, and makes the schema in it, without what would slow the copy.
    pub(super) async fn begin(&mut self, tables: &[RegistryTable]) -> Result<DetachedParts> {
        self.begin_alone().await?;
        migrations::migrate(&self.own).await?;
        self.others = self.must_agree(tables).await?;
        let mut script = String::new();
        for table in tables {
            // What is moved is no change that processes have to hear of.
            script.push_str(&format!("ALTER TABLE {} DISABLE TRIGGER USER; ", quoted(&table.name)));
        }
        let parts = all(&self.own, Sql::new(FIND_DETACHABLE)).await?;
        // Foreign keys go first: they depend on indexes.
        for part in parts.iter().rev() {
            script.push_str(&part.text("remove")?);
            script.push_str("; ");
        }
        let names: Vec<_> = tables.iter().map(|table| quoted(&table.name)).collect();
        script.push_str(&format!("TRUNCATE {}", names.join(", ")));
        run_script(&self.own, script).await?;
        Ok(DetachedParts(parts.iter().map(|part| part.text("make")).collect::<Result<_, _>>()?))
    }

    /// Refuses tables that do not have the columns of the schema; returns the tables of the schema that are not moved.
    async fn must_agree(&self, tables: &[RegistryTable]) -> Result<Vec<String>, StoreError> {
        let mut columns = Vec::new();
        for row in all(&self.own, Sql::new(FIND_COLUMNS)).await? {
            columns.push((row.text("relation")?, row.text("name")?, row.text("kind")?));
        }
        for table in tables {
            let mut expected: Vec<_> =
                table.columns.iter().map(|column| (&*column.name, column.kind.in_postgres())).collect();
            let found = columns.iter().filter(|(relation, ..)| *relation == table.name);
            let mut found: Vec<_> = found.map(|(_, name, kind)| (&**name, &**kind)).collect();
            expected.sort_unstable();
            found.sort_unstable();
            if expected != found {
                let why = format!("the table {} of the file has other columns than the schema", table.name);
                return Err(StoreError::Damaged(why));
            }
        }
        let mut others: Vec<_> = columns.into_iter().map(|(relation, ..)| relation).collect();
        others.sort_unstable();
        others.dedup();
        others.retain(|name| name != "schema_version" && !tables.iter().any(|table| table.name == *name));
        Ok(others)
    }

    /// Copies the rows of a table.
    pub(super) async fn copy(
        &mut self,
        source: &mut RegistrySource,
        table: &RegistryTable,
        meter: &mut StageMeter<'_>,
    ) -> Result<(), StoreError> {
        let mut copy = self.own.session().copy_in_raw(&table.copy_in()).await.map_err(failed)?;
        let mut edge = Vec::new();
        begin_copy(&mut edge);
        copy.send(&*edge).await.map_err(failed)?;
        let send = async |piece: &[u8]| copy.send(piece).await.map(drop).map_err(failed);
        source.pieces(table, SENT_BYTES, meter, send).await?;
        edge.clear();
        end_copy(&mut edge);
        copy.send(&*edge).await.map_err(failed)?;
        copy.finish().await.map(drop).map_err(failed)
    }

    /// Makes each table continue behind the last number that it has given out.
    pub(super) async fn set_sequences(&self, last: &[(String, i64)]) -> Result<(), StoreError> {
        for (table, last) in last.iter().filter(|(_, last)| *last > 0) {
            let name = quoted(table);
            let column = one(&self.own, Sql::new(FIND_NUMBERED).bind(&*name)).await?;
            let column = column.ok_or_else(|| StoreError::Damaged(format!("{table} has no numbers")))?.text("name")?;
            // No number is below one that a row has, whatever the file says.
            let set = format!(
                "SELECT setval(CAST(pg_get_serial_sequence(?, ?) AS regclass), greatest(?, max({}))) AS number FROM {name}",
                quoted(&column)
            );
            one(&self.own, Sql::new(set).bind(&*name).bind(&*column).bind(*last)).await?;
        }
        Ok(())
    }

    /// Makes what was detached, and turns the triggers on again.
    pub(super) async fn attach(&self, detached: DetachedParts, meter: &mut StageMeter<'_>) -> Result<(), StoreError> {
        for make in detached.0 {
            run_script(&self.own, make).await?;
            meter.step_done();
        }
        for row in all(&self.own, Sql::new(FIND_TRIGGERS)).await? {
            run_script(&self.own, row.text("enable")?).await?;
        }
        Ok(())
    }

    /// Reads all rows again, and compares them with those of the file.
    pub(super) async fn compare(
        &mut self,
        tables: &[RegistryTable],
        expected: &[RowsDigest],
        meter: &mut StageMeter<'_>,
    ) -> Result<()> {
        let mut differences = Vec::new();
        for (table, expected) in tables.iter().zip(expected) {
            let found = self.digest(table, meter).await?;
            if found == *expected {
                continue;
            }
            let (name, in_file, in_database) = (&table.name, expected.rows, found.rows);
            differences.push(match in_file == in_database {
                true => format!("{name}: as many rows ({in_file}), but not the same"),
                false => format!("{name}: {in_file} rows in the source, {in_database} in the database"),
            });
        }
        for name in &self.others {
            let count = format!("SELECT count(*) AS found FROM {}", quoted(name));
            match one(&self.own, Sql::new(count)).await?.map_or(Ok(0), |row| row.count("found"))? {
                0 => {}
                some => differences.push(format!("{name}: {some} rows that are of no file")),
            }
        }
        differences.truncate(NAMED_ROWS_MAX);
        if differences.is_empty() { Ok(()) } else { Err(RegistryMoveError::Different(differences)) }
    }

    async fn digest(&mut self, table: &RegistryTable, meter: &mut StageMeter<'_>) -> Result<RowsDigest, StoreError> {
        let (mut digest, mut reader, statement) = (RowsDigest::default(), CopiedRowReader::default(), table.copy_out());
        let mut rows = self.own.session().copy_out_raw(&statement).await.map_err(failed)?;
        while let Some(bytes) = rows.try_next().await.map_err(failed)? {
            reader.feed(&bytes, |columns| {
                digest.take(columns);
                meter.row_done();
                Ok(())
            })?;
        }
        Ok(digest)
    }

    /// Commits. Asks the database what became of it where its answer is lost.
    pub(super) async fn commit(self, tables: &[RegistryTable]) -> Result<()> {
        let names: Vec<_> = tables.iter().map(|table| quoted(&table.name)).collect();
        run_script(&self.own, format!("ANALYZE {}; {REMOVE_MARK}", names.join(", "))).await?;
        let number = one(&self.own, Sql::new("SELECT CAST(pg_current_xact_id() AS TEXT) AS number")).await?;
        let number = number.map_or(Ok(String::new()), |row| row.text("number"))?;
        let committed = match run_script(&self.own, "COMMIT".to_owned()).await {
            Ok(()) => Ok(()),
            Err(lost) => self.outcome(&number, lost).await,
        };
        self.db.close().await?;
        committed
    }

    /// Asks for the outcome of a transaction whose connection ended.
    async fn outcome(&self, number: &str, lost: StoreError) -> Result<()> {
        let status = "SELECT coalesce(pg_xact_status(CAST(CAST(? AS TEXT) AS xid8)), '') AS status";
        let begun = Clock::System.instant();
        while Clock::System.elapsed(begun) < OUTCOME_WAIT {
            let status = one(&self.db.read, Sql::new(status).bind(number)).await;
            match status.and_then(|row| row.map_or(Ok(String::new()), |row| row.text("status"))).as_deref() {
                Ok("committed") => return Ok(()),
                Ok("aborted") => return Err(lost.into()),
                Ok("in progress") | Err(_) => Clock::System.sleep(OUTCOME_PAUSE).await,
                Ok(_) => break,
            }
        }
        Err(RegistryMoveError::UnknownOutcome(lost))
    }
}

fn failed(error: sqlx::Error) -> StoreError {
    failure(DriverError::statement(error))
}
