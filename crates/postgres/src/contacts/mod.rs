//! Contacts and tags.

mod consent;
mod filters;
mod store;
mod tags;
mod upsert;

pub(crate) use consent::{learn_wa_ids, withdraw};
pub(crate) use filters::{BoundFilters, conditions, stored_filters};
pub use store::PgContacts;
pub use tags::PgTags;
