//! Webhooks: the endpoints at which an account is told what happens, and how that reaches them.
//!
//! Does not own what happens: events commit with the change that they tell of (`shared::Event`), and the store's relay
//! brings them here. What is received at inbound endpoints is carried out by the contexts that own it.

mod deliverer;
mod endpoint;
mod endpoint_queues;
mod inbound;
#[cfg(test)]
mod inbound_tests;
mod model;
mod ports;
mod retry_policy;
mod service;
#[cfg(test)]
mod service_tests;
mod signature;
#[cfg(test)]
mod tests;
mod verification;

pub use deliverer::Deliverer;
pub use inbound::{InboundCall, InboundCallError, InboundEndpoint, InboundLogEntry, InboundWebhooks};
pub use model::*;
pub use ports::*;
pub use retry_policy::{DeliveryDecision, Health, HealthChange, Schedule, decide, health};
pub use service::{Sweeper, Webhooks};
pub use signature::{SecretBytes, sign};
pub use verification::{Unverified, check_headers, verify};
