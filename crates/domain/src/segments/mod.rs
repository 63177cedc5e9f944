//! Segments: named sets of contacts. A segment holds its members and whoever matches its filters when it is read.
//!
//! Owns segments, their members and the filters that campaigns narrow their audience by, too. Does not own contacts,
//! nor what a campaign does with a segment.

mod filters;
mod model;
mod ports;
mod service;

pub use filters::AudienceFilters;
pub use model::*;
pub use ports::*;
pub use service::Segments;
