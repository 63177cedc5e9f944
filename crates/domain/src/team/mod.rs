//! Members of an account, their roles and their invites.
//!
//! Owns the rules of role changes and the states of an invite. `accounts` owns accounts and sessions, `mail` delivers
//! the invitation mail, and the route table defines which role a route requires.

mod accept;
mod invitation;
mod invites;
mod members;
mod model;
mod ports;
mod roles;
mod status;
#[cfg(test)]
mod tests;

pub use accept::{Accepted, Invitations};
pub use invites::Invites;
pub use members::Members;
pub use model::*;
pub use ports::*;
pub use roles::{MemberChange, MemberFacts, MemberRefusal, MemberStep, decide as decide_member};
pub use status::{AcceptDecision, AcceptFacts, InviteCommand, InviteStatus, decide_accept, transition};
