//! Insights: the dashboard, message and campaign reports, and the heat map of received messages.

mod model;
mod ports;
mod rollup_delta;
mod service;

pub use model::*;
pub use ports::*;
pub use rollup_delta::MessageRollupDelta;
pub use service::Insights;
