//! Links: short URLs that redirect and count their clicks.
//!
//! Owns links and their clicks. The orders that are credited to a link belong to `ingestion`.

mod clicks;
mod model;
mod ports;
mod service;

pub use clicks::{ClickBatch, ClickKey, PendingClicks};
pub use model::*;
pub use ports::*;
pub use service::Links;
