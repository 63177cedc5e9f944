//! Message templates: what may be said to a contact first, and the platform's verdict on it.
//!
//! Owns the template, its rules and its status. Does not own the wire form (the gateways crate) or the sending
//! (`campaigns`).

mod category;
mod content;
mod model;
mod parts;
mod placeholders;
mod ports;
mod remote;
mod rendered;
mod review;
mod sendable;
mod service;
mod status;
mod submit;
#[cfg(test)]
mod submit_tests;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod validate;
#[cfg(test)]
mod validate_tests;
mod verdict;

pub use category::{
    CategoryNews, announced, category_notifications, changed_notification, has_other_category, with_category_news,
};
pub use content::TemplateContent;
pub use model::*;
pub use parts::{ButtonKind, ButtonValue};
pub(crate) use placeholders::is_placeholder_name;
pub use placeholders::{Placeholder, TextParameter, placeholders};
pub use ports::*;
pub use rendered::{Rendered, RenderedCard};
pub use service::Templates;
pub use status::{MetaStatus, TemplateCommand, platform_verdict, transition};
pub use submit::{HeaderSubmission, Submission, TemplateSubmission};
pub use sync::{SyncReport, SyncedTemplate, TemplateKey};
pub use verdict::{verdict_events, with_verdict};
