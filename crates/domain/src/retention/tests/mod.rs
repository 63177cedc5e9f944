//! Tests of retention.

mod archives;
pub(crate) mod in_memory;
mod iterations;
mod terms;
mod use_cases;
