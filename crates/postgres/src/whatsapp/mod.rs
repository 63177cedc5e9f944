//! Connected numbers, callbacks as received, the delivery news in them, and the platform's ids of files.

mod callbacks;
mod deliveries;
mod files;
mod profiles;

pub use callbacks::PgCallbacks;
pub use deliveries::PgDeliveries;
pub use files::PgFileIds;
pub use profiles::PgProfiles;
pub(crate) use profiles::one as one_profile;
