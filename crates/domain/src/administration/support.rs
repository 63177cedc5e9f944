//! Support mode: an administrator works in an account for a limited time, and the audit log names them.

use std::sync::Arc;

use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::{Admin, AdministrationError, PlatformEntity, SupportStore};
use crate::shared::{AccountId, AuditAction, Clock, Event, FieldErrors, StoreError, text};

pub const SUPPORT_MODE_DURATION: Duration = Duration::hours(4);

/// Maximum length of a reason, in characters.
const REASON_CHARS: usize = 500;

/// A started support session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SupportStarted {
    pub account_id: AccountId,
    pub account_name: String,
    pub started_at: OffsetDateTime,
    pub expires_at: OffsetDateTime,
}

/// Use cases of support mode.
pub struct Support {
    store: Arc<dyn SupportStore>,
    clock: Arc<dyn Clock>,
}

impl Support {
    pub fn new(store: Arc<dyn SupportStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    /// Starts support mode in an account, also in a suspended one. Ends support mode in the account `leaving`.
    pub async fn start(
        &self,
        admin: &Admin,
        account: AccountId,
        leaving: Option<AccountId>,
        reason: Option<&str>,
    ) -> Result<SupportStarted, AdministrationError> {
        let reason = reason.map(text::sanitize).filter(|reason| !reason.is_empty());
        if reason
            .as_ref()
            .is_some_and(|reason| reason.chars().count() > REASON_CHARS)
        {
            let message = format!("must have at most {REASON_CHARS} characters");
            return Err(FieldErrors::one("reason", message).into());
        }
        let started_at = self.clock.now();
        let expires_at = started_at + SUPPORT_MODE_DURATION;
        let mut audit = admin.audit(AuditAction::Login, "admin_impersonation", account);
        audit.support_admin = Some(admin.email.clone());
        let mut entry = admin.platform_entry(AuditAction::Login, PlatformEntity::SupportMode, account);
        if let Some(reason) = reason {
            entry = entry.with_changes(json!({ "reason": &reason }));
            audit = audit.with_changes(json!({ "reason": reason }));
        }
        let leaving = leaving.filter(|left_account| *left_account != account);
        if let Some(left_account) = leaving {
            entry = entry.with_changes(json!({ "left_account_id": left_account }));
        }
        let name = self
            .store
            .start(admin, account, leaving, expires_at, &[Event::Audit(audit)], entry)
            .await?;
        Ok(SupportStarted {
            account_id: account,
            account_name: name.ok_or(AdministrationError::NotFound)?,
            started_at,
            expires_at,
        })
    }

    /// Ends support mode: removes the temporary membership. A regular membership stays.
    pub async fn stop(&self, admin: &Admin, account: AccountId) -> Result<(), AdministrationError> {
        let entry = admin.platform_entry(AuditAction::Delete, PlatformEntity::SupportMode, account);
        self.store.stop(admin.user_id, account, entry).await?;
        Ok(())
    }

    /// Removes up to `limit` expired temporary memberships. Returns how many.
    pub async fn sweep(&self, limit: i64) -> Result<usize, StoreError> {
        self.store.sweep(limit).await
    }
}
