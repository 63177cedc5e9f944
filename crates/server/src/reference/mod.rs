//! API reference: an OpenAPI 3.1 document, generated from the route table, the body and response types, and one
//! `Operation` for each route. What can be derived is never written twice.

pub(crate) mod accounts;
pub(crate) mod administration;
pub(crate) mod analytics;
pub(crate) mod api_keys;
pub(crate) mod audit;
pub(crate) mod automations;
pub(crate) mod billing;
pub(crate) mod brand;
pub(crate) mod campaigns;
pub(crate) mod contacts;
pub(crate) mod conversations;
mod descriptions;
pub(crate) mod docs;
mod document;
mod errors;
mod examples;
pub(crate) mod folders;
pub(crate) mod ingestion;
pub(crate) mod links;
pub(crate) mod media;
pub(crate) mod notifications;
mod operation;
mod schemas;
pub(crate) mod segments;
pub(crate) mod service;
pub(crate) mod tags;
pub(crate) mod team;
pub(crate) mod templates;
pub(crate) mod webhooks;
pub(crate) mod whatsapp;

use std::sync::LazyLock;

use actix_web::web::Bytes;
use serde_json::Value;

pub use crate::error::ErrorCode;
pub(crate) use analytics::{exports, insights};
pub use operation::Operation;
pub use schemas::alone;

/// An OpenAPI tag: it groups the operations of one context.
pub struct OpenApiTag {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
}

/// The documentation of one route.
#[derive(Clone, Copy)]
pub struct OperationDoc {
    /// The `operationId`: context and handler.
    pub name: &'static str,
    pub(crate) tag: &'static OpenApiTag,
    pub(crate) operation: fn() -> Operation,
}

/// Generates the OpenAPI document.
pub fn document() -> Value {
    document::document(crate::routes::TABLE)
}

/// The serialized OpenAPI document. It is generated once for each process.
pub fn bytes() -> Bytes {
    static BYTES: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(document().to_string()));
    BYTES.clone()
}

#[cfg(test)]
mod tests;
