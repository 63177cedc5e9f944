//! Folders: where an account keeps campaigns or templates, each kind in folders of its own.
//!
//! Owns folders. What lies in one says so itself (`folder_id`), and stays when its folder goes.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::Folders;
