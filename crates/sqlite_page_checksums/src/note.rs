//! The note of a database: a few bytes in a file beside it, which say how far its write-ahead log was durable.
//!
//! SQLite reads the log up to the first frame that does not agree with its sums, and takes the rest for what a crash has
//! torn. It cannot know that a damaged byte has cut off transactions that were acknowledged; the note can. It is written
//! after the log was synced and before the commit returns, and not synced itself: a process that is killed leaves it as
//! it is, and a power cut leaves an older one, which claims less. Before the log restarts or is deleted, the note is
//! emptied and synced: the log holds what the note claims as long as it claims it.
//!
//! The note also says how much of the log a checkpoint may have copied into the database, and whether the checkpoint has
//! finished. That is synced before the first page is written: a log that ends before must not be applied to the database.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::checksum::along_the_log;
use crate::log::{Salts, eight, number};

const NOTE_MAGIC: [u8; 8] = *b"isobar2\n";
/// The first bytes of notes of an older version, which do not cover checkpoints.
const MAGIC_BEFORE: [u8; 8] = *b"isobar1\n";
/// Bytes of a note: magic, salts, frame, copied part, checksum.
const NOTE_BYTES: usize = 32;
/// The bit that marks a finished checkpoint.
const IS_WHOLE: u32 = 1 << 31;

/// A claim: this log holds at least so many frames, and the last of them ends a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) salts: Salts,
    /// The number of frames; 0 claims nothing.
    pub(crate) frames: u32,
    pub(crate) carried: CopiedPart,
}

/// The part of the log that checkpoints have copied into the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CopiedPart {
    /// No frame behind this one was copied.
    pub(crate) frames: u32,
    /// True if all frames up to that one were copied, durably; false if any part of them may have been.
    pub(crate) is_whole: bool,
}

impl CopiedPart {
    /// Returns the value for a log with so many frames of which it is unknown what was copied.
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

/// The content of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoteContent {
    /// The file is empty.
    Nothing,
    /// The content does not agree with its checksum.
    Unreadable,
    Claim(Claim),
}

/// The file of the note.
#[derive(Debug)]
pub(crate) struct Note {
    file: File,
}

impl Note {
    /// Opens the note; creates it if it is missing.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let is_new = !path.exists();
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if is_new && let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { file })
    }

    /// Locks the note for one process, and in it one thread, until the guard is dropped.
    pub(crate) fn alone(&self) -> io::Result<NoteGuard<'_>> {
        self.file.lock()?;
        Ok(NoteGuard(&self.file))
    }

    pub(crate) fn read(&self) -> io::Result<NoteContent> {
        let mut bytes = [0; NOTE_BYTES + 1];
        let mut length = 0;
        loop {
            match self.file.read_at(bytes.get_mut(length..).unwrap_or_default(), length as u64)? {
                0 => break,
                more => length += more,
            }
        }
        Ok(match bytes.get(..length) {
            Some([]) => NoteContent::Nothing,
            Some(bytes) => decoded(bytes).map_or(NoteContent::Unreadable, NoteContent::Claim),
            None => NoteContent::Unreadable,
        })
    }

    /// Writes the note with one call, without a sync.
    pub(crate) fn write(&self, claim: Claim) -> io::Result<()> {
        self.file.write_all_at(&encoded(NOTE_MAGIC, claim), 0)
    }

    /// Writes and syncs the whole note, of whatever length it was, so that it survives a power cut.
    pub(crate) fn write_for_good(&self, claim: Claim) -> io::Result<()> {
        self.write(claim)?;
        if self.file.metadata()?.len() != NOTE_BYTES as u64 {
            self.file.set_len(NOTE_BYTES as u64)?;
        }
        self.file.sync_data()
    }
}

fn decoded(bytes: &[u8]) -> Option<Claim> {
    let claim =
        Claim { salts: eight(bytes, 8), frames: number(bytes, 16), carried: CopiedPart::read(number(bytes, 20)) };
    if *bytes == encoded(NOTE_MAGIC, claim) {
        return Some(claim);
    }
    // The older version wrote zeros there, whatever it had copied.
    let before = Claim { carried: CopiedPart::default(), ..claim };
    (*bytes == encoded(MAGIC_BEFORE, before)).then(|| Claim { carried: CopiedPart::unknown(claim.frames), ..before })
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

/// The guard of the note's lock.
pub(crate) struct NoteGuard<'a>(&'a File);

impl Drop for NoteGuard<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.unlock() {
            tracing::warn!(%error, "cannot unlock the note of the database: it stays locked until the process ends");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_read_as_written_and_a_damaged_one_never() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note");
        let note = Note::open(&path).unwrap();
        assert_eq!(note.read().unwrap(), NoteContent::Nothing);
        let claim = Claim { salts: *b"saltsalt", frames: 77, carried: CopiedPart { frames: 70, is_whole: true } };
        note.write(claim).unwrap();
        assert_eq!(Note::open(&path).unwrap().read().unwrap(), NoteContent::Claim(claim));
        for at in 0..NOTE_BYTES {
            for bit in 0..8 {
                let mut bytes = encoded(NOTE_MAGIC, claim);
                bytes[at] ^= 1 << bit;
                std::fs::write(&path, bytes).unwrap();
                assert_eq!(note.read().unwrap(), NoteContent::Unreadable, "{at} {bit}");
            }
        }
        std::fs::write(&path, [7; 40]).unwrap();
        note.write_for_good(claim).unwrap();
        assert_eq!(note.read().unwrap(), NoteContent::Claim(claim));
    }

    #[test]
    fn note_of_the_older_version_leaves_checkpoints_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note");
        for frames in [0, 77] {
            let before = Claim { salts: *b"saltsalt", frames, carried: CopiedPart::default() };
            std::fs::write(&path, encoded(MAGIC_BEFORE, before)).unwrap();
            let read = Note::open(&path).unwrap().read().unwrap();
            assert_eq!(read, NoteContent::Claim(Claim { carried: CopiedPart { frames, is_whole: false }, ..before }));
        }
    }
}
