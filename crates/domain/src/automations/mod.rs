//! Automations: what an account does by itself for its contacts, and the record of every time it did.
//!
//! Owns automations and their executions. They are carried out elsewhere, and told here.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::Automations;
