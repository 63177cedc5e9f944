//! Analytics: reports from the rollups, exports and the RFM segments of contacts.
//!
//! This context owns periods, time zones and the reports. The rollups belong to the contexts that record the source
//! rows (`ingestion`, `automations`, `links`).

mod cost_report;
mod exports;
mod insights;
mod model;
mod period;
mod ports;
mod rfm;
mod service;
mod totals;

pub use crate::shared::Zone;
#[cfg(any(test, feature = "mocks"))]
pub use cost_report::MockCostStore;
pub use cost_report::{
    CostGroup, CostGroupBy, CostQuery, CostReport, CostReportRows, CostRow, CostStore, CostTotal, Costs,
    MonthlyServiceMessages,
};
pub use exports::*;
pub use insights::*;
pub use model::*;
pub use period::{OffsetInterval, Period, RollupRange, Window};
pub use ports::*;
pub use rfm::*;
pub use service::{Analytics, ReportPeriod};
pub use totals::*;
