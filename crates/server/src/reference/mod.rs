//! The reference of the interface: an OpenAPI 3.1 document, made of the route table, of the types that bodies and answers
//! are made of, and of what each context says of its operations. Nothing that one of them knows is said twice.

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
mod error_codes;
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

pub(crate) use analytics::{exports, insights};
pub use error_codes::ErrorCode;
pub use operation::Operation;
pub use schemas::alone;

/// The operations of one context.
pub struct OpenApiTag {
    /// What readers find it under.
    pub(crate) name: &'static str,
    /// What it is about.
    pub(crate) description: &'static str,
}

/// What the reference says of a route.
#[derive(Clone, Copy)]
pub struct OperationDoc {
    /// Context and handler: the operation's name for programs.
    pub name: &'static str,
    /// Where it stands.
    pub(crate) tag: &'static OpenApiTag,
    /// What it is.
    pub(crate) operation: fn() -> Operation,
}

/// The document.
pub fn document() -> Value {
    document::document(crate::routes::TABLE)
}

/// The document as it is served: made once a process.
pub fn bytes() -> Bytes {
    static BYTES: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(document().to_string()));
    BYTES.clone()
}

#[cfg(test)]
mod tests;
