//! Seeded random numbers, so that a failure can be reproduced.

use std::time::Duration;

/// The number of iterations of a randomized test: `RECADO_RUNS`, else this default.
pub fn runs(default: u64) -> u64 {
    variable("RECADO_RUNS", default)
}

/// The seed of a randomized test: `RECADO_SEED`, else this default.
pub fn seed(default: u64) -> u64 {
    variable("RECADO_SEED", default)
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// A generator (xorshift64*). The seed must not be 0.
pub struct TestRng(pub u64);

impl TestRng {
    /// An independent generator for iteration `number` of a test.
    pub fn of(seed: u64, number: u64) -> Self {
        let mixed = seed ^ 0x9E37_79B9_7F4A_7C15 ^ number.wrapping_mul(0xD134_2543_DE82_EF95);
        Self(mixed.max(1))
    }

    /// A random number below the bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % bound
    }

    /// A random duration of less than `microseconds`.
    pub fn duration_below(&mut self, microseconds: u64) -> Duration {
        Duration::from_micros(self.below(microseconds))
    }
}
