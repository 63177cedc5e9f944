//! Analytics: reports from the rollups, exports and the RFM segments of contacts.
//!
//! This context owns periods, time zones and the reports. The rollups belong to the contexts that record the source
//! rows (`ingestion`, `automations`, `links`).

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
