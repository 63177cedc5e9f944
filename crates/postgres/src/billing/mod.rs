//! Subscriptions and their payments, the gateway's events, and what is due by itself.

mod events;
mod rows;
mod store;
mod work;

pub use events::PgGatewayEvents;
pub use store::PgSubscriptions;
pub use work::PgBillingWork;
