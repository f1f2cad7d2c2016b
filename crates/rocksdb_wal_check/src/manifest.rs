//! The content of RocksDB's manifest about the write-ahead log: the logs that are needed, and how much of them is in
//! tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{CheckError, Result};
use crate::note::{NoteState, Watermark};
use crate::records::{End, Ending, Records, is_torn};

pub(crate) const CURRENT: &str = "CURRENT";
const MANIFEST_PREFIX: &str = "MANIFEST-";

/// Tags of a manifest's edits. All others with [`SAFE_TO_IGNORE`] carry their length.
mod tag {
    pub const COMPARATOR: u64 = 1;
    pub const LOG_NUMBER: u64 = 2;
    pub const NEXT_FILE: u64 = 3;
    pub const LAST_SEQUENCE: u64 = 4;
    pub const COMPACT_CURSOR: u64 = 5;
    pub const DELETED_FILE: u64 = 6;
    pub const PREVIOUS_LOG: u64 = 9;
    pub const MIN_LOG_TO_KEEP: u64 = 10;
    pub const NEW_FILE: u64 = 103;
    pub const FAMILY: u64 = 200;
    pub const FAMILY_ADD: u64 = 201;
    pub const LARGEST_FAMILY: u64 = 203;
    pub const IN_GROUP: u64 = 300;
    pub const SAFE_TO_IGNORE: u64 = 1 << 13;
    pub const LOG_ADDITION: u64 = SAFE_TO_IGNORE + 7;
    pub const LOG_DELETION: u64 = SAFE_TO_IGNORE + 8;
    /// The end of the fields of a new file, and of those of a log.
    pub const END: u64 = 1;
    /// The synced size of a log.
    pub const SYNCED_SIZE: u64 = 2;
}

/// The content of a manifest.
#[derive(Debug, Default)]
pub struct Manifest {
    /// The oldest log that is needed: those below are in tables.
    pub first_log: u64,
    /// The newest sequence number in a table.
    pub last_sequence: u64,
    /// True if no column family has anything in tables of the logs from `first_log` on.
    pub is_even: bool,
    /// Logs that must exist, with the number of their bytes that were synced.
    pub logs: BTreeMap<u64, u64>,
    /// The newest sequence number of any key in a table.
    pub in_tables: u64,
    /// The unfinished write that ends the file.
    pub torn: Option<ManifestTail>,
}

/// The end of a manifest that is no complete edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestTail {
    name: String,
    offset: u64,
    /// True if something follows the incomplete edit. Then only the position distinguishes it from damage.
    pub is_hole: bool,
}

impl fmt::Display for ManifestTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ends with an unfinished write (at byte {})", self.name, self.offset)
    }
}

impl ManifestTail {
    /// Cuts it off: RocksDB would continue behind some of these ends, and would fail at others.
    pub fn cut(&self, folder: &Path) -> io::Result<()> {
        let manifest = File::options().write(true).open(folder.join(&self.name))?;
        manifest.set_len(self.offset)?;
        manifest.sync_all()
    }
}

/// A cursor over the fields of an edit.
struct EditFields<'a>(&'a [u8]);

impl<'a> EditFields<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

/// The state of reading a manifest; `families` has, for each column family, the first log that is not in tables.
#[derive(Default)]
struct ManifestReader {
    manifest: Manifest,
    families: BTreeMap<u64, u64>,
    /// Families whose log was named: the last field that is written of each when a manifest is created.
    begun: BTreeSet<u64>,
    least: u64,
}

impl Manifest {
    /// Reads the manifest of a database; returns `None` if the folder holds no database yet. Verifies its checksums
    /// more strictly than RocksDB does: an incomplete end must not lie within what was synced.
    pub fn read(folder: &Path, known: NoteState, families: usize) -> Result<Option<Self>> {
        let Some(path) = current(folder)? else { return Ok(None) };
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CheckError::Damaged(format!("{name} is missing")));
            }
            read => read?,
        };
        let mut records = Records::of(bytes.as_slice(), None);
        let mut reading = ManifestReader::default();
        let end = loop {
            match records.next()? {
                Ok((offset, edit)) => reading.edit(edit).ok_or_else(|| {
                    CheckError::Damaged(format!("{name} holds an edit that cannot be read at byte {offset}"))
                })?,
                Err(end) => break end,
            }
        };
        reading.manifest.torn = reading.torn(&name, (&bytes, end), known, families)?;
        let unflushed = reading.families.values().copied().min().unwrap_or_default();
        let first_log = unflushed.max(reading.least);
        reading.manifest.first_log = first_log;
        reading.manifest.is_even = reading.families.values().all(|log| *log <= first_log);
        Ok(Some(reading.manifest))
    }
}

impl Manifest {
    /// Returns a sequence number up to which everything is in tables, provided that no log holds anything of it.
    pub fn newest_in_tables(&self) -> u64 {
        // Any edit has a last sequence, also one that came before the tables of it, should they be lost in a hole.
        let is_hole = self.torn.as_ref().is_some_and(|torn| torn.is_hole);
        if is_hole { self.in_tables } else { self.last_sequence }
    }
}

/// Parses the text of CURRENT: the manifest's name and its number.
pub(crate) fn named(text: &[u8]) -> Option<(&str, u64)> {
    let name = str::from_utf8(text).ok()?.strip_suffix('\n')?;
    Some((name, number(name)?))
}

fn number(manifest: &str) -> Option<u64> {
    let number = manifest.strip_prefix(MANIFEST_PREFIX)?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok())?
}

/// Returns the path of the manifest that CURRENT names.
fn current(folder: &Path) -> Result<Option<PathBuf>> {
    let text = match std::fs::read(folder.join(CURRENT)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return nothing_there(folder),
        read => read?,
    };
    let (name, _) = named(&text).ok_or_else(|| CheckError::Damaged("CURRENT names no manifest".to_owned()))?;
    Ok(Some(folder.join(name)))
}

/// Checks that the folder is empty: without CURRENT, RocksDB would create a new database and remove what lies there.
fn nothing_there(folder: &Path) -> Result<Option<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".sst") || name.ends_with(".log") && crate::log_number(&name).is_some() {
            return Err(CheckError::Damaged(format!("CURRENT is missing, and {name} is there")));
        }
    }
    Ok(None)
}

impl ManifestReader {
    /// Returns the unfinished write that ends the file; `None` if nothing follows the last edit.
    ///
    /// What was synced when it was last noted must be whole. Behind it a power cut leaves anything, in any order. If
    /// another manifest was noted, this one was begun since, and its head was synced before CURRENT named it.
    fn torn(
        &self,
        name: &str,
        (bytes, end): (&[u8], End),
        known: NoteState,
        families: usize,
    ) -> Result<Option<ManifestTail>> {
        let rest = bytes.get(end.piece as usize..).unwrap_or_default();
        let is_short = is_torn(rest);
        let may_be_hole = match known {
            NoteState::Missing => false,
            NoteState::Holds(Watermark { manifest, length, .. }) if number(name) == Some(manifest) => {
                if (bytes.len() as u64) < length {
                    return Err(CheckError::Damaged(format!("{name} is shorter than it was")));
                }
                end.piece >= length
            }
            // Nothing was ever acknowledged.
            NoteState::Holds(Watermark { durable: 0, .. }) => true,
            NoteState::Holds(_) | NoteState::Unreadable => self.begun.len() > families,
        };
        if end.what == Ending::Nothing {
            return Ok(None);
        }
        if self.families.is_empty() || !is_short && !may_be_hole {
            return Err(CheckError::Damaged(format!("{name} is damaged at byte {}", end.offset)));
        }
        Ok(Some(ManifestTail { name: name.to_owned(), offset: end.offset, is_hole: !is_short }))
    }

    /// Applies an edit. Returns `None` if it cannot be parsed.
    fn edit(&mut self, edit: &[u8]) -> Option<()> {
        let mut parts = EditFields(edit);
        let (mut family, mut log) = (0, None);
        while !parts.0.is_empty() {
            match parts.number()? {
                tag::LOG_NUMBER => log = Some(parts.number()?),
                tag::LAST_SEQUENCE => {
                    self.manifest.last_sequence = self.manifest.last_sequence.max(parts.number()?);
                }
                tag::MIN_LOG_TO_KEEP => self.least = self.least.max(parts.number()?),
                tag::FAMILY => family = parts.number()?,
                tag::COMPARATOR | tag::FAMILY_ADD => drop(parts.text()?),
                tag::NEXT_FILE | tag::PREVIOUS_LOG | tag::LARGEST_FAMILY | tag::IN_GROUP => drop(parts.number()?),
                tag::COMPACT_CURSOR => drop((parts.number()?, parts.text()?)),
                tag::DELETED_FILE => drop((parts.number()?, parts.number()?)),
                tag::NEW_FILE => self.manifest.in_tables = self.manifest.in_tables.max(new_file(&mut parts)?),
                tag::LOG_ADDITION => self.log_added(parts.text()?)?,
                tag::LOG_DELETION => {
                    let before = EditFields(parts.text()?).number()?;
                    self.manifest.logs.retain(|number, _| *number >= before);
                }
                tag if tag & tag::SAFE_TO_IGNORE != 0 => drop(parts.text()?),
                _ => return None,
            }
        }
        let known = self.families.entry(family).or_default();
        *known = log.unwrap_or(*known).max(*known);
        self.begun.extend(log.map(|_| family));
        Some(())
    }

    fn log_added(&mut self, text: &[u8]) -> Option<()> {
        let mut parts = EditFields(text);
        let number = parts.number()?;
        loop {
            match parts.number()? {
                tag::SYNCED_SIZE => {
                    let size = parts.number()?;
                    let known = self.manifest.logs.entry(number).or_default();
                    *known = size.max(*known);
                }
                tag::END => return Some(()),
                _ => return None,
            }
        }
    }
}

/// Skips the fields of a new file: level, number, size, first and last key, first and last sequence number, and fields
/// that carry their length. Returns the last sequence number.
fn new_file(parts: &mut EditFields<'_>) -> Option<u64> {
    for _ in ["level", "number", "bytes"] {
        parts.number()?;
    }
    for _ in ["first key", "last key"] {
        parts.text()?;
    }
    let (_, last) = (parts.number()?, parts.number()?);
    while parts.number()? != tag::END {
        parts.text()?;
    }
    Some(last)
}
