//! Notifications inside the product: listing them and marking them as read.
//!
//! Notifications are outbox events (`shared::Event`) that commit with the change that they report. The store's relay
//! moves them here.

mod model;
mod ports;
mod service;

pub use model::*;
pub use ports::*;
pub use service::Notifications;
