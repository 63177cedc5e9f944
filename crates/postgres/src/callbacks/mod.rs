//! WhatsApp's callbacks: stored as received, the status updates and inbound events that they contain.

mod held_messages;
mod status_updates;
mod store;

pub use held_messages::PgHeldMessages;
pub use status_updates::PgStatusUpdates;
pub use store::PgCallbacks;
