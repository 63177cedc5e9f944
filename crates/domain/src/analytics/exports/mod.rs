//! Exports: records of an account as CSV, part by part, so that none of them has to wait for the whole.

mod csv;
mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::{Export, Exports};
