//! API reference: generates an OpenAPI 3.1 document from the route table, the body and response types, and the
//! `Operation` of each route. What can be derived is never written twice.

mod descriptions;
mod document;
mod errors;
mod examples;
mod schemas;

use serde_json::Value;

pub use crate::error::ErrorCode;
pub use schemas::alone;

/// Generates the OpenAPI document of the route table.
pub fn document() -> Value {
    document::document(crate::routes::TABLE)
}

#[cfg(test)]
mod tests;
