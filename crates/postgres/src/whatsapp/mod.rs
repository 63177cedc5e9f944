//! WhatsApp numbers, their verification, and WhatsApp's ids of uploaded files.

mod files;
mod profiles;
mod verification;
mod verification_columns;

pub use files::PgFileIds;
pub use profiles::PgProfiles;
pub(crate) use profiles::find as find_profile;
pub use verification::{PgProfileStates, PgVerifications};
