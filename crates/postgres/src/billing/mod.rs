//! Subscriptions and their payments, the gateway's events, and what is due by itself.

mod events;
mod rows;
mod standing;
mod store;
mod work;

pub(crate) use standing::standing;

pub use events::PgGatewayEvents;
pub use store::PgSubscriptions;
pub use work::PgBillingWork;
