//! Subscriptions and their payments, the gateway's events, and what is due by itself.

mod entitlement;
mod events;
mod rows;
mod store;
mod work;

pub(crate) use entitlement::entitlement;

pub use events::PgGatewayEvents;
pub use store::PgSubscriptions;
pub use work::PgBillingWork;
