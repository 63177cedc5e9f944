//! Automations: workflows in an account's own systems, and the executions that these systems report.
//!
//! Owns automations and their executions. Automations run elsewhere.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::Automations;
