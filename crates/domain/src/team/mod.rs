//! The people in an account: who they are, what they may do, and how somebody new is invited.
//!
//! Owns the rules of roles and the life of an invite. Does not own accounts and sessions (`accounts`), the road of the
//! invitation's mail (`mail`), or which route takes which role (the route table).

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
