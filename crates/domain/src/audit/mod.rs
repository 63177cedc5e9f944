//! The audit log: who did what to which resource, from which address.
//!
//! Owns reading the log. Entries are outbox events (`shared::Event`) that commit with the change that they report. The
//! store's relay moves them here.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::AuditLogs;
