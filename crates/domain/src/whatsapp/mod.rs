//! WhatsApp: the connected numbers, and what the platform calls back about.
//!
//! Owns profiles (numbers with their tokens), the gateway port, and the reading of callbacks. Does not own what a
//! status means for a campaign's send (`campaigns`) or a template (`templates`), nor what a sender's message changes
//! (`conversations`): it only delivers the news.

mod callback_payload;
mod callbacks;
mod files;
mod inbound;
mod model;
mod ports;
mod pricing;
mod service;

pub use callback_payload::{
    CallbackChange, CallbackPayload, ReceivedInbound, ReceivedStatus, StatusUpdate, TemplateChange, TemplateUpdate,
    Unread,
};
pub use callbacks::{CallbackStores, Callbacks, MAX_CLAIMS, PROCESSING_LEASE};
pub use files::{MessageFileError, MessageFiles};
pub use model::*;
pub use ports::*;
pub use service::Profiles;
