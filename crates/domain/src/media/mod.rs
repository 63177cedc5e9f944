//! Media: the files of template headers, which callers upload and WhatsApp receives, and the files of messages.
//!
//! Owns the detection of file types, the path of a file, uploads, and the states of a message's file. Does not own which
//! files a template may have (`templates`) or how files are sent to WhatsApp and fetched from it (`whatsapp`).

mod kind;
mod message_file;
mod model;
mod ports;
mod service;
#[cfg(test)]
pub(crate) mod tests;

pub use kind::{MediaType, SNIFFED_BYTES};
pub use message_file::*;
pub use model::*;
pub use ports::*;
pub use service::{Media, Upload};
