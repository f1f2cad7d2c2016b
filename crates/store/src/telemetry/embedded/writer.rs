//! Runs the single writer: it drains the queue, puts all rows in one batch and applies it; a second thread syncs
//! applied batches while the next one is applied, and only then wakes the waiters.
//!
//! Commits are applied in the order in which they were sent, and get increasing tickets in that order: tenants do not
//! take turns here. At most two thirds of the queue's bytes, which is one batch, can be rows of one tenant ahead of
//! another's commit; the batches that the writer and the syncer have taken by then, up to four, would be ahead of it
//! with turns too.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use isobar_model::time::Clock;
use isobar_traces::Span;
use rocksdb::{DB, WriteBatch, WriteOptions};
use rocksdb_wal_check::Note;
use smallvec::SmallVec;

use super::commit_queue::Shared;
use super::engine;
use super::gathered::{CommitRows, Gathered};
use super::keys::{self, Family};
use super::positions::BatchPositions;
use super::rows::Change;
use super::threads::{SYNCER, WRITER, Watched};
use crate::error::{Result, StoreError};
use crate::telemetry::StreamPosition;

/// Commits of one batch, at most.
const BATCH_COMMITS_MAX: usize = 1_024;
/// Bytes after which a batch takes no more commits.
const BATCH_BYTES_MAX: usize = 16 << 20;
/// Applied batches that may wait for the sync.
const UNSYNCED_BATCHES_MAX: usize = 2;
/// Time after which a write counts as a stall.
const STALL: Duration = Duration::from_millis(50);
/// Name of the span of a batch, from its first row to its sync.
const GROUP_SPAN: &str = "commit telemetry";

/// Applied batch that waits for the sync.
struct Applied {
    ticket: u64,
    positions: BatchPositions,
    /// Newest sequence number of the database right after the batch: a sync then covers everything up to it.
    sequence: u64,
    /// Span of the batch, if one of its calls is traced.
    span: Option<Span>,
}

/// Threads that write and sync.
pub struct CommitWriter {
    threads: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
}

impl CommitWriter {
    /// Starts the threads. Durable batches are recorded in the note.
    pub fn start(db: &Arc<DB>, shared: &Arc<Shared>, note: &Arc<Note>, position: StreamPosition) -> Result<Self> {
        let (applied, to_sync) = sync_channel(UNSYNCED_BATCHES_MAX);
        let writing = Writing { db: db.clone(), shared: shared.clone(), applied, ticket: 0, position };
        let (db, syncing, note) = (db.clone(), shared.clone(), note.clone());
        let spawn = |thread: &'static str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(thread.to_owned()).spawn(work).map_err(StoreError::unavailable)
        };
        let mut writer = Self { threads: Vec::with_capacity(2), shared: shared.clone() };
        writer.threads.push(spawn(WRITER, Box::new(move || writing.run()))?);
        writer.threads.push(spawn(SYNCER, Box::new(move || sync(&db, &syncing, &note, &to_sync)))?);
        Ok(writer)
    }

    /// Writes the queued commits and ends the threads.
    pub fn join(&mut self) {
        self.shared.close();
        // A thread that panicked has failed the store already.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
        self.shared.stop();
    }
}

impl Drop for CommitWriter {
    fn drop(&mut self) {
        self.join();
    }
}

struct Writing {
    db: Arc<DB>,
    shared: Arc<Shared>,
    applied: SyncSender<Applied>,
    ticket: u64,
    /// Position of the last event written so far.
    position: StreamPosition,
}

/// Sort key of a row in a batch: family, first bytes of the key, position among the batch's rows.
type Spot = (u8, u64, u32);

impl Writing {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let _watched = Watched { shared: &shared, thread: WRITER };
        let options = WriteOptions::default();
        let mut gathered = Gathered::default();
        while self.shared.take_waiting(&mut gathered) {
            let mut traced = gathered.take_traced();
            let mut rest = gathered.commits();
            metrics::gauge!("isobar_telemetry_waiting_commits").set(rest.len() as f64);
            while !rest.is_empty() {
                let (batch, later) = rest.split_at(batch_length(rest));
                rest = later;
                let span = Span::of_group(GROUP_SPAN, std::mem::take(&mut traced));
                if let Err(cause) = self.write(&gathered, batch, &options, span) {
                    return self.shared.fail(&cause);
                }
            }
            gathered.clear();
        }
    }

    fn write(
        &mut self,
        gathered: &Gathered,
        commits: &[CommitRows],
        options: &WriteOptions,
        span: Option<Span>,
    ) -> std::result::Result<(), String> {
        self.shared.release(commits.len());
        if let Some(span) = &span {
            span.note("isobar.telemetry.commits", commits.len() as i64);
        }
        metrics::histogram!("isobar_telemetry_batch_commits").record(commits.len() as f64);
        #[cfg(test)]
        self.shared.may_panic(WRITER);
        let (batch, positions) = self.batch(gathered, commits).map_err(|error| error.to_string())?;
        let start = Clock::System.instant();
        self.db.write_opt(batch, options).map_err(rocksdb::Error::into_string)?;
        if Clock::System.elapsed(start) > STALL {
            metrics::counter!("isobar_telemetry_stalls_total").increment(1);
        }
        self.ticket += commits.len() as u64;
        self.shared.set_applied(self.ticket);
        self.position = positions.end;
        // Other threads write too, but rows that have a number by now are in the log by now.
        let sequence = self.db.latest_sequence_number();
        let applied = Applied { ticket: self.ticket, sequence, positions, span };
        self.applied.send(applied).map_err(|_| "the syncing thread ended".to_owned())
    }

    /// Builds one batch of all rows, sorted: neighbours are then inserted next to each other, which is faster.
    fn batch(&mut self, gathered: &Gathered, commits: &[CommitRows]) -> Result<(WriteBatch, BatchPositions)> {
        let mut rows = Vec::with_capacity(commits.len() * 4);
        rows.extend(commits.iter().flat_map(|commit| gathered.rows(commit)));
        let bytes: usize = commits.iter().map(CommitRows::size).sum();
        let mut batch = WriteBatch::with_capacity_bytes(bytes + rows.len() * 4 + 64);
        let families = engine::families(&self.db)?;
        let mut spots: Vec<Spot> = Vec::with_capacity(rows.len());
        let mut positions = BatchPositions::after(self.position);
        let mut from = 0;
        // The removal of a range stays at its position among the other rows.
        for part in rows.split_inclusive(|row| row.change == Change::DeleteRange) {
            spots.clear();
            spots.extend(part.iter().enumerate().map(|(at, row)| {
                let last = row.change == Change::DeleteRange;
                (if last { u8::MAX } else { row.family }, prefix(row.key), (from + at) as u32)
            }));
            spots.sort_unstable();
            // Assign positions before adding the rows of the part: the removal of a range, its last row, also applies
            // to late events.
            let events = spots.iter().map(|(.., at)| &rows[*at as usize]).filter(|row| row.is_event());
            positions.take(events, &families, &mut batch)?;
            for (_, _, at) in &spots {
                let row = &rows[*at as usize];
                let family = families[usize::from(row.family)];
                match row.change {
                    Change::Put => batch.put_cf(family, row.key, row.value),
                    Change::Delete => batch.delete_cf(family, row.key),
                    Change::DeleteRange => batch.delete_range_cf(family, row.key, row.value),
                }
            }
            from += part.len();
        }
        let meta = families[Family::Meta as usize];
        if commits.iter().any(|commit| commit.creates) {
            // The counter is at or above every number in this batch, because they were drawn before it was sent.
            batch.put_cf(meta, keys::META_SERIES, self.shared.next_series().to_be_bytes());
        }
        positions.finish(&families, &mut batch);
        self.shared.followers.come_late(&positions);
        Ok((batch, positions))
    }
}

/// Returns how many of these commits make the next batch: at least one.
fn batch_length(commits: &[CommitRows]) -> usize {
    let sizes = commits.iter().take(BATCH_COMMITS_MAX).scan(0, |bytes, commit| {
        let before = *bytes;
        *bytes += commit.size();
        Some(before)
    });
    sizes.take_while(|before| *before < BATCH_BYTES_MAX).count()
}

/// Returns the first bytes of a key as a number: enough to sort by.
fn prefix(key: &[u8]) -> u64 {
    key.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

fn sync(db: &DB, shared: &Shared, note: &Note, applied: &Receiver<Applied>) {
    // It ends before the channel does, so that a panic is the cause of the failure, and not its consequence for the writer.
    let _watched = Watched { shared, thread: SYNCER };
    while let Ok(first) = applied.recv() {
        let mut batches = SmallVec::<[Applied; UNSYNCED_BATCHES_MAX + 1]>::new();
        batches.push(first);
        batches.extend(applied.try_iter());
        let start = Clock::System.instant();
        #[cfg(test)]
        shared.may_panic(SYNCER);
        if let Err(error) = db.flush_wal(true) {
            return shared.fail(&error.into_string());
        }
        metrics::histogram!("isobar_telemetry_sync_seconds").record(Clock::System.elapsed(start).as_secs_f64());
        if shared.healthy().is_err() {
            return;
        }
        // Record the progress before waking waiters: acknowledged commits are then recorded even if the process ends.
        if let Some(newest) = batches.last()
            && let Err(error) = note.record_durable(newest.sequence)
        {
            return shared.fail(&format!("what is durable cannot be noted: {error}"));
        }
        for batch in &mut batches {
            // The span ends here: later waits are not part of it.
            batch.span = None;
            shared.followers.reach(batch.ticket, &batch.positions);
        }
        if let Some(newest) = batches.last() {
            shared.set_durable(newest.ticket);
        }
    }
}
