//! Exports: streams an account's records as CSV, page by page.

mod csv;
mod model;
mod ports;
mod service;

pub use csv::write_record;
pub use model::*;
pub use ports::*;
pub use service::{Export, Exports};
