//! The write-ahead log as a file: what of it SQLite would take, and what stood in it beyond.

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
/// How a log begins that a machine of this byte order wrote.
const LOG_MAGIC: u32 = 0x377f_0682 | cfg!(target_endian = "big") as u32;

/// Tells one life of the log from the next: it is another one whenever the log begins anew.
pub(crate) type Salts = [u8; 8];

/// What stands before a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// The page's number; never 0.
    pub(crate) page: u32,
    /// Whether a transaction ends with it.
    pub(crate) commits: bool,
    pub(crate) salts: Salts,
    /// Over everything up to here.
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

    /// Whether the frame is what followed upon these sums.
    pub(crate) fn follows(&self, before: Sums, bytes: &[u8; FRAME_HEADER_BYTES], page: &[u8]) -> bool {
        let [a, b, c, d, e, f, g, h, ..] = *bytes;
        along_the_log(page, along_the_log(&[a, b, c, d, e, f, g, h], before)) == self.sums
    }
}

/// The number at an offset; the file's numbers have their high byte first.
pub(crate) fn number(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk());
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

pub(crate) fn eight(bytes: &[u8], at: usize) -> [u8; 8] {
    bytes.get(at..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default()
}

/// Where a frame begins; frames count from 1.
pub(crate) fn frame_offset(frame: u32) -> u64 {
    HEADER_BYTES as u64 + u64::from(frame.saturating_sub(1)) * FRAME_BYTES as u64
}

/// The frame that an offset lies in, and how far it lies within it. None: it lies before the first.
pub(crate) fn frame_at(offset: u64) -> Option<(u32, usize)> {
    let from_first = offset.checked_sub(HEADER_BYTES as u64)?;
    let frame = u32::try_from(from_first / FRAME_BYTES as u64 + 1).ok()?;
    Some((frame, usize::try_from(from_first % FRAME_BYTES as u64).ok()?))
}

/// A log that begins as it should.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    pub(crate) salts: Salts,
    sums: Sums,
}

impl Log {
    /// None: SQLite would not take anything of it.
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

    /// The frame at which the last transaction ends that SQLite would take; 0: none.
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

/// Up to where a log was looked at, and found to be as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sound {
    salts: Salts,
    frame: u32,
    sums: Sums,
}

impl Log {
    /// Looks at the frames up to this one, those left out that were found to be sound before. None: one is not.
    pub(crate) fn sound(&self, before: Option<Sound>, to: u32) -> io::Result<Option<Sound>> {
        let begin = Sound { salts: self.salts, frame: 0, sums: self.sums };
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
            sound = Sound { frame, sums: header.sums, ..sound };
        }
        Ok(Some(sound))
    }
}

/// The first frame, of those up to this one, that is damaged and holds the newest of its page: no later one has it. Each
/// frame is held against the sums before it, whatever these are worth: so damage is not found in all that follows.
pub(crate) fn wanting(file: &File, salts: Salts, to: u32) -> io::Result<Option<u32>> {
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

/// How many transactions end with the frames after one and up to another, as far as these can be read.
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

/// Reads a piece; false: the file ends before.
fn filled(file: &File, bytes: &mut [u8], at: u64) -> io::Result<bool> {
    match file.read_exact_at(bytes, at) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        outcome => outcome.map(|()| true),
    }
}
