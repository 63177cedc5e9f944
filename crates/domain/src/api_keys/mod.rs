//! API keys: programs act in an account without a session.
//!
//! Owns the format, creation, authentication and deletion of keys. The route table owns rate limits, and `accounts`
//! owns sessions of users.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::ApiKeys;
