//! Contacts and tags.

mod consent;
mod limits;
mod store;
mod tags;
mod told;
mod upsert;

pub(crate) use consent::{learn_wa_ids, withdraw};
pub use store::PgContacts;
pub use tags::PgTags;
pub(crate) use told::telling;
