//! WhatsApp: the connected numbers and the calls to WhatsApp.
//!
//! Owns profiles (numbers with their access tokens), their verification, and the files of messages. Does not own the
//! gateway port (`messaging`) or the callbacks that WhatsApp sends (`callbacks`).

mod content_files;
mod file_fetch;
mod files;
mod model;
mod observed;
mod ports;
mod recent;
mod service;
mod upload_locks;
pub mod verification;

pub use content_files::{ContentFile, ContentFileError, ContentFiles};
pub use file_fetch::*;
use files::MEDIA_ID_TTL;
pub use files::{MessageFileError, MessageFiles};
pub use model::*;
pub use observed::ObservedGateway;
pub use ports::*;
pub(crate) use recent::Recent;
pub use service::Profiles;
