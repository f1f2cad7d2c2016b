//! How far the write-ahead log of a database was known to be durable: a few bytes in a file beside it.
//!
//! SQLite takes the log up to the first frame that does not fit, and forgives the rest as what a crash has torn. That a
//! damaged byte has cut off transactions that were acknowledged, it cannot know; the note tells. It is written after
//! the log was synced and before the commit returns, and not synced itself: a process that is killed leaves it as it
//! is, and a power cut leaves an older one, which claims less. Before the log begins anew, or goes, the note is
//! emptied and synced: what it claims is in the log as long as it claims it.
//!
//! It also tells how much of the log a checkpoint may have carried into the database, and whether it had finished. That is
//! synced before the first page of it is written: a log that breaks off before that must not be put upon the database.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::checksum::along_the_log;
use crate::log::{Salts, eight, number};

const NOTE_MAGIC: [u8; 8] = *b"isobar2\n";
/// Of a note that does not tell of checkpoints.
const MAGIC_BEFORE: [u8; 8] = *b"isobar1\n";
/// Magic, salts, frame, what was carried over, checksum.
const NOTE_BYTES: usize = 32;
/// The bit that says that a checkpoint had finished.
const IS_WHOLE: u32 = 1 << 31;

/// What is claimed: this log holds at least so many frames, and the last of them ends a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) salts: Salts,
    /// 0: nothing is claimed.
    pub(crate) frames: u32,
    pub(crate) carried: Carried,
}

/// What checkpoints have carried from the log into the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Carried {
    /// Of no frame behind this one.
    pub(crate) frames: u32,
    /// All frames up to that one, durably; else any part of them.
    pub(crate) is_whole: bool,
}

impl Carried {
    /// Nobody knows, of a log with so many frames.
    pub(crate) fn unknown(frames: u32) -> Self {
        Self { frames, is_whole: false }
    }

    fn word(self) -> u32 {
        self.frames & !IS_WHOLE | if self.is_whole { IS_WHOLE } else { 0 }
    }

    fn read(word: u32) -> Self {
        Self { frames: word & !IS_WHOLE, is_whole: word & IS_WHOLE != 0 }
    }
}

/// What stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// Nothing yet.
    Nothing,
    /// It does not fit to its checksum.
    Unreadable,
    Claim(Claim),
}

/// The file.
#[derive(Debug)]
pub(crate) struct Note {
    file: File,
}

impl Note {
    /// Opens it; it is made if it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let is_new = !path.exists();
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if is_new && let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { file })
    }

    /// One process, and in it one thread, at a time, until what is returned is dropped.
    pub(crate) fn alone(&self) -> io::Result<Alone<'_>> {
        self.file.lock()?;
        Ok(Alone(&self.file))
    }

    pub(crate) fn read(&self) -> io::Result<Noted> {
        let mut bytes = [0; NOTE_BYTES + 1];
        let mut length = 0;
        loop {
            match self.file.read_at(bytes.get_mut(length..).unwrap_or_default(), length as u64)? {
                0 => break,
                more => length += more,
            }
        }
        Ok(match bytes.get(..length) {
            Some([]) => Noted::Nothing,
            Some(bytes) => decoded(bytes).map_or(Noted::Unreadable, Noted::Claim),
            None => Noted::Unreadable,
        })
    }

    /// Writes it in one piece.
    pub(crate) fn write(&self, claim: Claim) -> io::Result<()> {
        self.file.write_all_at(&encoded(NOTE_MAGIC, claim), 0)
    }

    /// Writes it anew, of whatever length it was, so that it outlives a power cut.
    pub(crate) fn write_for_good(&self, claim: Claim) -> io::Result<()> {
        self.write(claim)?;
        if self.file.metadata()?.len() != NOTE_BYTES as u64 {
            self.file.set_len(NOTE_BYTES as u64)?;
        }
        self.file.sync_data()
    }
}

fn decoded(bytes: &[u8]) -> Option<Claim> {
    let claim = Claim { salts: eight(bytes, 8), frames: number(bytes, 16), carried: Carried::read(number(bytes, 20)) };
    if *bytes == encoded(NOTE_MAGIC, claim) {
        return Some(claim);
    }
    // That version wrote zeros there, whatever it had carried over.
    let before = Claim { carried: Carried::default(), ..claim };
    (*bytes == encoded(MAGIC_BEFORE, before)).then(|| Claim { carried: Carried::unknown(claim.frames), ..before })
}

fn encoded(magic: [u8; 8], claim: Claim) -> [u8; NOTE_BYTES] {
    let mut bytes = [0; NOTE_BYTES];
    let (said, sum) = bytes.split_at_mut(NOTE_BYTES - 8);
    let pieces = magic.into_iter().chain(claim.salts).chain(claim.frames.to_be_bytes());
    let pieces = pieces.chain(claim.carried.word().to_be_bytes());
    said.iter_mut().zip(pieces).for_each(|(byte, piece)| *byte = piece);
    let (first, second) = along_the_log(said, (1, 1));
    let sums = first.to_be_bytes().into_iter().chain(second.to_be_bytes());
    sum.iter_mut().zip(sums).for_each(|(byte, piece)| *byte = piece);
    bytes
}

/// The note's lock.
pub(crate) struct Alone<'a>(&'a File);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "the registry's note stays locked until the process ends");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written_and_a_damaged_one_never() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note");
        let note = Note::open(&path).unwrap();
        assert_eq!(note.read().unwrap(), Noted::Nothing);
        let claim = Claim { salts: *b"saltsalt", frames: 77, carried: Carried { frames: 70, is_whole: true } };
        note.write(claim).unwrap();
        assert_eq!(Note::open(&path).unwrap().read().unwrap(), Noted::Claim(claim));
        for at in 0..NOTE_BYTES {
            for bit in 0..8 {
                let mut bytes = encoded(NOTE_MAGIC, claim);
                bytes[at] ^= 1 << bit;
                std::fs::write(&path, bytes).unwrap();
                assert_eq!(note.read().unwrap(), Noted::Unreadable, "{at} {bit}");
            }
        }
        std::fs::write(&path, [7; 40]).unwrap();
        note.write_for_good(claim).unwrap();
        assert_eq!(note.read().unwrap(), Noted::Claim(claim));
    }

    #[test]
    fn a_note_that_does_not_tell_of_checkpoints_leaves_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note");
        for frames in [0, 77] {
            let before = Claim { salts: *b"saltsalt", frames, carried: Carried::default() };
            std::fs::write(&path, encoded(MAGIC_BEFORE, before)).unwrap();
            let read = Note::open(&path).unwrap().read().unwrap();
            assert_eq!(read, Noted::Claim(Claim { carried: Carried { frames, is_whole: false }, ..before }));
        }
    }
}
