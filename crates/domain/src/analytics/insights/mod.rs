//! Insights: how an account stands, what became of its messages, and when it is written to.

mod model;
mod ports;
mod service;
mod tally;

pub use model::*;
pub use ports::*;
pub use service::Insights;
pub use tally::MessageTally;
