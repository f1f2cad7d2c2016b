//! RocksDB's log format, of both the write-ahead log and the manifest: blocks of 32 KiB with records, whole or in
//! pieces, each with its length, type and checksum. Reading is strict: it ends at anything that is no complete record,
//! and reports its offset.

use std::io::{self, Read};

use crate::crc32c;

const BLOCK_BYTES: usize = 32 << 10;
/// Bytes of a record's header: checksum u32, length u16, type u8.
const RECORD_HEADER_BYTES: usize = 7;
/// Bytes of a header that ends with the log's number, u32: in a recycled file, records of the earlier log follow those
/// of this one.
const RECYCLED_HEADER: usize = 11;

/// The place and kind of the end of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The offset of the first byte that belongs to no complete record.
    pub offset: u64,
    /// The offset of the piece that is not complete.
    pub piece: u64,
    /// The content at that offset.
    pub what: Ending,
}

/// The content behind the last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The end of the file.
    Nothing,
    /// A record of an earlier log in a recycled file: the usual end.
    EarlierLife,
    /// A record that the end of the file cuts short.
    Cut,
    /// Zeros in the place of a record.
    Zeros,
    /// A record whose checksum does not fit, or that does not fit to the records before it.
    Broken,
}

impl Ending {
    /// Describes the ending for a message.
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

/// A reader of the records of a file.
pub struct Records<R> {
    file: R,
    /// The log's number; `None` for a manifest.
    number: Option<u32>,
    block: Vec<u8>,
    /// The number of bytes of the block that were read.
    at: usize,
    /// The offset of the block in the file.
    start: u64,
    record: Vec<u8>,
}

/// A piece of a record, by type.
enum Piece {
    Whole,
    First,
    Middle,
    Last,
    /// Metadata of RocksDB itself.
    Remark,
}

impl<R: Read> Records<R> {
    /// Creates a reader of the write-ahead log with this number, or of a manifest, which has none.
    pub fn of(file: R, number: Option<u64>) -> Self {
        // RocksDB keeps the lower half of the number in each record.
        let number = number.map(|number| number as u32);
        Self { file, number, block: Vec::with_capacity(BLOCK_BYTES), at: 0, start: 0, record: Vec::new() }
    }

    /// Returns the next record with its offset, or the end.
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

    /// Reads the next piece, and appends its bytes to the record.
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

    /// Reads the next block. Returns false at the end of the file.
    fn fill(&mut self) -> io::Result<bool> {
        self.start += self.block.len() as u64;
        (self.at, self.block) = (0, std::mem::take(&mut self.block));
        self.block.clear();
        self.file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut self.block)?;
        Ok(!self.block.is_empty())
    }
}

/// Returns true if the bytes that end a file are those of an unfinished write, and not damage to a complete record.
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
