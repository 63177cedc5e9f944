//! Notifications inside the product: reading them, and having them read.
//!
//! Does not own making them: a notification is an event of the change that it tells of, and commits with it
//! (`shared::Event`); the store's relay carries it here.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::Notifications;
