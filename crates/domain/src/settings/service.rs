//! The use cases of settings.

use std::sync::Arc;

use serde_json::json;

use super::{AccountSettings, SettingsError, SettingsInput, SettingsStore};
use crate::shared::{AuditAction, Clock, Event, Tenant};

/// Reads and changes the settings of an account.
pub struct Settings {
    store: Arc<dyn SettingsStore>,
    clock: Arc<dyn Clock>,
}

impl Settings {
    pub fn new(store: Arc<dyn SettingsStore>, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock }
    }

    pub async fn get(&self, tenant: &Tenant) -> Result<AccountSettings, SettingsError> {
        Ok(self.store.load(tenant.account_id).await?)
    }

    /// The audit entry names the changed fields without their values: the words and the reply are texts.
    pub async fn update(&self, tenant: &Tenant, input: SettingsInput) -> Result<AccountSettings, SettingsError> {
        let change = input.check()?;
        let audit = tenant.audit(AuditAction::Update, "account_settings", tenant.account_id);
        let events = [Event::Audit(audit.with_changes(json!({ "fields": change.names() })))];
        let (account, user) = (tenant.account_id, tenant.actor.user_id);
        Ok(self
            .store
            .update(account, &change, user, self.clock.now(), &events)
            .await?)
    }
}
