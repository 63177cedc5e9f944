//! Contacts: the people an account writes to, their labels, and how a whole file of them is taken in.
//!
//! Owns contacts and tags. Does not own segments of contacts, nor what was said to anyone.

mod change;
mod import;
mod limits;
mod model;
mod phone;
mod ports;
mod referral;
mod service;
mod upsert;

pub use import::{Import, ImportFormat, ImportReport, LineError, MAX_ROWS};
pub use limits::{MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTES, attribute_bytes};
pub use model::*;
pub use phone::Phone;
pub use ports::*;
pub use referral::Referral;
pub use service::{Contacts, Tags};
