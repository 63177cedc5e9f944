//! Segments.

mod counts;
mod membership;
mod preview;
mod recount;
mod references;
mod store;
mod tree;

pub(crate) use membership::{BoundFilters, RuleRow, SegmentRule};
pub use recount::PgSegmentCounts;
pub(crate) use references::unknown as unknown_references;
pub use store::PgSegments;
pub(crate) use tree::{Access, LOOKUP_PLANS, SET_PLANS};
