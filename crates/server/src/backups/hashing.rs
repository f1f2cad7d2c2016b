//! Digests of streams.

use std::fmt::Write as _;
use std::io::{self, Read, Write};

use sha2::{Digest as _, Sha256};

/// A reader or writer that counts and hashes its bytes.
pub struct Hashing<T> {
    inner: T,
    digest: Sha256,
    bytes: u64,
}

impl<T> Hashing<T> {
    /// Wraps a reader or writer.
    pub fn new(inner: T) -> Self {
        Self { inner, digest: Sha256::new(), bytes: 0 }
    }

    /// Returns the wrapped stream, the digest and the number of bytes.
    pub fn end(self) -> (T, String, u64) {
        (self.inner, hex(&self.digest.finalize()), self.bytes)
    }

    fn note(&mut self, piece: &[u8]) {
        self.digest.update(piece);
        self.bytes += piece.len() as u64;
    }
}

impl<T: Write> Write for Hashing<T> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(piece)?;
        self.note(&piece[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Hashing<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.note(&buffer[..count]);
        Ok(count)
    }
}

/// Returns bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
