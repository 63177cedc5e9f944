//! Insights: how an account stands, what became of its messages, and when it is written to.

mod model;
mod ports;
mod rollup_delta;
mod service;

pub use model::*;
pub use ports::*;
pub use rollup_delta::MessageRollupDelta;
pub use service::Insights;
