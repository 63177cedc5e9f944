//! Tests of retention.

mod archives;
mod in_memory;
mod terms;
mod iterations;
mod use_cases;
