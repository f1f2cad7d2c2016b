//! The note of what is durable: a small file in the database's folder with the sequence number up to which the
//! write-ahead log was synced. The log itself cannot tell whether its end was cut off while it was being written, or after
//! its writes had been acknowledged.
//!
//! It is written after every sync, before any write is acknowledged, and not synced itself: if the process is killed, the
//! system still has it; after a power cut an older number stands there, which is still a valid lower bound. Two slots are
//! written in turns, each in a sector of its own, so that a torn or damaged slot leaves the other. A power cut may leave
//! neither: then nothing is known.
//!
//! The note also says how much of RocksDB's manifest is synced, for the same reason: what follows may be unfinished.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::crc32c;
use crate::current_manifest::CurrentManifest;
use crate::error::Result;

/// Name of the note, in the database's folder.
pub const NOTE: &str = "DURABLE";
const MARK: [u8; 8] = *b"isobar-d";
/// Bytes of a slot: mark, two sequence numbers u64, the manifest's number and length u64, checksum u32.
const PLACE_BYTES: usize = 44;
/// Distance of the slots: a disk writes a sector as a whole or not at all.
const SECTOR_BYTES: u64 = 512;
const PLACES: u64 = 2;

/// The content of the note: sequence numbers up to which writes are safe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// Every write up to this sequence number is durable.
    pub durable: u64,
    /// Every write up to this sequence number is in tables, and needs no log.
    pub in_tables: u64,
    /// The number of the manifest at that time; 0 if there was none.
    pub manifest: u64,
    /// Bytes of the manifest that were synced.
    pub length: u64,
}

/// The state of the note of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteState {
    /// There is no note: the database was written by a program that does not use this crate, or not yet.
    Missing,
    /// The note is torn or damaged.
    Unreadable,
    /// The note holds this.
    Holds(Watermark),
}

/// The note of an open database.
pub struct Note {
    file: File,
    manifest: Mutex<CurrentManifest>,
    durable: AtomicU64,
    in_tables: AtomicU64,
    turn: AtomicU64,
}

impl Watermark {
    /// Creates a watermark from two sequence numbers.
    pub fn up_to(durable: u64, in_tables: u64) -> Self {
        Self { durable, in_tables, ..Self::default() }
    }

    /// Reads the note of a database.
    pub fn read(folder: &Path) -> Result<NoteState> {
        let bytes = match std::fs::read(folder.join(NOTE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(NoteState::Missing),
            read => read?,
        };
        let places = (0..PLACES).filter_map(|place| Self::of(bytes.get((place * SECTOR_BYTES) as usize..)?));
        let newest = places.max_by_key(|noted| (noted.durable, noted.in_tables, noted.manifest, noted.length));
        Ok(newest.map_or(NoteState::Unreadable, NoteState::Holds))
    }

    fn of(place: &[u8]) -> Option<Self> {
        let place = place.first_chunk::<PLACE_BYTES>()?;
        let (covered, sum) = place.split_last_chunk::<4>()?;
        let (mark, numbers) = covered.split_first_chunk::<8>()?;
        let mut numbers = numbers.chunks_exact(8).filter_map(|number| number.try_into().ok()).map(u64::from_le_bytes);
        let mut number = || numbers.next();
        let noted = Self { durable: number()?, in_tables: number()?, manifest: number()?, length: number()? };
        (*mark == MARK && crc32c::of(covered).to_le_bytes() == *sum).then_some(noted)
    }

    fn bytes(self) -> [u8; PLACE_BYTES] {
        let mut bytes = [0; PLACE_BYTES];
        let (covered, sum) = bytes.split_at_mut(PLACE_BYTES - 4);
        covered[..8].copy_from_slice(&MARK);
        let numbers = [self.durable, self.in_tables, self.manifest, self.length];
        for (place, number) in covered[8..].chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        sum.copy_from_slice(&crc32c::of(covered).to_le_bytes());
        bytes
    }
}

impl Note {
    /// Creates the note of a database, durably, and replaces any earlier one. Adds the state of the manifest itself.
    pub fn begin(folder: &Path, noted: Watermark) -> Result<Self> {
        let mut in_use = CurrentManifest::of(folder);
        let (manifest, length) = in_use.look()?;
        let noted = Watermark { manifest, length, ..noted };
        let path = folder.join(NOTE);
        let is_new = !path.exists();
        let file = File::options().write(true).create(true).truncate(false).open(path)?;
        for place in 0..PLACES {
            file.write_all_at(&noted.bytes(), place * SECTOR_BYTES)?;
        }
        file.set_len(PLACES * SECTOR_BYTES)?;
        file.sync_all()?;
        if is_new {
            File::open(folder)?.sync_all()?;
        }
        let (durable, in_tables) = (noted.durable.into(), noted.in_tables.into());
        Ok(Self { file, manifest: Mutex::new(in_use), durable, in_tables, turn: AtomicU64::new(0) })
    }

    /// Returns the newest sequence number that was recorded as durable.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Records that every write up to this sequence number is durable; call it after each sync of the log, before you
    /// acknowledge the writes. The number must not decrease.
    pub fn record_durable(&self, durable: u64) -> io::Result<()> {
        self.durable.store(durable, Ordering::Release);
        let in_tables = self.in_tables.load(Ordering::Relaxed);
        let (manifest, length) = self.manifest.lock().look()?;
        let noted = Watermark { durable, in_tables, manifest, length };
        let place = self.turn.fetch_add(1, Ordering::Relaxed) % PLACES;
        self.file.write_all_at(&noted.bytes(), place * SECTOR_BYTES)
    }

    /// Records that every write up to this sequence number is in tables, so that no log is needed any more. The record
    /// is durable when this returns.
    pub fn record_in_tables(&self, sequence: u64) -> io::Result<()> {
        self.in_tables.store(sequence, Ordering::Relaxed);
        self.record_durable(sequence)?;
        self.record_durable(sequence)?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_undamaged_slot_of_the_note_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Watermark::read(folder.path()).unwrap(), NoteState::Missing);
        let note = Note::begin(folder.path(), Watermark::up_to(7, 7)).unwrap();
        for sequence in 8..=20 {
            note.record_durable(sequence).unwrap();
            assert_eq!(Watermark::read(folder.path()).unwrap(), NoteState::Holds(Watermark::up_to(sequence, 7)));
        }
        let whole = std::fs::read(folder.path().join(NOTE)).unwrap();
        for place in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[place] ^= 1;
            std::fs::write(folder.path().join(NOTE), flipped).unwrap();
            // The other place has the number before.
            let known = Watermark::read(folder.path()).unwrap();
            let either = [19, 20].map(|sequence| NoteState::Holds(Watermark::up_to(sequence, 7)));
            assert!(either.contains(&known), "{known:?} with byte {place}");
        }
        std::fs::write(folder.path().join(NOTE), [0; 1024]).unwrap();
        assert_eq!(Watermark::read(folder.path()).unwrap(), NoteState::Unreadable);
    }
}
