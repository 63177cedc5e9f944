//! Folders of campaigns and of templates.
//!
//! Owns folders. A campaign or template refers to its folder by `folder_id`, and remains when the folder is deleted.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::Folders;
