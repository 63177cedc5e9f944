//! Reports: one statement each, and so of one moment, over roll-ups alone.

mod metrics;
mod sales;
mod store;
mod window;

pub use store::PgAnalytics;
