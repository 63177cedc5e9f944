//! Audit entries, their filter and error.

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
    /// Id of the entry.
    pub id: AuditLogId,
    /// Id of the account that the entry belongs to.
    pub account_id: AccountId,
    /// The user who acted; for an API key, the user who created the key. Null if the system acted.
    pub user_id: Option<UserId>,
    /// The action: `create`, `update`, `delete`, `restore`, `login` or `export`.
    #[schemars(example = &"update")]
    pub action: String,
    /// Type of the resource.
    #[schemars(example = &"campaign")]
    pub entity_type: String,
    /// Id of the resource; null if the action concerns several resources.
    pub entity_id: Option<Uuid>,
    /// Details of the change, as an object whose fields depend on the action; null if there are none.
    #[schemars(with = "Option<serde_json::Map<String, Value>>", example = serde_json::json!({ "previousStatus": "sending" }))]
    pub changes: Option<Value>,
    /// IP address of the client; null if it is unknown.
    #[schemars(example = &"203.0.113.7")]
    pub ip_address: Option<String>,
    /// When the action happened.
    #[schemars(with = "Timestamp")]
    #[serde(with = "timestamp")]
    pub created_at: OffsetDateTime,
}

/// Filter of the audit log. `None` matches every entry; an unknown value matches none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub entity_type: Option<String>,
    pub action: Option<String>,
}

/// Error of reading the audit log.
#[derive(Debug, Error)]
pub enum AuditError {
    #[error(transparent)]
    Store(#[from] StoreError),
}
