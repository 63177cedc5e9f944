//! Entries of the audit log, and what is asked of it.

use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::shared::{AccountId, AuditLogId, StoreError, UserId, timestamp};

/// An entry, as published.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditLog {
    /// Its id.
    pub id: AuditLogId,
    /// Whose log it is in.
    pub account_id: AccountId,
    /// Who did it, for an API key its creator; none when the system did.
    pub user_id: Option<UserId>,
    /// What was done: the stored word, also one that a later version wrote.
    pub action: String,
    /// To what kind of thing.
    pub entity_type: String,
    /// To which one.
    pub entity_id: Option<Uuid>,
    /// What changed.
    pub changes: Option<Value>,
    /// From which address.
    pub ip_address: Option<String>,
    /// When.
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
