//! Segments.

mod membership;
mod store;

pub(crate) use membership::{BoundFilters, belongs, conditions, own};
pub use store::PgSegments;
