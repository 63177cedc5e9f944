//! Accounts, the people in them, and the way from a session to an account context.
//!
//! Owns accounts, users and memberships. Does not own invites (`team`), plans (`billing`) or the token format of the
//! identity provider (the gateways crate).

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::{AccountHint, Accounts};
