//! RFM analysis: ranks an account's customers by recency, frequency and monetary value of their orders.
//!
//! Scores range from 1 to `BEST_SCORE`, by rank. The segment depends only on the recency and frequency scores.

mod model;
mod ports;
mod score;
mod service;

pub use model::*;
pub use ports::*;
pub use score::*;
pub use service::{Rfm, RfmWork};
