//! Rate limits that every server shares, on Redis.
#![doc = include_str!("../README.md")]

mod breaker;
mod counter;

pub use counter::RedisCounter;
