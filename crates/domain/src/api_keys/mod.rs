//! API keys: programs act in an account without a session.
//!
//! Owns the format, creation, authentication, limits (scopes, networks, expiry), rotation and deletion of keys, and the
//! notifications about their end. The route table owns rate limits and the scope of each route, and `accounts` owns
//! sessions of users.

mod input;
mod model;
mod networks;
mod notices;
mod ports;
mod service;

pub use input::ApiKeyInput;
pub use model::*;
pub use networks::parse_network;
pub use notices::KeyNotices;
pub use ports::*;
pub use service::ApiKeys;
