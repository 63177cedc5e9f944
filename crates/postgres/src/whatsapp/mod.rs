//! WhatsApp numbers, callbacks as received, their status updates, and WhatsApp's ids of uploaded files.

mod callbacks;
mod files;
mod profiles;
mod status_updates;

pub use callbacks::PgCallbacks;
pub use files::PgFileIds;
pub use profiles::PgProfiles;
pub(crate) use profiles::find as find_profile;
pub use status_updates::PgStatusUpdates;
