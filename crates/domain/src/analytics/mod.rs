//! Analytics: what the roll-ups say, as reports.
//!
//! Owns periods, zones and the shapes of the reports. What is counted belongs to whoever records it (`ingestion`,
//! `automations`, `links`), and is kept counted by them.

mod model;
mod period;
mod ports;
mod service;

pub use model::*;
pub use period::{Period, Window, Zone};
pub use ports::*;
pub use service::{Analytics, Span};
