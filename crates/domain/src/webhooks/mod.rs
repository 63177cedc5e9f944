//! Webhooks: an account's endpoints, the delivery of webhook events to them, and calls at inbound endpoints.
//!
//! Transactional outbox: other contexts emit webhook events (`shared::Event`) in the transaction of their change, and
//! the store's relay moves them here. Inbound calls are applied by the contexts that own the data (`ingestion`,
//! `contacts`).

mod attempt;
mod deliverer;
mod endpoint;
mod endpoint_queues;
#[cfg(any(test, feature = "mocks"))]
pub mod in_memory;
mod inbound;
mod model;
mod ports;
mod retry_policy;
mod service;
mod signature;
#[cfg(test)]
mod tests;
mod verification;

pub use attempt::*;
pub use deliverer::Deliverer;
pub use inbound::{InboundCall, InboundCallError, InboundEndpoint, InboundWebhooks};
pub use model::*;
pub use ports::*;
pub use retry_policy::{DeliveryDecision, Health, HealthChange, Schedule, decide, health};
pub use service::{Sweeper, Webhooks};
pub use signature::{SecretBytes, sign};
pub use verification::{Unverified, check_headers, verify};
