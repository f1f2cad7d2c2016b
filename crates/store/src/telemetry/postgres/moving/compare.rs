//! Compares what was moved with its source: both sides are read again, and the rows of each device are counted and digested.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::TryStreamExt as _;
use sqlx::postgres::PgConnection;
use tokio::task::JoinHandle;

use super::super::connections::{ReadColumn as _, failed};
use super::tuples::{MOVED_TABLES, MovedTable, TupleReader, table_of, write_row};
use crate::error::{Result, StoreError};
use crate::postgres::copied_rows::RowsDigest;
use crate::telemetry::embedded::StoppedStore;
use crate::telemetry::moved::{MovePlace, MovedPart, MovedRow, MovedRowSink};

/// Rows after which a batch of devices ends.
const BATCH_ROWS: u64 = 50_000;
/// Bounds the differences that are named.
pub const DIFFERENCES_MAX: usize = 20;
/// Settings of the comparison: each batch is a range of devices, for which indices are there. The statistics of tables that
/// have just been filled are old.
const COMPARE_SETTINGS: &str = "SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off";

/// Digests of rows, by device and table.
type DeviceDigests = BTreeMap<(i64, MovedTable), RowsDigest>;

/// Digests the rows of the source.
#[derive(Default)]
struct DigestSink {
    digests: DeviceDigests,
    rows: u64,
    columns: Vec<u8>,
}

impl MovedRowSink for DigestSink {
    fn take(&mut self, device: u64, row: &MovedRow<'_>) {
        self.columns.clear();
        write_row(device, row, &mut self.columns);
        self.digests.entry((device as i64, table_of(row))).or_default().take(&self.columns);
        self.rows += 1;
    }

    fn lacks_event(&mut self, _device: u64) {}

    fn is_full(&self) -> bool {
        false
    }
}

/// Digests of a range of devices, or of the outbox, in the source.
struct SourceBatch {
    digests: DeviceDigests,
    begin: MovePlace,
    end: MovePlace,
}

fn read_batch(source: &StoppedStore, begin: MovePlace) -> Result<SourceBatch> {
    let mut sink = DigestSink::default();
    let mut end = source.read_device(begin.clone(), &mut sink)?;
    while !matches!(end.part, MovedPart::Outbox | MovedPart::End) && sink.rows < BATCH_ROWS {
        end = source.read_device(end, &mut sink)?;
    }
    Ok(SourceBatch { digests: sink.digests, begin, end })
}

/// A comparison under way.
pub struct Comparison {
    source: Arc<StoppedStore>,
    ahead: Option<JoinHandle<Result<SourceBatch>>>,
    /// Devices up to which rows were compared.
    after: i64,
    /// Number of rows that are equal on both sides, by table.
    pub equal: [u64; MOVED_TABLES],
    /// Differences in words.
    pub differences: Vec<String>,
}

impl Comparison {
    /// Begins a comparison.
    pub async fn begin(source: &Arc<StoppedStore>, connection: &mut PgConnection) -> Result<Self> {
        sqlx::raw_sql(COMPARE_SETTINGS).execute(connection).await.map_err(failed)?;
        let (source, equal, differences) = (Arc::clone(source), [0; MOVED_TABLES], Vec::new());
        let mut begun = Self { source, ahead: None, after: i64::MIN, equal, differences };
        begun.ahead = Some(begun.read_ahead(None));
        Ok(begun)
    }

    fn read_ahead(&self, place: Option<MovePlace>) -> JoinHandle<Result<SourceBatch>> {
        let source = Arc::clone(&self.source);
        tokio::task::spawn_blocking(move || {
            let place = place.map_or_else(|| source.place_from(0), Ok)?;
            read_batch(&source, place)
        })
    }

    /// Compares the next devices; returns false if none are left.
    pub async fn step(&mut self, connection: &mut PgConnection) -> Result<bool> {
        let Some(ahead) = self.ahead.take() else { return Ok(false) };
        let batch = ahead.await.map_err(StoreError::unavailable)??;
        let is_outbox = batch.begin.part == MovedPart::Outbox;
        if is_outbox && self.after < i64::MAX {
            // The source has no devices after these; nor must the database.
            self.compare(connection, &BTreeMap::new(), i64::MAX, false).await?;
        }
        if batch.end.part != MovedPart::End {
            self.ahead = Some(self.read_ahead(Some(batch.end.clone())));
        }
        let up_to = match batch.end.part {
            MovedPart::Outbox | MovedPart::End => i64::MAX,
            _ => batch.end.device as i64 - 1,
        };
        self.compare(connection, &batch.digests, up_to, is_outbox).await?;
        if batch.end.part == MovedPart::End {
            self.count_values(connection).await?;
        }
        Ok(self.ahead.is_some() && self.differences.len() < DIFFERENCES_MAX)
    }

    /// Compares the rows of devices up to a number, or the outbox, with their digests in the source.
    async fn compare(
        &mut self,
        connection: &mut PgConnection,
        source: &DeviceDigests,
        up_to: i64,
        is_outbox: bool,
    ) -> Result<()> {
        let after = if is_outbox { i64::MIN } else { self.after };
        let mut database = DeviceDigests::new();
        for table in MovedTable::ALL.into_iter().filter(|table| (*table == MovedTable::Outbox) == is_outbox) {
            let (mut reader, statement) = (TupleReader::default(), table.copy_out(after, up_to));
            let mut rows = connection.copy_out_raw(&statement).await.map_err(failed)?;
            while let Some(bytes) = rows.try_next().await.map_err(failed)? {
                reader.feed(&bytes, |device, columns| database.entry((device, table)).or_default().take(columns))?;
            }
        }
        self.after = up_to;
        for (key, expected) in source {
            let found = database.remove(key).unwrap_or_default();
            self.judge(*key, *expected, found);
        }
        for (key, found) in database {
            self.judge(key, RowsDigest::default(), found);
        }
        Ok(())
    }

    fn judge(&mut self, (device, table): (i64, MovedTable), source: RowsDigest, found: RowsDigest) {
        if source == found {
            self.equal[table as usize] += found.rows;
            return;
        }
        let (rows, many) = (table.rows(), source.rows);
        self.differences.push(match source.rows == found.rows {
            true => format!("device {device}: {rows}: as many ({many}), but not the same"),
            false => format!("device {device}: {rows}: {many} in the source, {} in the database", found.rows),
        });
    }

    /// Compares the number of all values: those of no series were not found by device.
    async fn count_values(&mut self, connection: &mut PgConnection) -> Result<()> {
        let count = "SELECT (SELECT count(*) FROM telemetry.value) - (SELECT count(*) FROM telemetry.last l \
                     JOIN telemetry.value v USING (series))";
        let strays: i64 = sqlx::query(count).fetch_one(connection).await.map_err(failed)?.column(0)?;
        if strays != 0 {
            self.differences.push(format!("{strays} values in the database are of no series"));
        }
        Ok(())
    }
}
