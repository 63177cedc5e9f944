//! Media: the files of template headers, which callers upload and WhatsApp receives.
//!
//! Owns the detection of file types, the path of a file, and uploads. Does not own which files a template may have
//! (`templates`) or how they are sent to WhatsApp (`whatsapp`).

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
