//! Accounts, their users, and the tenant context of a session.
//!
//! Owns accounts, users and memberships. `team` owns invites, `billing` owns plans, and the gateways crate verifies the
//! identity provider's tokens.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::{AccountHint, Accounts};
