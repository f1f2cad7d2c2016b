//! The file of the write-ahead log: frames that SQLite would read, and frames behind them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;

use crate::checksum::{PAGE_BYTES, Sums, along_the_log};

/// Bytes before the first frame.
pub(crate) const HEADER_BYTES: usize = 32;
/// Bytes before the page in a frame.
pub(crate) const FRAME_HEADER_BYTES: usize = 24;
/// Bytes of a frame.
pub(crate) const FRAME_BYTES: usize = FRAME_HEADER_BYTES + PAGE_BYTES;
/// The first bytes of a log that a machine of this byte order wrote.
const LOG_MAGIC: u32 = 0x377f_0682 | cfg!(target_endian = "big") as u32;

/// Identifies the log: it changes whenever SQLite starts the log anew.
pub(crate) type Salts = [u8; 8];

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The page's number; never 0.
    pub(crate) page: u32,
    /// True if a transaction ends with this frame.
    pub(crate) commits: bool,
    pub(crate) salts: Salts,
    /// Sums over the log up to the end of this frame.
    pub(crate) sums: Sums,
}

impl FrameHeader {
    pub(crate) fn read(bytes: &[u8; FRAME_HEADER_BYTES]) -> Self {
        Self {
            page: number(bytes, 0),
            commits: number(bytes, 4) != 0,
            salts: eight(bytes, 8),
            sums: (number(bytes, 16), number(bytes, 20)),
        }
    }

    /// Returns true if the frame follows on these sums.
    pub(crate) fn follows(&self, before: Sums, bytes: &[u8; FRAME_HEADER_BYTES], page: &[u8]) -> bool {
        let [a, b, c, d, e, f, g, h, ..] = *bytes;
        along_the_log(page, along_the_log(&[a, b, c, d, e, f, g, h], before)) == self.sums
    }
}

/// Reads the big-endian number at an offset.
pub(crate) fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

pub(crate) fn eight(bytes: &[u8], at: usize) -> [u8; 8] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default()
}

/// Returns the offset of a frame; frames count from 1.
pub(crate) fn frame_offset(frame: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(frame.saturating_sub(1)) * FRAME_BYTES as u64
}

/// Returns the frame at an offset, and the offset within it. `None` before the first frame.
pub(crate) fn frame_at(offset: u64) -> Option<(u32, usize)> {
    let from_first = offset.checked_sub(HEADER_BYTES as u64)?;
    let frame = u32::try_from(from_first / FRAME_BYTES as u64 + 1).ok()?;
    Some((frame, usize::try_from(from_first % FRAME_BYTES as u64).ok()?))
}

/// A log with a valid header.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    pub(crate) salts: Salts,
    sums: Sums,
}

impl Log {
    /// Reads the header. `None` if SQLite would read nothing of this log.
    pub(crate) fn of(file: File) -> io::Result<Option<Self>> {
        let mut bytes = [0; HEADER_BYTES];
        if !filled(&file, &mut bytes, 0)? {
            return Ok(None);
        }
        let sums = (number(&bytes, 24), number(&bytes, 28));
        let sound = number(&bytes, 0) == LOG_MAGIC
            && number(&bytes, 8) == PAGE_BYTES as u32
            && along_the_log(bytes.get(..24).unwrap_or_default(), (0, 0)) == sums;
        Ok(sound.then(|| Self { file, salts: eight(&bytes, 16), sums }))
    }

    /// Returns the frame that ends the last transaction that SQLite would read; 0 if there is none.
    pub(crate) fn last_commit(&self) -> io::Result<u32> {
        let (mut last, mut before) = (0, self.sums);
        for frame in 1..u32::MAX {
            let mut bytes = [0; FRAME_BYTES];
            if !filled(&self.file, &mut bytes, frame_offset(frame))? {
                break;
            }
            let Some((head, page)) = bytes.split_first_chunk() else { break };
            let header = FrameHeader::read(head);
            if header.salts != self.salts || header.page == 0 || !header.follows(before, head, page) {
                break;
            }
            before = header.sums;
            if header.commits {
                last = frame;
            }
        }
        Ok(last)
    }
}

/// The end of the frames that were verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VerifiedFrames {
    salts: Salts,
    frame: u32,
    sums: Sums,
}

impl Log {
    /// Verifies the frames up to this one, without those that were verified before. `None` if one is damaged.
    pub(crate) fn sound(&self, before: Option<VerifiedFrames>, to: u32) -> io::Result<Option<VerifiedFrames>> {
        let begin = VerifiedFrames { salts: self.salts, frame: 0, sums: self.sums };
        let mut sound = before.filter(|before| before.salts == self.salts && before.frame <= to).unwrap_or(begin);
        while sound.frame < to {
            let frame = sound.frame + 1;
            let mut bytes = [0; FRAME_BYTES];
            if !filled(&self.file, &mut bytes, frame_offset(frame))? {
                return Ok(None);
            }
            let Some((head, page)) = bytes.split_first_chunk() else { return Ok(None) };
            let header = FrameHeader::read(head);
            if header.salts != self.salts || !header.follows(sound.sums, head, page) {
                return Ok(None);
            }
            sound = VerifiedFrames { frame, sums: header.sums, ..sound };
        }
        Ok(Some(sound))
    }
}

/// Returns the first damaged frame, of those up to `to`, whose page no later frame has. Each frame is verified against
/// the stored sums before it, even if these are damaged, so that one damaged frame does not invalidate all later ones.
pub(crate) fn first_needed_damage(file: &File, salts: Salts, to: u32) -> io::Result<Option<u32>> {
    let mut before = [0; 8];
    if !filled(file, &mut before, HEADER_BYTES as u64 - 8)? {
        return Ok(Some(1));
    }
    let mut damaged = BTreeMap::new();
    for frame in 1..=to {
        let mut bytes = [0; FRAME_BYTES];
        if !filled(file, &mut bytes, frame_offset(frame))? {
            return Ok(Some(frame));
        }
        let Some((head, page)) = bytes.split_first_chunk() else { return Ok(Some(frame)) };
        let header = FrameHeader::read(head);
        if header.salts == salts && header.follows((number(&before, 0), number(&before, 4)), head, page) {
            damaged.remove(&header.page);
        } else {
            damaged.insert(header.page, frame);
        }
        before = eight(head, FRAME_HEADER_BYTES - 8);
    }
    Ok(damaged.into_values().min())
}

/// Counts the transactions that end with the frames after one and up to another, as far as these can be read.
pub(crate) fn commits_within(file: &File, after: u32, to: u32) -> io::Result<u32> {
    let mut commits = 0;
    for frame in after.saturating_add(1)..=to {
        let mut head = [0; FRAME_HEADER_BYTES];
        if !filled(file, &mut head, frame_offset(frame))? {
            break;
        }
        commits += u32::from(FrameHeader::read(&head).commits);
    }
    Ok(commits)
}

/// Fills the buffer. Returns false if the file ends before.
fn filled(file: &File, bytes: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(bytes, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        outcome => outcome.map(|()| true),
    }
}
