//! RocksDB's log format, in which both the write-ahead log and the manifest are written: blocks of 32 KiB, in them
//! records in one piece or in several, each with its length, its kind and a checksum. Read strictly: whatever is not a
//! whole record ends the reading, and is reported with its offset.

use std::io::{self, Read};

use super::crc32c;

const BLOCK_BYTES: usize = 32 << 10;
/// Checksum u32, length u16, kind u8.
const RECORD_HEADER_BYTES: usize = 7;
/// A header that ends with the log's number, u32: in a file that is written anew, records of its earlier life follow those of this one.
const RECYCLED_HEADER: usize = 11;

/// Where and how reading ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The place of the first byte that is no whole record.
    pub offset: u64,
    /// The place of the piece of it that is not whole.
    pub piece: u64,
    /// What is there.
    pub what: Ending,
}

/// What follows the last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing.
    Nothing,
    /// A record of the file's earlier life: the usual end of a file that is written anew.
    EarlierLife,
    /// A record that is cut short by the end of the file.
    Cut,
    /// Zeros where a record should be.
    Zeros,
    /// A record whose checksum does not fit, or that does not fit to those before it.
    Broken,
}

impl Ending {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Nothing => "ends",
            Self::EarlierLife => "goes on with what it held earlier",
            Self::Cut => "ends within a record",
            Self::Zeros => "holds zeros where a record should be",
            Self::Broken => "holds a record whose checksum does not fit",
        }
    }
}

/// The records of a file.
pub struct Records<R> {
    file: R,
    /// The log's number; none: a manifest.
    number: Option<u32>,
    block: Vec<u8>,
    /// What was read of the block.
    at: usize,
    /// The place of the block in the file.
    start: u64,
    record: Vec<u8>,
}

/// A piece of a record.
enum Piece {
    Whole,
    First,
    Middle,
    Last,
    /// RocksDB's own remarks.
    Remark,
}

impl<R: Read> Records<R> {
    /// The records of a write-ahead log with this number, or of a manifest, which has none.
    pub fn of(file: R, number: Option<u64>) -> Self {
        // RocksDB keeps the lower half of the number in each record.
        let number = number.map(|number| number as u32);
        Self { file, number, block: Vec::with_capacity(BLOCK_BYTES), at: 0, start: 0, record: Vec::new() }
    }

    /// The next record with its place, or the end.
    pub fn next(&mut self) -> io::Result<Result<(u64, &[u8]), End>> {
        self.record.clear();
        let mut begun: Option<u64> = None;
        loop {
            let (offset, piece) = match self.piece()? {
                Ok(found) => found,
                // A record that was begun ends where it began.
                Err(End { offset, piece, what: Ending::Nothing | Ending::EarlierLife }) if begun.is_some() => {
                    return Ok(Err(End { offset: begun.unwrap_or(offset), piece, what: Ending::Cut }));
                }
                Err(end) => return Ok(Err(End { offset: begun.unwrap_or(end.offset), ..end })),
            };
            match (piece, begun) {
                (Piece::Whole, None) => return Ok(Ok((offset, &self.record))),
                (Piece::Last, Some(first)) => return Ok(Ok((first, &self.record))),
                (Piece::First, None) => begun = Some(offset),
                (Piece::Middle, Some(_)) | (Piece::Remark, None) => {}
                (Piece::Whole | Piece::First | Piece::Remark, Some(first)) => {
                    return Ok(Err(End { offset: first, piece: offset, what: Ending::Broken }));
                }
                (Piece::Middle | Piece::Last, None) => {
                    return Ok(Err(End { offset, piece: offset, what: Ending::Broken }));
                }
            }
        }
    }

    /// The next piece, whose bytes are behind those of the record so far.
    fn piece(&mut self) -> io::Result<Result<(u64, Piece), End>> {
        let header = if self.number.is_some() { RECYCLED_HEADER } else { RECORD_HEADER_BYTES };
        loop {
            let (offset, rest) = (self.start + self.at as u64, &self.block[self.at..]);
            let end = |what| Ok(Err(End { offset, piece: offset, what }));
            let is_last_block = self.block.len() < BLOCK_BYTES;
            if rest.len() < RECORD_HEADER_BYTES || rest.len() < header && rest.iter().all(|byte| *byte == 0) {
                // No header fits behind the last record of a block.
                match rest {
                    _ if !is_last_block || self.block.is_empty() => {
                        if self.fill()? {
                            continue;
                        }
                        return Ok(Err(End { offset: self.start, piece: self.start, what: Ending::Nothing }));
                    }
                    [] => return end(Ending::Nothing),
                    _ => return end(Ending::Cut),
                }
            }
            let length = usize::from(u16::from_le_bytes([rest[4], rest[5]]));
            let kind = rest[6];
            if kind == 0 && length == 0 {
                return end(Ending::Zeros);
            }
            let is_recycled = matches!(kind, 5..=8 | 11 | 131);
            let header = if is_recycled { RECYCLED_HEADER } else { RECORD_HEADER_BYTES };
            let Some(record) = rest.get(..header + length) else { return end(Ending::Cut) };
            if crc32c::masked(&record[6..]).to_le_bytes() != record[..4] {
                return end(Ending::Broken);
            }
            match self.number {
                Some(number) if is_recycled && record[7..RECYCLED_HEADER] != number.to_le_bytes() => {
                    return end(Ending::EarlierLife);
                }
                None if is_recycled => return end(Ending::Broken),
                _ => {}
            }
            let piece = match kind {
                1 | 5 => Piece::Whole,
                2 | 6 => Piece::First,
                3 | 7 => Piece::Middle,
                4 | 8 => Piece::Last,
                _ => Piece::Remark,
            };
            if !matches!(piece, Piece::Remark) {
                self.record.extend_from_slice(&record[header..]);
            }
            self.at += header + length;
            return Ok(Ok((offset, piece)));
        }
    }

    /// Reads the next block. False: there is none.
    fn fill(&mut self) -> io::Result<bool> {
        self.start += self.block.len() as u64;
        (self.at, self.block) = (0, std::mem::take(&mut self.block));
        self.block.clear();
        self.file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut self.block)?;
        Ok(!self.block.is_empty())
    }
}

/// Whether bytes that end a file are what an unfinished write leaves, and not damage to something that was whole.
pub fn is_torn(rest: &[u8]) -> bool {
    let fits = |from: &[u8], length: usize| {
        from.get(6..RECORD_HEADER_BYTES + length)
            .is_some_and(|covered| crc32c::masked(covered).to_le_bytes() == from[..4])
    };
    if rest.iter().all(|byte| *byte == 0) || rest.len() < RECORD_HEADER_BYTES {
        return true;
    }
    let length = |from: &[u8]| usize::from(u16::from_le_bytes([from[4], from[5]]));
    // Whole as it stands, whole but for its length, or followed by something that is whole.
    let is_whole = RECORD_HEADER_BYTES + length(rest) <= rest.len() || fits(rest, rest.len() - RECORD_HEADER_BYTES);
    let has_more = (1..rest.len() - RECORD_HEADER_BYTES + 1).any(|at| {
        let from = &rest[at..];
        matches!(from[6], 1..=4) && length(from) > 0 && fits(from, length(from))
    });
    !is_whole && !has_more
}
