//! What all crates agree on about traces.

/// The target of the tracing spans that belong to traces only, not to the log.
pub const TRACED: &str = "recado::trace";
