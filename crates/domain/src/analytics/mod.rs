//! Analytics: what the roll-ups say, as reports; exports; and how good a customer somebody is.
//!
//! Owns periods, zones and the shapes of the reports. What is counted belongs to whoever records it (`ingestion`,
//! `automations`, `links`), and is kept counted by them.

mod exports;
mod insights;
mod model;
mod period;
mod ports;
mod rfm;
mod service;
mod totals;

pub use exports::*;
pub use insights::*;
pub use model::*;
pub use period::{OffsetInterval, Period, RollupRange, Window, Zone};
pub use ports::*;
pub use rfm::*;
pub use service::{Analytics, ReportPeriod};
pub use totals::*;
