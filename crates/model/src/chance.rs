//! Where random numbers come from: the caller's door, never a global.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A cryptographic generator that many threads share.
#[derive(Debug)]
pub struct Chance(Mutex<StdRng>);

impl Chance {
    /// Seeded by the operating system.
    pub fn from_system() -> Self {
        Self(Mutex::new(rand::make_rng()))
    }

    /// Seeded by a number: the same numbers every time, for tests.
    pub fn from_seed(seed: u64) -> Self {
        Self(Mutex::new(seeded(seed)))
    }

    /// Lends the generator to `use_it`.
    pub fn with<T>(&self, use_it: impl FnOnce(&mut StdRng) -> T) -> T {
        use_it(&mut self.0.lock())
    }

    /// 256 random bits: the strength of every secret that Isobar makes (contract: Authentication).
    pub fn bits_256(&self) -> [u8; 32] {
        let mut bits = [0; 32];
        self.0.lock().fill_bytes(&mut bits);
        bits
    }
}

/// A generator with a known seed, for tests.
pub fn seeded(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}
