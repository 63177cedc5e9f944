//! RFM: how lately, how often and for how much the customers of an account buy, each compared with all the others.
//!
//! Scores are from 1 to 5, by rank; the segment follows from recency and frequency, whatever the money.

mod model;
mod ports;
mod score;
mod service;

pub use model::*;
pub use ports::*;
pub use score::*;
pub use service::{Rfm, RfmWork};
