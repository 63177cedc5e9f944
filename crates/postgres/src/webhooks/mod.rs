//! Webhooks: the endpoints, logs and feed of one account, and the deliveries of all.

mod feed;
mod inbound;
mod queue;
mod store;

pub use inbound::PgInbound;
pub use queue::PgDeliveryQueue;
pub use store::PgWebhooks;
