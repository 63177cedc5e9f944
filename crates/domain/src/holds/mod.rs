//! Holds: when a message of an account waits because of the account's settings.
//!
//! A message of a held category waits in the quiet hours of its contact's zone, and while its contact has got as many
//! marketing messages as the account allows. It is checked in the transaction that starts it. Campaigns and direct messages
//! follow the same rules ([`HoldPolicy`]).
//!
//! Owns the rules. Does not own the settings, nor the messages.

mod contact_zone;
mod policy;
mod quiet_hours;

pub use contact_zone::{contact_zone, zone_of_phone};
pub use policy::{HoldCause, HoldDecision, HoldFacts, HoldPolicy, held_too_long};
pub use quiet_hours::quiet_until;
#[cfg(test)]
pub(crate) use quiet_hours::tests::shows_quiet;
