//! Conversations: what an account and one contact write to each other outside of campaigns.
//!
//! Owns conversations, their messages, the service window, and the effect of inbound events on a contact. Does not own
//! contacts (`contacts` edits them) or campaign sends, which stay in `campaigns` and are no messages here.

mod consent;
mod contact_request;
mod errors;
mod events;
mod identity;
mod inbox;
mod model;
mod opt_out;
mod outgoing;
mod ports;
mod reply;
mod same_person;
mod service;
mod status;

pub use consent::Consent;
pub use errors::ConversationError;
pub use events::{ReceivedMessage, received_event};
pub use identity::{ContactIdentity, Sender};
pub use inbox::{
    ConversationState, InboundItem, Inbox, InboxChanges, InboxKeys, MessageChange, NewMessage, ReceivingNumber,
};
pub use model::*;
pub use opt_out::{OptOutAnswer, OptOutReply, OptOutRules, OptOutWord, comparable_word};
pub use outgoing::ReplyInput;
pub use ports::*;
pub use reply::{
    ANSWERED_WITHIN, QuotedMessage, REQUEST_INTERVAL, ReplyFacts, ReplyRefusal, ReplyResult, prepare, sender, to_result,
};
pub use same_person::{LinkedContact, linked};
pub use service::Conversations;
pub use status::{ConversationEvent, ConversationStatus, Direction, MessageStatus, transition};
