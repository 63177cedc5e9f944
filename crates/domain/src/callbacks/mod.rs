//! Callbacks of WhatsApp: how they are stored and applied.
//!
//! Owns the queue of callbacks, the changes that they report, and the events that are held for numbers without
//! verification. Does not own the effect of a status update on a campaign's send (`campaigns`), of a template update
//! (`templates`), of an inbound event (`conversations`) or of a change of a number (`whatsapp`): it passes the changes
//! on. It uses those contexts, and none of them uses it.

mod held;
#[cfg(any(test, feature = "mocks"))]
mod in_memory;
mod payload;
mod ports;
mod service;

pub use held::{HELD_FOR, HeldMessages, HeldStores};
pub use payload::{
    CallbackChange, CallbackPayload, NamedRecipient, ReceivedInbound, ReceivedStatus, StatusUpdate, TemplateChange,
    TemplateUpdate, Unread, Unreadable,
};
pub use ports::*;
pub use service::{CallbackStores, Callbacks, MAX_CLAIMS, PROCESSING_LEASE};
