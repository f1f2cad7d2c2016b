//! Memory of the parts of a compiled design, by which the cache of plans is limited.
//!
//! An upper estimate, which a test compares with the bytes allocated (`tests/held_bytes.rs`).

use std::sync::Arc;

use isobar_model::json::{Json, RawJson};

/// Overhead of an allocated block in bytes: small ones are rounded up.
pub(crate) const BLOCK_BYTES: usize = 16;
/// Bytes of a text's initial buffer and its shared header.
const RAW_BYTES: usize = 64 + 2 * BLOCK_BYTES;

/// A value that owns heap memory.
pub(crate) trait HeldBytes {
    /// Returns about how many bytes its blocks take, without the value itself.
    fn held_bytes(&self) -> usize;
}

/// Returns the size of a block of `bytes` bytes, with its overhead.
pub(crate) fn block(bytes: usize) -> usize {
    if bytes == 0 { 0 } else { bytes + BLOCK_BYTES }
}

impl<T: HeldBytes> HeldBytes for [T] {
    fn held_bytes(&self) -> usize {
        self.iter().map(T::held_bytes).sum()
    }
}

impl<T: HeldBytes> HeldBytes for Vec<T> {
    fn held_bytes(&self) -> usize {
        block(self.capacity() * size_of::<T>()) + self.as_slice().held_bytes()
    }
}

impl<T: HeldBytes> HeldBytes for Option<T> {
    fn held_bytes(&self) -> usize {
        self.as_ref().map_or(0, T::held_bytes)
    }
}

impl<T: HeldBytes> HeldBytes for Box<T> {
    fn held_bytes(&self) -> usize {
        block(size_of::<T>()) + (**self).held_bytes()
    }
}

impl<T: HeldBytes, U: HeldBytes> HeldBytes for (T, U) {
    fn held_bytes(&self) -> usize {
        self.0.held_bytes() + self.1.held_bytes()
    }
}

impl HeldBytes for Box<str> {
    fn held_bytes(&self) -> usize {
        block(self.len())
    }
}

impl HeldBytes for String {
    fn held_bytes(&self) -> usize {
        block(self.capacity())
    }
}

/// A shared text is counted for its first owner only.
impl HeldBytes for Arc<str> {
    fn held_bytes(&self) -> usize {
        block(self.len() + 2 * size_of::<usize>())
    }
}

impl HeldBytes for RawJson {
    fn held_bytes(&self) -> usize {
        // It was written into a buffer that doubles when it grows.
        2 * self.bytes().len() + RAW_BYTES
    }
}

impl HeldBytes for Json<'_> {
    fn held_bytes(&self) -> usize {
        match self {
            Json::Null | Json::Bool(_) => 0,
            Json::Number(number) => block(number.text().len()),
            Json::Text(text) => block(text.len()),
            Json::Array(items) => items.held_bytes(),
            Json::Object(members) => {
                let members_bytes = members.iter().map(|(name, value)| block(name.len()) + value.held_bytes());
                block(members.capacity() * size_of::<(&str, Json<'_>)>()) + members_bytes.sum::<usize>()
            }
        }
    }
}
