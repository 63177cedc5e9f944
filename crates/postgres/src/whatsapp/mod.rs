//! Connected numbers, callbacks as received, the status updates in them, and the platform's ids of files.

mod callbacks;
mod files;
mod profiles;
mod status_updates;

pub use callbacks::PgCallbacks;
pub use files::PgFileIds;
pub use profiles::PgProfiles;
pub(crate) use profiles::find as find_profile;
pub use status_updates::PgStatusUpdates;
