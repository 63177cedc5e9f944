//! Rate limits that every server shares, on Redis.
#![doc = include_str!("../README.md")]

mod alarm;
mod counter;
mod link;

pub use counter::RedisCounter;
