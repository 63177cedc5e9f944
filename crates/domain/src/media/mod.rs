//! Media: the files of template headers, as callers upload them and as the platform is given them.
//!
//! Owns what counts as which type, where a file lies, and its way into the store. Does not own what a template may
//! bear (`templates`) or how the platform takes files (`whatsapp`).

mod kind;
mod model;
mod ports;
mod service;
#[cfg(test)]
pub(crate) mod tests;

pub use kind::{MediaType, SNIFFED_BYTES};
pub use model::*;
pub use ports::*;
pub use service::{Media, Upload};
