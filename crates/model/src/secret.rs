//! Secrets: shown once and stored as digests (contract: Authentication).

use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::chance::Chance;

/// A secret of 256 random bits: 64 hexadecimal digits.
pub struct Secret(String);

impl Secret {
    /// Makes a new secret.
    pub fn new(chance: &Chance) -> Self {
        Self(chance.bits_256().iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the text, to be shown once.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Returns the digest, to be stored.
    pub fn digest(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The SHA-256 digest of a secret, the only form that is stored.
#[derive(Clone, Copy, Eq)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Returns the digest of what a client sent.
    pub fn of(sent: &[u8]) -> Self {
        Self(Sha256::digest(sent).into())
    }
}

impl PartialEq for Digest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl std::hash::Hash for Digest {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // A digest is uniformly distributed: its first bytes suffice.
        state.write_u64(u64::from_le_bytes([
            self.0[0], self.0[1], self.0[2], self.0[3], self.0[4], self.0[5], self.0[6], self.0[7],
        ]));
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Digest(…)")
    }
}
