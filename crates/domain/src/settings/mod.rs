//! Settings of an account: its time zone, when and how often its contacts may be written to, its opt-out words, and the
//! amounts that it is warned about.
//!
//! Owns the values, their bounds and their defaults. Does not own what they cause: the contexts that dispatch, receive
//! and count messages read them.

mod model;
mod ports;
mod service;
#[cfg(test)]
mod tests;

pub use model::*;
pub use ports::*;
pub use service::Settings;
