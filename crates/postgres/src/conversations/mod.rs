//! Conversations: their lists, replies and how these end, and what senders do.

mod inbox;
mod messages;
mod store;

pub use inbox::PgInbox;
pub(crate) use messages::{find as find_message, lock_messages, write_messages};
pub use store::PgConversations;
