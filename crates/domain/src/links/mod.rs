//! Links: short addresses that lead elsewhere and count who follows them.
//!
//! Owns links and their clicks. What orders a link brought is `ingestion`'s.

mod clicks;
mod model;
mod ports;
mod service;

pub use clicks::{ClickBatch, ClickKey, PendingClicks};
pub use model::*;
pub use ports::*;
pub use service::Links;
