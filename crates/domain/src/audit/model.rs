//! Entries of the audit log, and what is asked of it.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::shared::schema::Timestamp;
use crate::shared::{AccountId, AuditLogId, StoreError, UserId, timestamp};

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct AuditLog {
    /// The entry's id.
    pub id: AuditLogId,
    /// The account in whose log it stands.
    pub account_id: AccountId,
    /// The user who did it (of an API key: who created the key); null when the system did.
    pub user_id: Option<UserId>,
    /// What was done: `create`, `update`, `delete`, `restore`, `login` or `export`.
    #[schemars(example = &"update")]
    pub action: String,
    /// To what kind of thing.
    #[schemars(example = &"campaign")]
    pub entity_type: String,
    /// The id of that thing; null where there is no single one.
    pub entity_id: Option<Uuid>,
    /// What changed, as an object whose fields depend on the action; null where nothing more is told.
    #[schemars(with = "Option<serde_json::Map<String, Value>>", example = serde_json::json!({ "previousStatus": "sending" }))]
    pub changes: Option<Value>,
    /// The client address that it was done from; null when it is not known.
    #[schemars(example = &"203.0.113.7")]
    pub ip_address: Option<String>,
    /// When it was done.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// Which entries are wanted; words that nothing was ever written with match nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Only this kind of thing.
    pub entity_type: Option<String>,
    /// Only this action.
    pub action: Option<String>,
}

/// Why the audit log was not read.
#[derive(Debug, Error)]
pub enum AuditError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
