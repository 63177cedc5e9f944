//! The audit log: who did what to which thing, from where.
//!
//! Owns reading it. Does not own writing it: an entry is an event of the change that it reports, and commits with it
//! (`shared::Event`); the store's relay carries it here.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::AuditLogs;
