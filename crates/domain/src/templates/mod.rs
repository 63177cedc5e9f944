//! Message templates: their rules and WhatsApp's review.
//!
//! Owns the template, its rules and its status. Does not own WhatsApp's wire format (the gateways crate) or sending
//! (`campaigns`).

mod category;
mod components;
mod content;
mod events;
mod findings;
mod meta_review;
mod model;
mod outbound;
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
mod warnings;

pub use category::{
    CategoryUpdate, category_notifications, changed_notification, has_other_category, scheduled_category_change,
    with_category_update,
};
pub use content::TemplateContent;
pub use events::{category_changing_event, status_changed_event};
pub use findings::{Finding, FindingCode};
pub use meta_review::{Review, apply_review, review_events};
pub use model::*;
#[cfg(test)]
pub(crate) use outbound::tests as outbound_tests;
pub use outbound::{MessageValues, OFFER_ENDED};
pub(crate) use placeholders::is_placeholder_name;
pub use placeholders::{Placeholder, numbered_from_one, placeholders};
pub use ports::*;
pub use rendered::{Rendered, RenderedCard, RenderedOffer};
pub use service::Templates;
pub use status::{TemplateCommand, transition};

pub use submit::{Submission, TemplateCheck};
pub use sync::{SyncReport, SyncedTemplate, TemplateKey};
