//! WhatsApp numbers, callbacks as received, their status updates, and WhatsApp's ids of uploaded files.

mod callbacks;
mod files;
mod held_messages;
mod profiles;
mod status_updates;
mod verification;

pub use callbacks::PgCallbacks;
pub use files::PgFileIds;
pub use held_messages::PgHeldMessages;
pub use profiles::PgProfiles;
pub(crate) use profiles::find as find_profile;
pub use status_updates::PgStatusUpdates;
pub use verification::{PgProfileStates, PgVerifications};
