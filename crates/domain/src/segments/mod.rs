//! Segments: named sets of contacts. A segment contains its members plus every contact that matches its filters at
//! read time.
//!
//! Owns segments, their members, and the filters that also narrow a campaign's audience. Does not own contacts or the
//! use of segments by campaigns.

mod filters;
mod model;
mod ports;
mod service;

pub use filters::AudienceFilters;
pub use model::*;
pub use ports::*;
pub use service::Segments;
