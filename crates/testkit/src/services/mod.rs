//! PostgreSQL, Redis and other programs: found or installed, and run privately on reserved ports of 127.0.0.1.
//!
//! Every service is stopped when its value is dropped.

pub mod find;
mod install;
pub mod own_redis;
pub mod owner;
pub mod pgbouncer;
mod port;
pub mod postgres;
pub mod redis;
pub mod versions;

pub use find::{postgres as find_postgres, wrk_or_install};
pub use port::ReservedPort;
