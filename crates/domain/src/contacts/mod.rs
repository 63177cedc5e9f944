//! Contacts: the people to whom an account writes, their tags, and the import of contact files.
//!
//! This context owns contacts and tags. Segments, messages and conversations belong to other contexts.

mod change;
mod erased_opt_outs;
mod events;
mod import;
mod limits;
mod model;
mod phone;
mod ports;
mod referral;
mod service;
mod upsert;
mod user_ids;

pub(crate) use change::check_wa_user_id;
#[cfg(any(test, feature = "mocks"))]
pub use erased_opt_outs::MockIdentifierHasher;
pub use erased_opt_outs::{AddedIdentifiers, Identifier, IdentifierHasher, NewerConsent};
pub use events::ContactEvent;
pub(crate) use import::csv;
pub use import::{ContactKeys, ContactMatcher, Import, ImportFormat, ImportReport, LineError, MAX_ROWS};
pub use limits::{MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES, attribute_bytes};
pub use model::*;
pub use phone::Phone;
pub use ports::*;
pub use referral::Referral;
pub use service::{Contacts, Tags};
pub use user_ids::{ScopedUserId, UNKNOWN_SCOPE};
