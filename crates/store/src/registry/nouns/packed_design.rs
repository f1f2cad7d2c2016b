//! Packs the design of a version: its metadata and its planes together, compressed (DEFLATE), each as its original
//! text.
//!
//! Designs are JSON that repeats the same words: compression leaves a fifth to a tenth of their bytes.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use isobar_model::json::RawJson;

use crate::error::{Result, StoreError};

/// Bytes of the two lengths before the compressed data.
const LENGTHS: usize = 16;

/// Compressed design.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedDesign(Vec<u8>);

impl std::fmt::Debug for PackedDesign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PackedDesign({} bytes)", self.0.len())
    }
}

impl PackedDesign {
    /// Compresses a design. A large one takes long: never call it on a thread that serves calls.
    pub fn of(meta: &RawJson, planes: &RawJson) -> Self {
        let mut packed = Vec::with_capacity(LENGTHS + (meta.bytes().len() + planes.bytes().len()) / 4);
        for text in [meta, planes] {
            packed.extend_from_slice(&(text.bytes().len() as u64).to_le_bytes());
        }
        let mut encoder = DeflateEncoder::new(packed, Compression::default());
        let written = encoder.write_all(meta.bytes()).and_then(|()| encoder.write_all(planes.bytes()));
        // Writing to memory does not fail; if it did, the empty result would be reported as damage, never read as a
        // design.
        Self(written.and_then(|()| encoder.finish()).unwrap_or_default())
    }

    /// Wraps stored bytes.
    pub(crate) fn stored(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Reads the stored lengths of the metadata and of the planes, in bytes.
    fn lengths(&self) -> Result<[usize; 2]> {
        let length = |at: usize| {
            let bytes = self.0.get(at..at + LENGTHS / 2).and_then(|bytes| bytes.try_into().ok());
            bytes.and_then(|bytes| usize::try_from(u64::from_le_bytes(bytes)).ok())
        };
        length(0).zip(length(LENGTHS / 2)).map(|(meta, planes)| [meta, planes]).ok_or_else(|| damaged("is cut off"))
    }

    /// Returns the bytes of the unpacked design: the memory that unpacking takes.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn unpacked_bytes(&self) -> Result<usize> {
        let [meta, planes] = self.lengths()?;
        meta.checked_add(planes).ok_or_else(|| damaged("has impossible lengths"))
    }

    /// Unpacks the metadata and the planes. A large design takes milliseconds: never call it on a thread that serves
    /// calls.
    ///
    /// # Errors
    /// [`StoreError::Damaged`].
    pub fn unpack(&self) -> Result<(RawJson, RawJson)> {
        let ([meta, _], whole) = (self.lengths()?, self.unpacked_bytes()?);
        let compressed = self.0.get(LENGTHS..).unwrap_or_default();
        // Never read more than the stored lengths, whatever the data contains.
        let mut texts = Vec::new();
        let read = DeflateDecoder::new(compressed).take((whole as u64).saturating_add(1)).read_to_end(&mut texts);
        if read.is_err() || texts.len() != whole {
            return Err(damaged("cannot be unpacked"));
        }
        let texts = Bytes::from(texts);
        let [meta, planes] = [texts.slice(..meta), texts.slice(meta..)];
        if [&meta, &planes].iter().any(|text| std::str::from_utf8(text).is_err()) {
            return Err(damaged("is no text"));
        }
        Ok((RawJson::trusted(meta), RawJson::trusted(planes)))
    }
}

fn damaged(how: &str) -> StoreError {
    StoreError::Damaged(format!("column design: {how}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw(text: &str) -> RawJson {
        RawJson::check(Bytes::copy_from_slice(text.as_bytes())).unwrap()
    }

    #[test]
    fn a_design_comes_back_byte_for_byte_and_takes_less() {
        let element = r#"{"type":"storage","properties":{},"position":{"x":1.50,"y":2}}"#;
        let elements: Vec<_> = (0..1_000).map(|number| format!("\"ü{number}\":{element}")).collect();
        let planes = raw(&format!(r#"{{"cloud":{{"elements":{{{}}}}}}}"#, elements.join(",")));
        let meta = raw(r#"{"author" : "ana"}"#);
        let packed = PackedDesign::of(&meta, &planes);
        assert_eq!(packed.unpack().unwrap(), (meta.clone(), planes.clone()));
        assert_eq!(packed.unpacked_bytes().unwrap(), meta.bytes().len() + planes.bytes().len());
        assert!(packed.bytes().len() * 8 < planes.bytes().len(), "{packed:?}");
        assert_eq!(PackedDesign::stored(packed.bytes().to_vec()), packed);
    }

    #[test]
    fn a_design_that_says_it_is_longer_or_shorter_is_damaged() {
        let packed = PackedDesign::of(&raw("{}"), &raw(r#"{"cloud":{"elements":{}}}"#));
        for (at, value) in [(0, 1), (0, 3), (7, 255), (8, 24), (8, 26), (15, 255)] {
            let mut bytes = packed.bytes().to_vec();
            assert_ne!(bytes[at], value);
            bytes[at] = value;
            let unpacked = PackedDesign::stored(bytes).unpack();
            // The boundary between the two texts is known only from the lengths; their sum must match.
            assert!(matches!(unpacked, Err(StoreError::Damaged(_))), "{at} {value}: {unpacked:?}");
        }
    }

    proptest! {
        #[test]
        fn random_design_unpacks_to_its_stated_size_or_fails(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let packed = PackedDesign::stored(bytes);
            if let Ok((meta, planes)) = packed.unpack() {
                prop_assert_eq!(packed.unpacked_bytes().unwrap(), meta.bytes().len() + planes.bytes().len());
            }
        }
    }
}
