//! Direct messages: one message to one person by one call, sent at most once.
//!
//! A message is stored before WhatsApp is called, and waits in the queue of its number. One worker at a time has leased
//! a queue ([`Messenger`]). It starts the due messages (committed), calls WhatsApp and records the results. A message
//! whose outcome is unknown is never sent again: a status update or a time limit resolves it. The rules of campaigns
//! apply: [`to_result`](crate::campaigns::to_result) for outcomes,
//! [`SendRateLimiter`](crate::campaigns::SendRateLimiter) for the send rate of a number.
//!
//! `client_reference` makes a message unique in its account: the same request again returns the first message.
//!
//! Owns direct messages and their queues. Does not own contacts, templates, numbers or the conversations that show the
//! messages.

mod contact;
mod creation;
mod departure;
mod events;
mod files;
#[cfg(any(test, feature = "mocks"))]
pub mod in_memory;
mod messenger;
mod model;
mod ports;
mod refusals;
mod removed;
mod request;
mod results;
mod service;
mod status;

pub use contact::{ContactFacts, NewContact, NumberChoice};
pub use creation::{AutomaticText, CreationFacts, CreationPlan, Decision, ItemError, NewDirectMessage, decide};
pub(crate) use creation::{accept, month_of, requested_template};
pub use departure::{Departure, DepartureFacts, LeavingContent, LeavingMessage, departure};
pub use events::cancelled_event;
pub(crate) use files::{TemplateFileError, TemplateFiles};
pub use messenger::{Messenger, QueueEnd};
pub use model::*;
pub use ports::*;
pub use refusals::{CONTACT_DELETED, EXPIRED, NUMBER_REMOVED, Refusal};
pub use removed::{RemovedMessage, request_hash};
pub use request::{
    MessageHeaderInput, MessageInput, MessageRequest, MessageTemplateInput, RecipientInput, Requested,
    RequestedContent, RequestedTemplate, RequestedValues,
};
pub use results::{Advance, MessageState};
pub use service::{Batch, BatchItem, Created, DirectMessageError, DirectMessages, Outcome};
pub use status::{DirectStatus, HoldReason, Phase};

#[cfg(test)]
pub(crate) mod tests;
