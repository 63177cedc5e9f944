//! Message templates: their rules and WhatsApp's review.
//!
//! Owns the template, its rules and its status. Does not own WhatsApp's wire format (the gateways crate) or sending
//! (`campaigns`).

mod category;
mod components;
mod content;
mod events;
mod meta_review;
mod model;
mod placeholders;
mod ports;
mod remote;
mod rendered;
mod sendable;
mod service;
mod status;
mod submission_rules;
mod submit;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod validate;

pub use category::{
    CategoryUpdate, category_notifications, changed_notification, has_other_category, scheduled_category_change,
    with_category_update,
};
pub use content::TemplateContent;
pub use events::{category_changing_event, status_changed_event};
pub use meta_review::{apply_review, review_events};
pub use model::*;
pub(crate) use placeholders::is_placeholder_name;
pub use placeholders::{Placeholder, placeholders};
pub use ports::*;
pub use rendered::{Rendered, RenderedCard};
pub use service::Templates;
pub use status::{TemplateCommand, transition};

pub use submit::Submission;
pub use sync::{SyncReport, SyncedTemplate, TemplateKey};
