//! Rate limits in Redis that all servers share.
#![doc = include_str!("../README.md")]

mod connection;
mod hit;
mod log_throttle;
mod rate_limiter;

pub use rate_limiter::RedisRateLimiter;
