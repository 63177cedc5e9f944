//! Brand context: what an account's business is, in its own words or as read from its website.
//!
//! Owns the one brand context of an account, and reading it from a page. A page is data: what stands in it ends up in the
//! six fields, cut to their length, or nowhere.

mod model;
mod ports;
mod service;
#[cfg(test)]
mod tests;

pub use model::*;
pub use ports::*;
pub use service::Brand;
