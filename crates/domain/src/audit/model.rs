//! Audit entries, their filter and error.

use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::shared::{AccountId, AuditLogId, StoreError, UserId};

/// An entry of the audit log.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditLog {
    pub id: AuditLogId,
    pub account_id: AccountId,
    /// The user who acted; for an API key, the user who created the key. None: the system acted.
    pub user_id: Option<UserId>,
    pub action: String,
    pub entity_type: String,
    /// Id of the resource; none if the action concerns several resources.
    pub entity_id: Option<Uuid>,
    /// Details of the change, as an object whose fields depend on the action.
    pub changes: Option<Value>,
    pub ip_address: Option<String>,
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
