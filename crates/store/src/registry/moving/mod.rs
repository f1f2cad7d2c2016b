//! Moves the registry of a stopped platform from a file of SQLite into an empty PostgreSQL.
//!
//! Tables and columns are those that the schema has: no noun is named here. All rows are read once before anything is
//! changed, to find what cannot be carried over. Then one transaction makes the schema, fills it, reads all of it again
//! and compares: it is committed whole, or leaves nothing. A mark in the database, which that transaction removes, keeps
//! platforms away from a database to which a move has begun and not finished.

mod rows;
mod source;
mod target;

use rows::RegistryTable;
use source::RegistrySource;
use target::RegistryTarget;
pub(super) use target::must_be_moved;

use crate::error::StoreError;
use crate::postgres::copied_rows::RowsDigest;

/// Bounds the rows that cannot be carried over, and the differences, that are named.
const NAMED_ROWS_MAX: usize = 20;
/// Rows between two reports of progress.
const REPORTED_ROWS: u64 = 5_000;

/// The reason for which a registry is not moved.
#[derive(Debug, thiserror::Error)]
pub enum RegistryMoveError {
    /// The file does not have the schema of this program.
    #[error(
        "the registry has {found} steps of its schema, and this program knows {known}: start it once with this program, which \
         brings it up to date, stop it, and move it then"
    )]
    OlderSource {
        /// Steps that the file has.
        found: u64,
        /// Steps that the program knows.
        known: u64,
    },
    /// Another process has the file open.
    #[error("the registry {0} is in use by another process: stop it first")]
    SourceInUse(String),
    /// Another process wrote to the file.
    #[error("a process has written to the registry during the move: stop it, and run the command again")]
    SourceChanged,
    /// The file has what PostgreSQL cannot take.
    #[error("nothing was changed, because this cannot be brought to PostgreSQL:\n  {}", .0.join("\n  "))]
    Unmovable(Vec<String>),
    /// The database has tables that are not of a move.
    #[error(
        "the database is not empty: its schema {schema} has {table}. It may be the registry of another platform, or belong \
         to something else: name an empty database"
    )]
    Occupied {
        /// The schema that would be filled.
        schema: String,
        /// A relation in it.
        table: String,
    },
    /// Another process is making or moving a registry there.
    #[error("another isobar move, or a platform that starts, is writing to this database")]
    OtherWriter,
    /// The moved rows are not equal to their source.
    #[error("what was moved is not the same as in the source, and was taken back:\n  {}", .0.join("\n  "))]
    Different(Vec<String>),
    /// The connection ended during the commit, and the database could not be asked about it.
    #[error(
        "the database did not say whether the move was committed. Run the command again: if the database is not empty then, \
         the move had finished, and both sides were the same"
    )]
    UnknownOutcome(#[source] StoreError),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

type Result<T, E = RegistryMoveError> = std::result::Result<T, E>;

/// Stage of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RegistryMoveStage {
    /// Rows of the file are read and checked.
    Read,
    /// Rows are copied.
    Copied,
    /// Indexes and foreign keys are made.
    Indexed,
    /// Rows are read from the database and compared.
    Compared,
}

/// Progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegistryMoveProgress {
    /// The present stage.
    pub stage: RegistryMoveStage,
    /// Rows that are done in this stage, or indexes and foreign keys.
    pub done: u64,
    /// Number of them that there are; 0 if it is not known yet.
    pub of: u64,
    /// True if the stage has ended.
    pub is_last: bool,
}

/// Receiver of progress.
pub type RegistryMoveView<'a> = &'a mut (dyn FnMut(RegistryMoveProgress) + Send);

/// Tables that were moved, with the number of their rows; both sides have the same.
pub type RegistryMoveTotals = Vec<(String, u64)>;

/// Counts what a stage has done, and reports it now and then.
struct StageMeter<'a> {
    progress: RegistryMoveProgress,
    view: RegistryMoveView<'a>,
}

impl<'a> StageMeter<'a> {
    fn begin(stage: RegistryMoveStage, of: u64, view: RegistryMoveView<'a>) -> Self {
        let progress = RegistryMoveProgress { stage, done: 0, of, is_last: false };
        view(progress);
        Self { progress, view }
    }

    fn row_done(&mut self) {
        self.progress.done += 1;
        if self.progress.done.is_multiple_of(REPORTED_ROWS) {
            (self.view)(self.progress);
        }
    }

    fn step_done(&mut self) {
        self.progress.done += 1;
        (self.view)(self.progress);
    }

    /// Reports the last progress, and returns how much was done.
    fn end(self) -> u64 {
        (self.view)(RegistryMoveProgress { is_last: true, ..self.progress });
        self.progress.done
    }
}

/// Names the first rows that cannot be moved, and counts the rest.
#[derive(Default)]
struct MoveFaults {
    named: Vec<String>,
    more: u64,
}

impl MoveFaults {
    fn add(&mut self, fault: String) {
        match self.named.len() {
            0..NAMED_ROWS_MAX => self.named.push(fault),
            _ => self.more += 1,
        }
    }
}

/// Moves the registry in a file of SQLite, which stays as it is, to a database of PostgreSQL that has none.
///
/// The future can be dropped at any moment: then, and after an error, the database has no registry, and no platform starts
/// on it until a move has finished.
pub async fn move_registry(file: &str, to: &str, view: RegistryMoveView<'_>) -> Result<RegistryMoveTotals> {
    let mut source = RegistrySource::open(file).await?;
    let mut target = RegistryTarget::open(to).await?;
    let tables = source.tables().await?;
    target.try_schema(&tables).await?;
    let (digests, of) = read(&mut source, &tables, view).await?;

    target.mark().await?;
    let detached = target.begin(&tables).await?;
    let mut meter = StageMeter::begin(RegistryMoveStage::Copied, of, view);
    for table in &tables {
        target.copy(&mut source, table, &mut meter).await?;
    }
    meter.end();
    target.set_sequences(&source.sequences().await?).await?;
    let mut meter = StageMeter::begin(RegistryMoveStage::Indexed, detached.len(), view);
    target.attach(detached, &mut meter).await?;
    meter.end();
    let mut meter = StageMeter::begin(RegistryMoveStage::Compared, of, view);
    target.compare(&tables, &digests, &mut meter).await?;
    meter.end();
    source.end().await?;
    target.commit(&tables).await?;
    Ok(tables.into_iter().map(|table| table.name).zip(digests.iter().map(|digest| digest.rows)).collect())
}

/// Reads all rows, and digests those of each table. Refuses what PostgreSQL cannot take.
async fn read(
    source: &mut RegistrySource,
    tables: &[RegistryTable],
    view: RegistryMoveView<'_>,
) -> Result<(Vec<RowsDigest>, u64)> {
    let (mut digests, mut faults) = (Vec::new(), MoveFaults::default());
    source.dangling().await?.into_iter().for_each(|fault| faults.add(fault));
    let mut meter = StageMeter::begin(RegistryMoveStage::Read, 0, view);
    for table in tables {
        digests.push(source.read(table, &mut meter, &mut faults).await?);
    }
    let rows = meter.end();
    let MoveFaults { mut named, more } = faults;
    if named.is_empty() {
        return Ok((digests, rows));
    }
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    Err(RegistryMoveError::Unmovable(named))
}
