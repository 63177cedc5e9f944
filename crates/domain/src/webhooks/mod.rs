//! Webhooks: the endpoints at which an account is told what happens, and how that reaches them.
//!
//! Does not own what happens: events commit with the change that they tell of (`shared::Event`), and the store's relay
//! brings them here. Does not own what is received at inbound endpoints.

mod guard;
mod ports;

pub use ports::*;
