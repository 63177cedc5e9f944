//! WhatsApp: the connected numbers and the callbacks.
//!
//! Owns profiles (numbers with their access tokens), the gateway port, and the parsing of callbacks. Does not own the
//! effect of a status update on a campaign's send (`campaigns`), of a template update (`templates`) or of an inbound
//! event (`conversations`): it passes the changes on.

mod callback_payload;
mod callbacks;
mod files;
mod held;
mod inbound;
mod model;
mod observed;
mod ports;
mod pricing;
mod recent;
mod service;
pub mod verification;

pub use callback_payload::{
    CallbackChange, CallbackPayload, ReceivedInbound, ReceivedStatus, StatusUpdate, TemplateChange, TemplateUpdate,
    Unread,
};
pub use callbacks::{CallbackStores, Callbacks, MAX_CLAIMS, PROCESSING_LEASE};
pub use files::{MessageFileError, MessageFiles};
pub use held::{HELD_FOR, HeldMessages, HeldStores};
pub use model::*;
pub use observed::ObservedGateway;
pub use ports::*;
pub use service::Profiles;
