//! Encrypts the positions of streams as identifiers by which a client resumes that has received no event yet. A position
//! has numbers that concern the whole platform, such as an event of another tenant: no client can read or make one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use isobar_model::chance::Chance;
use isobar_model::error::{Error, Result};
use isobar_model::time::Timestamp;
use isobar_store::telemetry::{PositionOrder, StreamPosition};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use sha2::Sha256;

/// Distinguishes the derived key from other uses of the platform's key.
const RESUME_KEY_PURPOSE: &[u8] = b"resume stream ";
/// Bytes of a place that is not encrypted.
const PLACE_BYTES: usize = 1 + 8 + 8 + 16 + 8;
/// Longest identifier, in characters.
const RESUME_ID_CHARACTERS_MAX: usize = 128;

/// Place of a stream: all events up to its position were sent or skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamPlace {
    /// Time at which a live stream was there, or that of the event after which it resumed.
    pub at: Timestamp,
    /// The order that the position belongs to.
    pub order: PositionOrder,
    pub position: StreamPosition,
}

/// Makes and reads identifiers of places.
pub(crate) struct ResumeIds(LessSafeKey);

impl ResumeIds {
    pub(super) fn new(signing_key: &[u8]) -> Result<Self> {
        let mac = Hmac::<Sha256>::new_from_slice(signing_key).map_err(Error::internal)?;
        let key = mac.chain_update(RESUME_KEY_PURPOSE).finalize().into_bytes();
        let key = UnboundKey::new(&AES_256_GCM, &key).map_err(Error::internal)?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Returns an identifier of a place.
    pub fn seal(&self, place: StreamPlace, chance: &Chance) -> Result<String> {
        let StreamPlace { at, order, position } = place;
        let mut bytes = Vec::with_capacity(PLACE_BYTES + AES_256_GCM.tag_len());
        bytes.push(order as u8);
        bytes.extend_from_slice(&at.millis().to_be_bytes());
        bytes.extend_from_slice(&position.mark.to_be_bytes());
        bytes.extend_from_slice(position.newest.bytes());
        bytes.extend_from_slice(&position.late.to_be_bytes());
        let mut nonce = [0; NONCE_LEN];
        nonce.copy_from_slice(&chance.bits_256()[..NONCE_LEN]);
        let sealed = self.0.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes);
        sealed.map_err(Error::internal)?;
        Ok(URL_SAFE_NO_PAD.encode([&nonce[..], &bytes].concat()))
    }

    /// Returns the place of an identifier; `None` if this platform has not made it.
    pub fn open(&self, id: &str) -> Option<StreamPlace> {
        if id.len() > RESUME_ID_CHARACTERS_MAX {
            return None;
        }
        let mut sealed = URL_SAFE_NO_PAD.decode(id).ok()?;
        let (nonce, bytes) = sealed.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let bytes = &*self.0.open_in_place(nonce, Aad::empty(), bytes).ok()?;
        let (order, bytes) = bytes.split_first()?;
        let (at, bytes) = bytes.split_first_chunk()?;
        let (mark, bytes) = bytes.split_first_chunk()?;
        let (newest, bytes) = bytes.split_first_chunk()?;
        let (late, _) = bytes.split_first_chunk()?;
        Some(StreamPlace {
            at: Timestamp::from_millis(i64::from_be_bytes(*at)),
            order: PositionOrder::try_from(*order).ok()?,
            position: StreamPosition {
                mark: u64::from_be_bytes(*mark),
                newest: isobar_model::ids::EventId::from_bytes(*newest),
                late: u64::from_be_bytes(*late),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use isobar_model::ids::EventId;

    use super::*;

    #[test]
    fn resume_id_is_read_by_its_platform_alone() {
        let (ids, chance) = (ResumeIds::new(&[7; 32]).unwrap(), Chance::from_seed(5));
        let position = StreamPosition { mark: 3, newest: EventId::from_bytes([9; 16]), late: u64::MAX };
        let place =
            StreamPlace { at: Timestamp::from_millis(1_800_000_000_000), order: PositionOrder::Spread, position };
        let id = ids.seal(place, &chance).unwrap();
        assert!(id.len() <= RESUME_ID_CHARACTERS_MAX, "{id}");
        assert_eq!(ids.open(&id), Some(place));
        assert_ne!(ids.seal(place, &chance).unwrap(), id, "none tells whether two places are the same");
        assert_eq!(ResumeIds::new(&[8; 32]).unwrap().open(&id), None);
        for at in 0..id.len() {
            let mut forged = id.clone().into_bytes();
            forged[at] = if forged[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(ids.open(std::str::from_utf8(&forged).unwrap()), None, "changed at {at}");
        }
        for cut in ["", "A", &id[..16], &id[..40], &format!("{id}AAAA"), &"A".repeat(1 << 20)] {
            assert_eq!(ids.open(cut), None);
        }
    }
}
