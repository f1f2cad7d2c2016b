//! The note of what is durable: a small file beside the database that says up to which sequence number the write-ahead log
//! was synced. What the log itself cannot tell: whether its end was cut off while it was being written, or after its
//! writes had been acknowledged.
//!
//! It is written after every sync, before any commit is acknowledged, and not synced itself: whatever kills the
//! process, the system still has it; after a power cut an older number stands there, which is still true as a lower
//! bound. Two places are written in turns, each in a sector of its own, so that one torn or damaged place leaves the
//! other. A power cut may leave neither: then nothing is known.
//!
//! Beside it stands how much of RocksDB's manifest is synced, for the same question: what is behind may be unfinished.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::crc32c;
use super::in_use::InUse;
use crate::error::{Result, StoreError};

/// The file's name, in the database's folder.
pub const NOTE: &str = "DURABLE";
const MARK: [u8; 8] = *b"isobar-d";
/// Bytes of a place: mark, two sequences u64, the manifest's number and length u64, checksum u32.
const PLACE_BYTES: usize = 44;
/// Places lie so far apart: a disk writes a sector whole or not at all.
const SECTOR_BYTES: u64 = 512;
const PLACES: u64 = 2;

/// What is noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Every write up to this sequence number is durable.
    pub durable: u64,
    /// Every write up to this one is in tables, without the log.
    pub in_tables: u64,
    /// The number of the manifest when this was noted; 0: there was none.
    pub manifest: u64,
    /// Bytes of it that were synced.
    pub length: u64,
}

/// What is known of what was durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// There is no note: a version that noted nothing has written here.
    Nothing,
    /// The note is torn or damaged.
    Unreadable,
    /// It says this.
    Is(Noted),
}

/// The note of a store that is open.
pub struct Note {
    file: File,
    manifest: Mutex<InUse>,
    durable: AtomicU64,
    in_tables: AtomicU64,
    turn: AtomicU64,
}

impl Noted {
    /// Up to these sequence numbers.
    pub fn up_to(durable: u64, in_tables: u64) -> Self {
        Self { durable, in_tables, ..Self::default() }
    }

    /// What is noted beside a database.
    pub fn read(folder: &Path) -> Result<Known> {
        let bytes = match std::fs::read(folder.join(NOTE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Known::Nothing),
            read => read.map_err(StoreError::unavailable)?,
        };
        let places = (0..PLACES).filter_map(|place| Self::of(bytes.get((place * SECTOR_BYTES) as usize..)?));
        let newest = places.max_by_key(|noted| (noted.durable, noted.in_tables, noted.manifest, noted.length));
        Ok(newest.map_or(Known::Unreadable, Known::Is))
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
    /// Begins a note, durably: whatever stood there no longer counts. What it says of the manifest it sees itself.
    pub fn begin(folder: &Path, noted: Noted) -> Result<Self> {
        let begun = || -> io::Result<Self> {
            let mut in_use = InUse::of(folder);
            let (manifest, length) = in_use.look()?;
            let noted = Noted { manifest, length, ..noted };
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
        };
        begun().map_err(StoreError::unavailable)
    }

    /// The newest sequence number that was noted.
    pub fn durable(&self) -> u64 {
        self.durable.load(Ordering::Acquire)
    }

    /// Everything up to this sequence number is durable. It only grows.
    pub fn is_durable(&self, durable: u64) -> io::Result<()> {
        self.durable.store(durable, Ordering::Release);
        let in_tables = self.in_tables.load(Ordering::Relaxed);
        let (manifest, length) = self.manifest.lock().look()?;
        let noted = Noted { durable, in_tables, manifest, length };
        let place = self.turn.fetch_add(1, Ordering::Relaxed) % PLACES;
        self.file.write_all_at(&noted.bytes(), place * SECTOR_BYTES)
    }

    /// Everything up to this sequence number is in tables: the log is not needed any more. Durable when this returns.
    pub fn is_in_tables(&self, sequence: u64) -> io::Result<()> {
        self.in_tables.store(sequence, Ordering::Relaxed);
        self.is_durable(sequence)?;
        self.is_durable(sequence)?;
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_number_that_is_whole_is_what_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Noted::read(folder.path()).unwrap(), Known::Nothing);
        let note = Note::begin(folder.path(), Noted::up_to(7, 7)).unwrap();
        for sequence in 8..=20 {
            note.is_durable(sequence).unwrap();
            assert_eq!(Noted::read(folder.path()).unwrap(), Known::Is(Noted::up_to(sequence, 7)));
        }
        let whole = std::fs::read(folder.path().join(NOTE)).unwrap();
        for place in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[place] ^= 1;
            std::fs::write(folder.path().join(NOTE), flipped).unwrap();
            // The other place has the number before.
            let known = Noted::read(folder.path()).unwrap();
            let either = [19, 20].map(|sequence| Known::Is(Noted::up_to(sequence, 7)));
            assert!(either.contains(&known), "{known:?} with byte {place}");
        }
        std::fs::write(folder.path().join(NOTE), [0; 1024]).unwrap();
        assert_eq!(Noted::read(folder.path()).unwrap(), Known::Unreadable);
    }
}
