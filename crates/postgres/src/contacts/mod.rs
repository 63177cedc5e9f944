//! Contacts and tags.

mod filters;
mod store;
mod tags;
mod upsert;

pub(crate) use filters::{BoundFilters, conditions, stored_filters};
pub use store::PgContacts;
pub use tags::PgTags;
