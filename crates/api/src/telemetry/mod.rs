//! Metrics and spans that requests and workers record where they happen, by handles that are created once.

mod refusals;
mod requests;
mod spans;
mod workers;

pub use refusals::{count_refusal, register_refusals};
pub use requests::{InFlight, RateLimitOutcome, Route, count_rate_limit};
pub use spans::{record_response, request_span};
pub use workers::WorkerMetrics;
