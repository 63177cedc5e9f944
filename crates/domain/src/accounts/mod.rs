//! Accounts, their users, and the tenant context of a session.
//!
//! Owns accounts, users and memberships, who is a platform administrator, and when a user's sessions ended. `team` owns invites, `billing` owns plans, and the gateways crate verifies the
//! identity provider's tokens.

mod administrators;
mod model;
mod ports;
mod service;
mod sessions;

pub use administrators::Administrators;
pub use model::*;
pub use ports::*;
pub use service::{ACCOUNTS_PER_USER, AccountHint, Accounts};
pub use sessions::Sessions;
