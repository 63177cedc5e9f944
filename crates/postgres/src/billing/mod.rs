//! Subscriptions and their payments, gateway events, and scheduled billing work.

mod entitlement;
mod events;
mod rows;
mod store;
mod work;

pub(crate) use entitlement::entitlement;

pub use events::PgGatewayEvents;
pub use store::PgSubscriptions;
pub use work::PgBillingWork;
