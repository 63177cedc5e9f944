//! Segments.

mod counts;
mod preview;
mod recount;
mod references;
mod store;

pub use recount::PgSegmentCounts;
pub(crate) use references::unknown as unknown_references;
pub use store::PgSegments;
