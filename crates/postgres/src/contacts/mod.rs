//! Contacts and tags.

mod consent;
mod events;
mod limits;
mod store;
mod tags;
mod upsert;

pub(crate) use consent::{opt_out, set_wa_ids};
pub(crate) use events::with_contact_events;
pub use store::PgContacts;
pub use tags::PgTags;
