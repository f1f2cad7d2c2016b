//! Random numbers, passed in by the caller and never global.

use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A cryptographic generator shared by threads.
#[derive(Debug)]
pub struct Chance(Mutex<StdRng>);

impl Chance {
    /// Makes a generator seeded by the operating system.
    pub fn from_system() -> Self {
        Self(Mutex::new(rand::make_rng()))
    }

    /// Makes a generator seeded by a number, for reproducible tests.
    pub fn from_seed(seed: u64) -> Self {
        Self(Mutex::new(seeded(seed)))
    }

    /// Runs `use_it` with the locked generator.
    pub fn with<T>(&self, use_it: impl FnOnce(&mut StdRng) -> T) -> T {
        use_it(&mut self.0.lock())
    }

    /// Returns 256 random bits: the strength of every secret that Isobar makes (contract: Authentication).
    pub fn bits_256(&self) -> [u8; 32] {
        let mut bits = [0; 32];
        self.0.lock().fill_bytes(&mut bits);
        bits
    }
}

/// Makes a generator with a known seed, for tests.
pub fn seeded(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}
