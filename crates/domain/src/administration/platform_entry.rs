//! Entries of the platform audit log.

use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::Admin;
use crate::shared::{AccountId, AuditAction, AuditLogId, UserId, redacted_debug};

/// What an administrator changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlatformEntity {
    Account,
    AccountAction,
    SupportMode,
    UserSessions,
    RateCard,
}

impl PlatformEntity {
    /// The stored and published value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Account => "account",
            Self::AccountAction => "account_action",
            Self::SupportMode => "support_mode",
            Self::UserSessions => "user_sessions",
            Self::RateCard => "rate_card",
        }
    }
}

/// An entry of the platform audit log without its time. The store inserts it in the transaction of the change.
#[derive(Clone, PartialEq)]
pub struct PlatformEntry {
    pub id: AuditLogId,
    pub user_id: UserId,
    pub email: String,
    pub action: AuditAction,
    pub entity: PlatformEntity,
    pub entity_id: Uuid,
    /// The account that the change concerns; `None` if it concerns none.
    pub account_id: Option<AccountId>,
    /// Details of the change, as an object.
    pub changes: Option<Value>,
    pub ip_address: Option<String>,
    pub request_id: Option<String>,
}

redacted_debug!(PlatformEntry { action, entity });

impl PlatformEntry {
    /// Adds fields to `changes`. `fields` is an object.
    #[must_use]
    pub fn with_changes(mut self, fields: Value) -> Self {
        match (&mut self.changes, fields) {
            (Some(Value::Object(changes)), Value::Object(fields)) => changes.extend(fields),
            (changes, fields) => *changes = Some(fields),
        }
        self
    }
}

impl Admin {
    /// Builds an entry for the platform audit log about an account.
    pub(super) fn platform_entry(
        &self,
        action: AuditAction,
        entity: PlatformEntity,
        account: AccountId,
    ) -> PlatformEntry {
        PlatformEntry {
            account_id: Some(account),
            ..self.entry_without_account(action, entity, account.0)
        }
    }

    /// Builds an entry for the platform audit log about something that belongs to no account.
    pub(crate) fn entry_without_account(
        &self,
        action: AuditAction,
        entity: PlatformEntity,
        entity_id: Uuid,
    ) -> PlatformEntry {
        PlatformEntry {
            id: self.entry_id,
            user_id: self.user_id,
            email: self.email.clone(),
            action,
            entity,
            entity_id,
            account_id: None,
            changes: None,
            ip_address: self.ip_address.clone(),
            request_id: self.request_id.clone(),
        }
    }
}

/// An entry of the platform audit log.
#[derive(Clone, PartialEq)]
pub struct PlatformAuditLog {
    pub id: AuditLogId,
    pub user_id: UserId,
    /// E-mail address of the administrator at that time.
    pub email: String,
    pub action: String,
    /// Type of the changed thing, for example `account`, `account_action`, `support_mode`, `user_sessions` or
    /// `rate_card`.
    pub entity_type: String,
    /// Id of the changed thing: of an account, or of a user for `user_sessions`.
    pub entity_id: Option<Uuid>,
    /// Id of the account that the change concerns, also after its deletion.
    pub account_id: Option<AccountId>,
    /// Details of the change, as an object whose fields depend on the action.
    pub changes: Option<Value>,
    pub ip_address: Option<String>,
    /// `X-Request-Id` of the request, if it is known.
    pub request_id: Option<String>,
    pub created_at: OffsetDateTime,
}

redacted_debug!(PlatformAuditLog {
    id,
    action,
    entity_type
});

/// Filter of the platform audit log. `None` matches every entry; an unknown value matches none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlatformAuditFilter {
    pub action: Option<String>,
    pub entity_type: Option<String>,
    pub account_id: Option<AccountId>,
    /// The administrator who acted.
    pub user_id: Option<UserId>,
    /// Only entries of this time or later.
    pub since: Option<OffsetDateTime>,
    /// Only entries of this time or earlier.
    pub until: Option<OffsetDateTime>,
}
