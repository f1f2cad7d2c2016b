//! Pseudo-random numbers, reproducible by their seed.

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// Makes a generator with a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// Returns true in `percent` of 100 cases.
    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
