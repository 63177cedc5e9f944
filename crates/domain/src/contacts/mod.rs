//! Contacts: the people an account writes to, their labels, and how a whole file of them is taken in.
//!
//! Owns contacts and tags. Does not own segments' membership rules (`campaigns` reads them when an audience is frozen)
//! nor what was said to anyone (`conversations`).

mod csv;
mod import;
mod model;
mod phone;
mod ports;
mod service;

pub use csv::{CsvDecoder, Record};
pub use import::{Import, ImportReport, LineError, MAX_ROWS};
pub use model::*;
pub use phone::Phone;
pub use ports::*;
pub use service::{Contacts, Tags};
