//! Direct messages and the queues of their numbers.
//!
//! Every transaction takes locks in one order: queue, messages by id, contacts, conversations, counters, the month's
//! usage.

mod changes;
mod creation;
mod departures;
mod facts;
mod hand_over;
mod queues;
mod references;
mod rows;
mod store;

pub(crate) use changes::{
    fail_unsent, find as find_direct_message, lock as lock_direct_messages, write as write_direct_messages,
};
pub(crate) use creation::{insert_messages, wake_queue};
pub use queues::PgDirectMessageQueues;
pub(crate) use references::{ENDED_MESSAGE, EndedMessage, store_references};
pub use store::PgDirectMessages;

/// `profile_id` of simulated messages, which have no WhatsApp number.
const SIMULATED: uuid::Uuid = uuid::Uuid::nil();

/// The stored number of a message.
fn stored_profile(profile: Option<recado_domain::shared::ProfileId>) -> uuid::Uuid {
    profile.map_or(SIMULATED, uuid::Uuid::from)
}

/// The number of a stored message.
fn read_profile(profile: uuid::Uuid) -> Option<recado_domain::shared::ProfileId> {
    (profile != SIMULATED).then_some(profile.into())
}
