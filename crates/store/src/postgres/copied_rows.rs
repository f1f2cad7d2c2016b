//! Encodes rows as `COPY … (FORMAT binary)` has them, in both directions: what is written to the database and what is read
//! from it again are the same bytes.

use sha2::{Digest as _, Sha256};

use crate::error::{Result, StoreError};

/// Header of a copy: signature, flags, length of what may follow.
const COPY_HEADER: [u8; 19] = *b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// End of a copy.
const COPY_TRAILER: [u8; 2] = (-1_i16).to_be_bytes();
/// Length that stands for NULL.
const NULL_LENGTH: [u8; 4] = (-1_i32).to_be_bytes();

/// Begins a copy.
pub(crate) fn begin_copy(to: &mut Vec<u8>) {
    to.extend_from_slice(&COPY_HEADER);
}

/// Ends a copy.
pub(crate) fn end_copy(to: &mut Vec<u8>) {
    to.extend_from_slice(&COPY_TRAILER);
}

/// Writes a column with a number.
pub(crate) fn number(to: &mut Vec<u8>, number: i64) {
    bytes(to, &number.to_be_bytes());
}

/// Writes a column that may be NULL.
pub(crate) fn maybe(to: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        Some(value) => bytes(to, value),
        None => to.extend_from_slice(&NULL_LENGTH),
    }
}

/// Writes a column with bytes or a text.
pub(crate) fn bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
    to.extend_from_slice(bytes);
}

/// Number of rows, and the sum of the digests of their columns, whatever their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowsDigest {
    pub(crate) rows: u64,
    sum: [u128; 2],
}

impl RowsDigest {
    /// Takes the columns of a row.
    pub(crate) fn take(&mut self, columns: &[u8]) {
        self.rows += 1;
        let digest: [u8; 32] = Sha256::digest(columns).into();
        for (sum, half) in self.sum.iter_mut().zip(digest.as_chunks::<16>().0) {
            *sum = sum.wrapping_add(u128::from_be_bytes(*half));
        }
    }
}

/// Reader of the rows that the database copies out.
#[derive(Default)]
pub(crate) struct CopiedRowReader {
    pending: Vec<u8>,
    has_begun: bool,
}

impl CopiedRowReader {
    /// Takes the next bytes, and calls `take` with the columns of each row that they complete.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.pending.extend_from_slice(bytes);
        let mut at = 0;
        if !self.has_begun {
            if self.pending.len() < COPY_HEADER.len() {
                return Ok(());
            }
            (self.has_begun, at) = (true, COPY_HEADER.len());
        }
        while let Some(length) = row_length(self.pending.get(at..).unwrap_or_default())? {
            take(self.pending.get(at + 2..at + length).unwrap_or_default())?;
            at += length;
        }
        self.pending.drain(..at);
        Ok(())
    }
}

/// Returns the bytes of the row with which these begin, or `None` if it is not complete, or they are the end.
fn row_length(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(count) = bytes.first_chunk::<2>().map(|count| i16::from_be_bytes(*count)) else { return Ok(None) };
    if count < 0 {
        return Ok(None);
    }
    let mut at = 2;
    for _ in 0..count {
        let Some(length) = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>()) else { return Ok(None) };
        let length = i32::from_be_bytes(*length);
        at += 4 + if length < 0 { 0 } else { usize::try_from(length).map_err(|_| unreadable())? };
    }
    Ok((at <= bytes.len()).then_some(at))
}

/// Builds the error for rows that the database copies in another format.
pub(crate) fn unreadable() -> StoreError {
    StoreError::Damaged("the database copies rows in another format".to_owned())
}
