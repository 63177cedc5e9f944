//! Tests of retention.

mod archives;
mod in_memory;
mod iterations;
mod terms;
mod use_cases;
