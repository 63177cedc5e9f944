//! Random numbers that are the same in every run, so that a failure can be had again.

use std::time::Duration;

/// A generator (xorshift64*). The seed must not be 0.
pub struct Dice(pub u64);

impl Dice {
    /// Of one of many numbered things: their numbers are far apart.
    pub fn of(seed: u64, number: u64) -> Self {
        let mixed = seed ^ 0x9E37_79B9_7F4A_7C15 ^ number.wrapping_mul(0xD134_2543_DE82_EF95);
        Self(mixed.max(1))
    }

    /// A number below the bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }

    /// A time below so many microseconds.
    pub fn moment(&mut self, microseconds: u64) -> Duration {
        Duration::from_micros(self.below(microseconds))
    }
}
