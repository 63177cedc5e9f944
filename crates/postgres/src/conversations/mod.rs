//! Conversations: lists, replies with their status updates, and inbound events.

mod contact_requests;
mod erased_senders;
mod files;
mod inbox;
mod inbox_contacts;
mod messages;
mod opt_out_replies;
mod received;
mod store;

pub use inbox::PgInbox;
pub(crate) use messages::{
    find as find_message, lock_messages, replies_written_since, reply_written_since, write_messages,
};
pub use store::PgConversations;
