//! Tests of retention.

mod archives;
mod in_memory;
mod terms;
mod turns;
mod use_cases;
