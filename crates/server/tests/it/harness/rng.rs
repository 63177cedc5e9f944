//! Random numbers that are the same in every run, so that a failure can be had again.

use std::time::Duration;

/// How often a test of many rounds tries, where it is told (`RECADO_RUNS`), else so often.
pub fn runs(otherwise: u64) -> u64 {
    variable("RECADO_RUNS", otherwise)
}

/// The seed of its rounds, where it is told (`RECADO_SEED`), else this one.
pub fn seed(otherwise: u64) -> u64 {
    variable("RECADO_SEED", otherwise)
}

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().unwrap())
}

/// A generator (xorshift64*). The seed must not be 0.
pub struct TestRng(pub u64);

impl TestRng {
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
