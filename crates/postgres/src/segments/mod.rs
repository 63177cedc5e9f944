//! Segments.

mod counts;
mod membership;
mod store;

pub(crate) use membership::{BoundFilters, RuleRow, SegmentRule};
pub use store::PgSegments;
