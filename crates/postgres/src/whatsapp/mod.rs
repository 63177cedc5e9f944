//! WhatsApp numbers, their verification, and WhatsApp's ids of uploaded files.

/// The scope of the user ids that number `p` reports: its portfolio, or its WhatsApp account until that is known.
pub(crate) const USER_ID_SCOPE: &str = "coalesce(p.number ->> 'portfolio_id', p.waba_id)";

mod files;
mod known_phones;
mod profiles;
mod verification;
mod verification_columns;

pub use files::PgFileIds;
pub use profiles::PgProfiles;
pub(crate) use profiles::find as find_profile;
pub use verification::{PgProfileStates, PgVerifications};
