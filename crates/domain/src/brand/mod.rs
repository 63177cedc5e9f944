//! Brand context: the description of an account's business, written by the account or extracted from its website.
//!
//! Owns the account's one brand context and its extraction from a page. A page is data: its content reaches only the
//! six fields, cut to their length.

mod model;
mod ports;
mod service;
#[cfg(test)]
mod tests;

pub use model::*;
pub use ports::*;
pub use service::Brand;
