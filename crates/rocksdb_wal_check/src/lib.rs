//! A check, before RocksDB opens a database, that its write-ahead log holds everything that was acknowledged.
//!
//! RocksDB replays its write-ahead log up to the first record that is not complete, and continues behind it without a
//! word. That is right for what was being written when the power failed, and wrong for everything else: a damaged byte in
//! the middle of the log, or a log file that is missing, silently drops every later write, even if it was synced and
//! acknowledged long ago. RocksDB's strict modes do not help where log files are recycled, because each of these ends with
//! an incomplete record.
//!
//! This crate keeps a small note in the database's folder (`DURABLE`), which says up to which sequence number the log was
//! synced, and how much of the manifest. At the next start it reads manifest and log, as RocksDB would, and compares.
//!
//! # Use
//!
//! 1. Before you open a database, call [`prepare`]. It fails with [`CheckError::Lost`], and changes nothing, if writes
//!    that were acknowledged are missing. Otherwise it cuts off the unfinished end that a power cut has left, into the
//!    subfolder `dropped`, and RocksDB opens the rest.
//! 2. Create a [`Note`] with [`Note::begin`] after the database was opened and its log replayed.
//! 3. After each sync of the log, and before you acknowledge its writes, call [`Note::record_durable`]. It costs one
//!    write of a few bytes, without a sync: it survives a killed process, and a power cut leaves an older note, which
//!    claims less.
//! 4. After a flush of everything at an orderly stop, call [`Note::record_in_tables`].
//!
//! ```no_run
//! # fn main() -> Result<(), rocksdb_wal_check::CheckError> {
//! use std::path::Path;
//! use rocksdb_wal_check::{Note, Watermark, prepare};
//!
//! let folder = Path::new("data");
//! prepare(folder, 1)?;
//! // Open the database with RocksDB, and ask it for its latest sequence number.
//! let latest = 0;
//! let note = Note::begin(folder, Watermark::up_to(latest, latest))?;
//! // Write, sync the log, and then, before the writes are acknowledged:
//! note.record_durable(latest + 1)?;
//! # Ok(())
//! # }
//! ```
//!
//! [`inspect`] checks without any change; [`accept_loss`] makes a database usable without the writes that are lost.
//!
//! # Limits
//!
//! Unix. One writer at a time. The manifest must track the logs (`track_and_verify_wals_in_manifest`), so that a log file
//! that is missing is noticed even where a power cut has taken the note. Logs must not be compressed. Tested with RocksDB
//! 11.8; a manifest with an edit that this crate does not know is refused as damaged.

mod aside;
mod crc32c;
mod current_manifest;
mod error;
mod manifest;
mod note;
mod records;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

pub use self::error::{CheckError, Result};
use self::manifest::Manifest;
pub use self::manifest::ManifestTail;
pub use self::note::{NOTE, Note, NoteState, Watermark};
use self::records::{Ending, Records};

/// Bytes that are read of a log at a time.
const READ_BYTES: usize = 1 << 20;
/// Bytes of the head of a batch: its first sequence number u64, and the number of its keys u32.
const BATCH_HEAD: usize = 12;

/// The place at which the log ends too early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The number of the log file.
    log: u64,
    /// The offset of the first byte that cannot be replayed.
    offset: u64,
    why: String,
}

impl fmt::Display for LogEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (at byte {})", name(self.log), self.why, self.offset)
    }
}

/// Writes that were acknowledged and cannot be replayed.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The number of keys that were durable and cannot be replayed; `None` if it is unknown.
    writes: Option<u64>,
    /// The place at which the log ends; `None` if it is missing.
    stop: Option<LogEnd>,
    /// The end of the manifest, if it is unfinished too.
    torn: Option<ManifestTail>,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stop {
            Some(stop) => write!(f, "the write-ahead log is damaged: {stop}")?,
            None => f.write_str("a part of the write-ahead log is missing")?,
        }
        match self.writes {
            Some(rows) => write!(f, ". {rows} rows that were acknowledged are lost"),
            None => f.write_str(". It is unknown whether anything that was acknowledged is lost"),
        }
    }
}

/// The result of [`inspect`].
pub enum LogState {
    /// Everything that was acknowledged, as far as is known.
    Whole(UnfinishedEnd),
    /// Less than was acknowledged.
    Lost(Loss),
}

/// The unfinished end of log and manifest, which RocksDB must not read.
#[derive(Default)]
pub struct UnfinishedEnd {
    /// The end of the log.
    stop: Option<LogEnd>,
    /// The end of the manifest.
    torn: Option<ManifestTail>,
    /// True if the note is unreadable, so that it is unknown what was acknowledged.
    is_note_torn: bool,
    /// The oldest log that is needed: those below are in tables.
    first_log: u64,
}

/// The part of the logs that can be replayed.
#[derive(Debug, Default)]
struct LogReach {
    /// The newest sequence number; `None` if there is no record.
    reach: Option<u64>,
    /// The oldest sequence number.
    first: Option<u64>,
    /// The end of the log.
    stop: Option<LogEnd>,
    /// True if the log ends too early; an end at what a recycled file held earlier is normal.
    is_broken: bool,
}

/// Parses the name of a log file.
fn log_number(name: &str) -> Option<u64> {
    name.strip_suffix(".log")?.parse().ok()
}

fn name(log: u64) -> String {
    format!("{log:06}.log")
}

/// Checks a database that no process has open, with this many column families, and changes nothing. Fails where RocksDB
/// would fail to open the database, or should.
pub fn inspect(folder: &Path, families: usize) -> Result<LogState> {
    let known = Watermark::read(folder)?;
    let Some(manifest) = Manifest::read(folder, known, families)? else {
        return match known {
            // A new database has a note too, which says that nothing was written yet.
            NoteState::Holds(noted) if noted.durable > 0 => Err(CheckError::Damaged(format!(
                "{} is missing, and with it all that was written: {} rows are noted",
                folder.join("CURRENT").display(),
                noted.durable
            ))),
            _ => Ok(LogState::Whole(UnfinishedEnd::default())),
        };
    };
    let torn = manifest.torn.clone();
    let whole = UnfinishedEnd { torn: torn.clone(), first_log: manifest.first_log, ..UnfinishedEnd::default() };
    if known == NoteState::Missing {
        // A database without a note: RocksDB decides how far its log goes.
        return Ok(LogState::Whole(whole));
    }
    let walk = walk(folder, &manifest)?;
    let has_all = match known {
        NoteState::Holds(noted) => has_all(folder, &manifest, noted, &walk)?,
        // A power cut may take both places of the note: that alone is no loss.
        NoteState::Missing | NoteState::Unreadable => true,
    };
    let breaks_off = walk.stop.clone().filter(|_| walk.is_broken);
    // After a power cut the note is older than what was acknowledged last: what the manifest knows must be there too.
    let lacks_what_was_synced = breaks_off.as_ref().is_some_and(|stop| was_synced(&manifest, stop));
    if has_all && !lacks_what_was_synced {
        let is_note_torn = known == NoteState::Unreadable;
        return Ok(LogState::Whole(UnfinishedEnd { stop: breaks_off, is_note_torn, ..whole }));
    }
    let writes = match known {
        NoteState::Holds(noted) if !has_all => noted.durable.checked_sub(walk.reach.unwrap_or(0).max(noted.in_tables)),
        _ => None,
    };
    Ok(LogState::Lost(Loss { writes: writes.filter(|writes| *writes > 0), stop: walk.stop, torn }))
}

/// Returns true if everything that the note claims is in tables, or can be replayed.
fn has_all(folder: &Path, manifest: &Manifest, noted: Watermark, walk: &LogReach) -> Result<bool> {
    let is_in_tables = noted.durable <= noted.in_tables;
    Ok(match (walk.first, walk.reach) {
        (Some(first), Some(reach)) => {
            (is_in_tables || reach >= noted.durable) && begins(first, folder, manifest, noted)?
        }
        // Nothing of the needed logs is in tables, and what is noted is: it is older than they are.
        _ => is_in_tables || manifest.is_even && manifest.newest_in_tables() >= noted.durable,
    })
}

/// Returns true if the manifest says that something was synced behind the end of the log.
fn was_synced(manifest: &Manifest, stop: &LogEnd) -> bool {
    manifest.logs.range(stop.log..).any(|(log, size)| *log > stop.log || stop.offset < *size)
}

/// Returns true if the log begins where the tables end. A whole manifest says which logs are needed. One whose end has
/// a hole may lack the edit that moved keys from logs that are gone into tables, so there must be no gap.
fn begins(first: u64, folder: &Path, manifest: &Manifest, noted: Watermark) -> Result<bool> {
    if manifest.torn.as_ref().is_none_or(|torn| !torn.is_hole) || log_numbers(folder)?.contains(&manifest.first_log) {
        return Ok(true);
    }
    Ok(first <= noted.in_tables + 1 || manifest.is_even && first <= manifest.in_tables + 1)
}

/// Fails with [`CheckError::UnfinishedManifest`] if RocksDB must not read the manifest as it is, for programs that open
/// the database read-only and so must not cut it off.
pub fn require_readable(folder: &Path, families: usize) -> Result<()> {
    match Manifest::read(folder, Watermark::read(folder)?, families)?.and_then(|manifest| manifest.torn) {
        None => Ok(()),
        Some(torn) => Err(CheckError::UnfinishedManifest(torn)),
    }
}

/// Reads all logs that a start would replay.
fn walk(folder: &Path, manifest: &Manifest) -> Result<LogReach> {
    let logs = log_numbers(folder)?;
    let mut numbers: BTreeSet<u64> = logs.iter().chain(manifest.logs.keys()).copied().collect();
    numbers.retain(|number| *number >= manifest.first_log);
    let mut walk = LogReach::default();
    for number in numbers {
        let must_have = manifest.logs.get(&number).copied().unwrap_or(0);
        if !walk.through(folder, number, must_have)? {
            break;
        }
    }
    Ok(walk)
}

/// Returns the numbers of the log files.
fn log_numbers(folder: &Path) -> io::Result<BTreeSet<u64>> {
    let mut numbers = BTreeSet::new();
    for file in std::fs::read_dir(folder)? {
        numbers.extend(log_number(&file?.file_name().to_string_lossy()));
    }
    Ok(numbers)
}

impl LogReach {
    /// Reads one log. Returns false if no later one can be replayed.
    fn through(&mut self, folder: &Path, log: u64, must_have: u64) -> io::Result<bool> {
        let stop = |offset, why: &str| Some(LogEnd { log, offset, why: why.to_owned() });
        let file = match File::open(folder.join(name(log))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (self.stop, self.is_broken) = (stop(0, "is missing"), true);
                return Ok(false);
            }
            file => file?,
        };
        let length = file.metadata()?.len();
        let mut records = Records::of(BufReader::with_capacity(READ_BYTES, file), Some(log));
        let end = loop {
            let (offset, record) = match records.next()? {
                Ok(found) => found,
                Err(end) => break end,
            };
            let Some((head, _)) = record.split_first_chunk::<BATCH_HEAD>() else {
                (self.stop, self.is_broken) = (stop(offset, "holds a record that is too short"), true);
                return Ok(false);
            };
            let [first, count] = sequences(head);
            if let Some(reach) = self.reach
                && first != reach + 1
            {
                // The log before this one ends where it broke off; otherwise something in between is missing.
                self.stop.get_or_insert_with(|| LogEnd {
                    log,
                    offset,
                    why: "does not follow on what is before it".into(),
                });
                self.is_broken = true;
                return Ok(false);
            }
            (self.stop, self.is_broken) = (None, false);
            self.first.get_or_insert(first);
            self.reach = Some((first + count).saturating_sub(1));
        };
        match end.what {
            Ending::Nothing if length >= must_have => {}
            Ending::Nothing => (self.stop, self.is_broken) = (stop(length, "is shorter than it was"), true),
            Ending::EarlierLife => self.stop = self.stop.take().or_else(|| stop(end.offset, end.what.words())),
            what => {
                self.is_broken = true;
                self.stop = self.stop.take().or_else(|| stop(end.offset, what.words()));
            }
        }
        Ok(true)
    }
}

/// Parses the first sequence number of a batch, and the number of its keys.
fn sequences(head: &[u8; BATCH_HEAD]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *head;
    [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from(u32::from_le_bytes([i, j, k, l]))]
}

/// Prepares a database to be opened: call it before RocksDB opens the folder. Fails with [`CheckError::Lost`] if writes
/// that were acknowledged are missing. Cuts off the unfinished end of log and manifest, of which nothing was
/// acknowledged, and moves it into a subfolder `dropped`.
pub fn prepare(folder: &Path, families: usize) -> Result<()> {
    let unfinished = match inspect(folder, families)? {
        LogState::Whole(unfinished) => unfinished,
        LogState::Lost(loss) => return Err(CheckError::Lost(Box::new(loss))),
    };
    if unfinished.is_note_torn {
        tracing::warn!(
            "cannot read the note of what is durable, as a power cut may leave it: the write-ahead log is taken as it is, \
             and it is unknown whether it holds all that was acknowledged"
        );
    }
    if let Some(torn) = &unfinished.torn {
        tracing::info!(%torn, "the end of the manifest is dropped: the log still holds what it was about");
        torn.cut(folder)?;
    }
    if let Some(stop) = &unfinished.stop {
        tracing::info!(
            %stop,
            "the end of the write-ahead log is moved into {}: nothing of it is known to be acknowledged",
            aside::FOLDER
        );
        aside::put(folder, stop, unfinished.first_log)?;
        cut(folder, stop)?;
    }
    if Watermark::read(folder)? == NoteState::Missing && !folder.join("CURRENT").exists() {
        // The note must exist from the first moment on: without one, a torn manifest might be that of a database
        // without notes.
        Note::begin(folder, Watermark::default())?;
    }
    Ok(())
}

/// Cuts the log off at its end, and removes later logs: RocksDB would continue behind some of what can stand there.
fn cut(folder: &Path, stop: &LogEnd) -> io::Result<()> {
    match File::options().write(true).open(folder.join(name(stop.log))) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        log => {
            let log = log?;
            log.set_len(stop.offset.min(log.metadata()?.len()))?;
            log.sync_all()?;
        }
    }
    for later in log_numbers(folder)?.range(stop.log + 1..) {
        std::fs::remove_file(folder.join(name(*later)))?;
    }
    File::open(folder).and_then(|folder| folder.sync_all())
}

/// Cuts off what cannot be replayed, so that the database can be opened without it. Copies logs, manifest and note into
/// the folder `aside` first.
pub fn accept_loss(folder: &Path, loss: &Loss, aside: &Path) -> Result<()> {
    let copy = || -> io::Result<()> {
        std::fs::create_dir_all(aside)?;
        for entry in std::fs::read_dir(folder)? {
            let path: PathBuf = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if log_number(&name).is_some() || name.starts_with("MANIFEST-") || name == "CURRENT" || name == NOTE {
                std::fs::copy(&path, aside.join(&name))?;
                File::open(aside.join(&name))?.sync_all()?;
            }
        }
        File::open(aside)?.sync_all()?;
        // The name of the folder must be durable too.
        let parent = aside.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    };
    copy()?;
    loss.torn.as_ref().map_or(Ok(()), |torn| torn.cut(folder))?;
    Ok(loss.stop.as_ref().map_or(Ok(()), |stop| cut(folder, stop))?)
}
