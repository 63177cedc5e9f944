//! API reference: generates an OpenAPI 3.1 document from the route table, the body and response types, and the
//! `Operation` of each route. What can be derived is never written twice.

#[cfg(test)]
mod compatibility;
mod descriptions;
mod document;
mod errors;
mod schemas;
mod webhooks;

use serde_json::Value;

pub use crate::error::ErrorCode;
pub use crate::routes::event_types::{EventType, published as event_types};
pub use crate::web::schemas::closed;
pub use schemas::alone;

/// Generates the OpenAPI document of the route table.
pub fn document() -> Value {
    document::document(crate::routes::TABLE)
}

#[cfg(test)]
mod tests;
