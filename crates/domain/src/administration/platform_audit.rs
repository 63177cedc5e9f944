//! The platform audit log: what administrators changed. It belongs to no account and survives the accounts that it
//! names.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{AccountChange, AdministrationError, PlatformAuditFilter, PlatformAuditLog, PlatformAuditStore};
use crate::accounts::Account;
use crate::shared::{Page, PageQuery};

impl AccountChange {
    /// The fields that differ between the stored account and this change, each with its old and new value.
    pub fn differences(&self, before: &Account) -> Value {
        let status = self.status.map(|status| json!(status));
        let named = [
            ("name", json!(before.name), self.name.as_ref().map(|name| json!(name))),
            ("slug", json!(before.slug), self.slug.as_ref().map(|slug| json!(slug))),
            (
                "logo_url",
                json!(before.logo_url),
                self.logo_url.as_ref().map(|url| json!(url)),
            ),
            ("plan", json!(before.plan), self.plan.as_ref().map(|plan| json!(plan))),
            ("status", json!(before.status), status),
        ];
        let differences = named.into_iter().filter_map(|(field, from, to)| {
            let to = to.filter(|to| *to != from)?;
            Some((field.to_owned(), json!({ "from": from, "to": to })))
        });
        Value::Object(differences.collect())
    }
}

/// Use case of the platform audit log.
pub struct PlatformAudit {
    store: Arc<dyn PlatformAuditStore>,
}

impl PlatformAudit {
    pub fn new(store: Arc<dyn PlatformAuditStore>) -> Self {
        Self { store }
    }

    /// Returns one page of the entries, newest first.
    pub async fn page(
        &self,
        filter: &PlatformAuditFilter,
        page: PageQuery,
    ) -> Result<Page<PlatformAuditLog>, AdministrationError> {
        Ok(self.store.page(filter, page).await?)
    }
}
