//! Numbers that look random, the same for the same seed.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Chance(u64);

impl Chance {
    /// The numbers of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// A number below this one, which is not 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// True so many times in a hundred.
    pub const fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}
