//! Connected numbers, callbacks as received, and the delivery news in them.

mod callbacks;
mod deliveries;
mod profiles;

pub use callbacks::PgCallbacks;
pub use deliveries::PgDeliveries;
pub use profiles::PgProfiles;
pub(crate) use profiles::one as one_profile;
