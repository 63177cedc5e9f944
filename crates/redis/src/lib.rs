//! Rate limits that every server shares, on Redis.
#![doc = include_str!("../README.md")]

mod alarm;
mod counter;
mod link;
#[cfg(feature = "testing")]
pub mod testing;

pub use counter::RedisCounter;
