//! Webhooks: the endpoints at which an account is told what happens, and how that reaches them.
//!
//! Does not own what happens: events commit with the change that they tell of (`shared::Event`), and the store's relay
//! brings them here. Does not own what is received at inbound endpoints.

mod deliverer;
mod endpoint;
mod fate;
mod guard;
mod lines;
mod model;
mod ports;
mod service;
#[cfg(test)]
mod service_tests;
mod signature;
#[cfg(test)]
mod tests;
mod url;

pub use deliverer::Deliverer;
pub use fate::{Fate, Health, HealthChange, Schedule, fate, health};
pub use model::*;
pub use ports::*;
pub use service::{Sweeper, Webhooks};
pub use signature::{SecretBytes, sign};
