//! API keys: how a program acts in an account without a session.
//!
//! Owns the key's form, its life and what it may do. Does not own the routes' rate limits or the session of people.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::ApiKeys;
