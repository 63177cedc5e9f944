//! Contacts and tags.

mod store;
mod tags;
mod upsert;

pub use store::PgContacts;
pub use tags::PgTags;
