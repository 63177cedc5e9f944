//! Subscriptions and their payments, gateway events, and scheduled billing work.

mod entitlement;
mod events;
mod rows;
mod store;
mod update;
mod work;

use recado_domain::billing::ChangeOutcome;
use recado_domain::shared::StoreError;

pub(crate) use entitlement::entitlement;
pub(crate) use events::wake_events;
pub(crate) use store::write;

pub use events::PgGatewayEvents;
pub use store::PgSubscriptions;
pub use work::PgBillingWork;

/// Another subscription of the account became live meanwhile.
pub(crate) fn duplicate_to_stale(written: Result<ChangeOutcome, StoreError>) -> Result<ChangeOutcome, StoreError> {
    match written {
        Err(StoreError::Duplicate { .. }) => Ok(ChangeOutcome::Stale),
        written => written,
    }
}
