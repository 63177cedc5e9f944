//! Segments: named sets of contacts. A segment contains its members plus every contact that matches its filters at
//! read time.
//!
//! Owns segments, their members, and the filters that also narrow a campaign's audience. Does not own contacts, the rows
//! that filters read, or the use of segments by campaigns.

#[cfg(any(test, feature = "mocks"))]
pub mod evaluate;
mod filters;
mod model;
mod nodes;
mod parse;
mod ports;
mod service;

pub use filters::AudienceFilters;
pub use model::*;
pub use nodes::*;
pub use ports::*;
pub use service::Segments;
