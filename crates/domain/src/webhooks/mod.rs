//! Webhooks: what accounts are told of, at addresses of their own.

mod ports;

pub use ports::*;
