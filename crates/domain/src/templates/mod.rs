//! Message templates: what may be said to a contact first, and the platform's verdict on it.
//!
//! Owns the template, its rules and its status. Does not own the wire form (the gateways crate) or the sending
//! (`campaigns`).

mod model;
mod parts;
mod placeholders;
mod ports;
mod rendered;
mod review;
mod service;
mod status;
mod submit;
#[cfg(test)]
mod submit_tests;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod validate;
mod verdict;

pub use model::*;
pub(crate) use parts::values_of;
pub use parts::{ButtonKind, ButtonValue};
pub use placeholders::placeholders;
pub use ports::*;
pub use rendered::{Rendered, RenderedCard};
pub use service::Templates;
pub use status::{MetaStatus, TemplateCommand, platform_verdict, transition};
pub use submit::{HeaderSubmission, Submission, TemplateSubmission};
pub use sync::{SyncReport, SyncedTemplate, TemplateKey};
pub use verdict::{verdict_events, with_verdict};
