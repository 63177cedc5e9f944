//! Contacts and tags.

mod consent;
mod events;
mod import;
mod limits;
mod list;
mod rows;
mod search;
mod store;
mod tags;
mod upsert;
mod user_ids;

pub(crate) use consent::{opt_out, opt_out_now, pass_on_opt_out, set_wa_ids};
pub(crate) use events::{ChangedContact, append_if_subscribed, is_subscribed};
pub(crate) use rows::insert as insert_contact;
pub use search::{SearchIndexError, has_contact_search, prepare_contact_search};
pub use store::PgContacts;
pub(crate) use store::read_newest_first;
pub use tags::PgTags;
pub(crate) use user_ids::{IDS_BY_USER_ID, delete as delete_identity, move_to_portfolio, user_ids, write_user_ids};
