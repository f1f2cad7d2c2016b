//! Whether what was acknowledged is still there when a store is opened. RocksDB replays its write-ahead log up to the first
//! record that is not whole, and begins anew behind it without a word: that is right for what was being written when the
//! power went, and wrong for everything else. So the log is walked through before RocksDB opens it, and held against the
//! note of what is durable ([`note`]). Nothing is changed until that is known.

mod aside;
mod crc32c;
mod in_use;
mod manifest;
mod note;
mod records;

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use self::manifest::{Manifest, Torn};
use self::note::Known;
pub use self::note::{NOTE, Note, Noted};
use self::records::{Ending, Records};
use crate::error::{Result, StoreError};

/// Bytes that are read of a log at a time.
const READ_BYTES: usize = 1 << 20;
/// Bytes at the head of a batch: its first sequence number u64 and how many it takes u32.
const BATCH_HEAD: usize = 12;

/// Where the log ends too early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The number of the log's file.
    log: u64,
    /// The first byte that is not replayed.
    offset: u64,
    why: String,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (at byte {})", name(self.log), self.why, self.offset)
    }
}

/// Writes that were acknowledged and are gone.
#[derive(Clone, Debug)]
pub struct Loss {
    /// How many writes were durable and cannot be replayed. An event makes several; none if nobody knows any more.
    writes: Option<u64>,
    /// Where the log breaks off; none if it is simply not there.
    stop: Option<Stop>,
    /// The manifest's end, if it is torn too.
    torn: Option<Torn>,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.stop {
            Some(stop) => write!(f, "the write-ahead log is damaged: {stop}")?,
            None => f.write_str("a part of the write-ahead log is missing")?,
        }
        match self.writes {
            Some(writes) => write!(f, ". {writes} rows that were acknowledged (an event makes three or more) are lost"),
            None => f.write_str(". Whether anything that was acknowledged is lost, nobody knows any more"),
        }
    }
}

/// What a start would find.
pub enum LogState {
    /// All that was acknowledged, as far as is known.
    Whole(Unfinished),
    /// Less.
    Lost(Loss),
}

/// What was being written, and is not whole. RocksDB is not shown it.
#[derive(Default)]
pub struct Unfinished {
    /// Of the log.
    stop: Option<Stop>,
    /// Of the manifest.
    torn: Option<Torn>,
    /// The note: nothing is known of what was acknowledged.
    is_note_torn: bool,
    /// Logs below this number are in tables.
    first_log: u64,
}

/// How far a log can be replayed.
#[derive(Debug, Default)]
struct LogReach {
    /// The newest sequence number that can be; none if there is no record.
    reach: Option<u64>,
    /// The oldest.
    first: Option<u64>,
    /// Where it breaks off.
    stop: Option<Stop>,
    /// Whether it does: an end at what a file held earlier is RocksDB's own.
    is_broken: bool,
}

/// The number of a log's file.
fn log_number(name: &str) -> Option<u64> {
    name.strip_suffix(".log")?.parse().ok()
}

fn name(log: u64) -> String {
    format!("{log:06}.log")
}

/// Looks at a store's folder, in which nobody writes. Fails where RocksDB would fail to open it, or should.
pub fn look(folder: &Path) -> Result<LogState> {
    let known = Noted::read(folder)?;
    let Some(manifest) = Manifest::read(folder, known)? else {
        return match known {
            // A new store has a note, too, which says that nothing was written yet.
            Known::Is(noted) if noted.durable > 0 => Err(StoreError::Damaged(format!(
                "{} is missing, and with it all that was written: {} rows are noted",
                folder.join("CURRENT").display(),
                noted.durable
            ))),
            _ => Ok(LogState::Whole(Unfinished::default())),
        };
    };
    let torn = manifest.torn.clone();
    let whole = Unfinished { torn: torn.clone(), first_log: manifest.first_log, ..Unfinished::default() };
    if known == Known::Nothing {
        // A store of an earlier version: how far its log goes RocksDB decides.
        return Ok(LogState::Whole(whole));
    }
    let walk = walk(folder, &manifest)?;
    let has_all = match known {
        Known::Is(noted) => has_all(folder, &manifest, noted, &walk)?,
        // A power cut may take both places of the note: that alone is no loss.
        Known::Nothing | Known::Unreadable => true,
    };
    let breaks_off = walk.stop.clone().filter(|_| walk.is_broken);
    // After a power cut the note is older than what was acknowledged last: what the manifest knows must be there too.
    let lacks_what_was_synced = breaks_off.as_ref().is_some_and(|stop| was_synced(&manifest, stop));
    if has_all && !lacks_what_was_synced {
        let is_note_torn = known == Known::Unreadable;
        return Ok(LogState::Whole(Unfinished { stop: breaks_off, is_note_torn, ..whole }));
    }
    let writes = match known {
        Known::Is(noted) if !has_all => noted.durable.checked_sub(walk.reach.unwrap_or(0).max(noted.in_tables)),
        _ => None,
    };
    Ok(LogState::Lost(Loss { writes: writes.filter(|writes| *writes > 0), stop: walk.stop, torn }))
}

/// Whether everything that is noted is in tables, or can be replayed.
fn has_all(folder: &Path, manifest: &Manifest, noted: Noted, walk: &LogReach) -> Result<bool> {
    let is_in_tables = noted.durable <= noted.in_tables;
    Ok(match (walk.first, walk.reach) {
        (Some(first), Some(reach)) => {
            (is_in_tables || reach >= noted.durable) && begins(first, folder, manifest, noted)?
        }
        // Nothing of the needed logs is in tables, and what is noted is: it is older than they are.
        _ => is_in_tables || manifest.is_even && manifest.newest_in_tables() >= noted.durable,
    })
}

/// Whether the manifest knows that something was synced which the log breaks off before.
fn was_synced(manifest: &Manifest, stop: &Stop) -> bool {
    manifest.logs.range(stop.log..).any(|(log, size)| *log > stop.log || stop.offset < *size)
}

/// Whether the log begins where the tables end. A manifest that is whole says which logs are needed; one whose end has a
/// hole may lack what moved rows from logs that are gone into tables, so there must be nothing between.
fn begins(first: u64, folder: &Path, manifest: &Manifest, noted: Noted) -> Result<bool> {
    if manifest.torn.as_ref().is_none_or(|torn| !torn.is_hole) || logs(folder)?.contains(&manifest.first_log) {
        return Ok(true);
    }
    Ok(first <= noted.in_tables + 1 || manifest.is_even && first <= manifest.in_tables + 1)
}

/// Refuses a manifest that RocksDB must not read as it is, where nothing may be changed.
pub fn must_be_readable(folder: &Path) -> Result<()> {
    match Manifest::read(folder, Noted::read(folder)?)?.and_then(|manifest| manifest.torn) {
        None => Ok(()),
        Some(torn) => Err(StoreError::unavailable(format!(
            "{torn}, as a power cut leaves it: no damage, and nothing of it was acknowledged. The next start of the \
             platform cuts that end off; until then telemetry cannot be read without changing it"
        ))),
    }
}

/// Walks through all that a start would replay.
fn walk(folder: &Path, manifest: &Manifest) -> Result<LogReach> {
    let logs = logs(folder)?;
    let mut numbers: BTreeSet<u64> = logs.iter().chain(manifest.logs.keys()).copied().collect();
    numbers.retain(|number| *number >= manifest.first_log);
    let mut walk = LogReach::default();
    for number in numbers {
        let must_have = manifest.logs.get(&number).copied().unwrap_or(0);
        if !walk.through(folder, number, must_have).map_err(StoreError::unavailable)? {
            break;
        }
    }
    Ok(walk)
}

fn logs(folder: &Path) -> Result<BTreeSet<u64>> {
    log_numbers(folder).map_err(StoreError::unavailable)
}

/// The numbers of the logs that are there.
fn log_numbers(folder: &Path) -> io::Result<BTreeSet<u64>> {
    let mut numbers = BTreeSet::new();
    for file in std::fs::read_dir(folder)? {
        numbers.extend(log_number(&file?.file_name().to_string_lossy()));
    }
    Ok(numbers)
}

impl LogReach {
    /// Goes through one log. False: nothing behind it can be replayed.
    fn through(&mut self, folder: &Path, log: u64, must_have: u64) -> io::Result<bool> {
        let stop = |offset, why: &str| Some(Stop { log, offset, why: why.to_owned() });
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
                // What broke off the log before this one is where it ends; else something in between is missing.
                self.stop.get_or_insert_with(|| Stop {
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

/// The first sequence number of a batch, and how many it takes.
fn sequences(head: &[u8; BATCH_HEAD]) -> [u64; 2] {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *head;
    [u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from(u32::from_le_bytes([i, j, k, l]))]
}

/// Refuses a store that has lost what was acknowledged. What was not finished, of which nothing was, is cut off.
pub fn must_be_whole(folder: &Path) -> Result<()> {
    let unfinished = match look(folder)? {
        LogState::Whole(unfinished) => unfinished,
        LogState::Lost(loss) => {
            return Err(StoreError::Damaged(format!(
                "{loss}. Nothing was changed. Bring a backup back, or go on without them with isobar recover"
            )));
        }
    };
    if unfinished.is_note_torn {
        tracing::warn!(
            "the note of what is durable cannot be read, as a power cut may leave it: the write-ahead log is taken as it \
             is, and whether all that was acknowledged is there, nobody knows"
        );
    }
    if let Some(torn) = &unfinished.torn {
        tracing::info!(%torn, "the end of the manifest is dropped: the log still holds what it was about");
        torn.cut(folder).map_err(StoreError::unavailable)?;
    }
    if let Some(stop) = &unfinished.stop {
        tracing::info!(
            %stop,
            "the end of the write-ahead log is put aside, into {}: nothing is known of it that was acknowledged",
            aside::FOLDER
        );
        aside::put(folder, stop, unfinished.first_log).map_err(StoreError::unavailable)?;
        cut(folder, stop)?;
    }
    if Noted::read(folder)? == Known::Nothing && !folder.join("CURRENT").exists() {
        // A note from the first moment on: without one a torn manifest might be an earlier version's.
        Note::begin(folder, Noted::default())?;
    }
    Ok(())
}

/// Cuts the log off where it breaks off, and removes what follows: RocksDB would go on behind some of what can stand there.
fn cut(folder: &Path, stop: &Stop) -> Result<()> {
    let cut = || -> io::Result<()> {
        match File::options().write(true).open(folder.join(name(stop.log))) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            log => {
                let log = log?;
                log.set_len(stop.offset.min(log.metadata()?.len()))?;
                log.sync_all()?;
            }
        }
        Ok(())
    };
    cut().map_err(StoreError::unavailable)?;
    for later in logs(folder)?.range(stop.log + 1..) {
        std::fs::remove_file(folder.join(name(*later))).map_err(StoreError::unavailable)?;
    }
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(StoreError::unavailable)
}

/// Drops what cannot be replayed, so that the store can be opened without it. What is needed to look at the loss later is
/// copied into a folder first.
pub fn drop_lost(folder: &Path, loss: &Loss, aside: &Path) -> Result<()> {
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
        // The folder's own name: what it holds is of no use without.
        let parent = aside.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
    };
    copy().map_err(StoreError::unavailable)?;
    loss.torn.as_ref().map_or(Ok(()), |torn| torn.cut(folder)).map_err(StoreError::unavailable)?;
    loss.stop.as_ref().map_or(Ok(()), |stop| cut(folder, stop))
}
