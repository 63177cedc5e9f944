//! Use case of the audit log.

use std::sync::Arc;

use super::{AuditError, AuditFilter, AuditLog, AuditStore};
use crate::shared::{Page, PageQuery, Tenant};

/// Use case of the audit log.
pub struct AuditLogs {
    store: Arc<dyn AuditStore>,
}

impl AuditLogs {
    pub fn new(store: Arc<dyn AuditStore>) -> Self {
        Self { store }
    }

    /// Returns one page of the account's entries, newest first. Every role may read them.
    pub async fn page(
        &self,
        tenant: &Tenant,
        filter: &AuditFilter,
        page: PageQuery,
    ) -> Result<Page<AuditLog>, AuditError> {
        Ok(self.store.page(tenant.account_id, filter, page).await?)
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::MockAuditStore;
    use super::*;
    use crate::shared::{AccountId, AuditLogId, Role, StoreError, UserId};

    fn entry(account_id: AccountId) -> AuditLog {
        AuditLog {
            id: AuditLogId(Uuid::from_u128(1)),
            account_id,
            user_id: None,
            action: "delete".into(),
            entity_type: "campaign".into(),
            entity_id: None,
            changes: None,
            ip_address: None,
            created_at: datetime!(2026-03-01 12:00:00.123456 UTC),
        }
    }

    #[tokio::test]
    async fn audit_log_is_readable_by_every_role() {
        for &role in Role::ALL {
            let account = AccountId(Uuid::from_u128(7));
            let mut store = MockAuditStore::new();
            store
                .expect_page()
                .withf(move |id, filter, _| *id == account && filter.action.as_deref() == Some("delete"))
                .returning(|account, _, page| Ok(Page::new(page, vec![entry(account)], 1)));
            let tenant = Tenant::for_tests(account, UserId(Uuid::from_u128(2)), role);
            let filter = AuditFilter {
                action: Some("delete".into()),
                ..AuditFilter::default()
            };
            let page = PageQuery::new(None, None, 50, 100);
            let found = AuditLogs::new(Arc::new(store)).page(&tenant, &filter, page).await;
            assert_eq!(found.unwrap().data, [entry(account)]);
        }
    }

    #[tokio::test]
    async fn audit_log_store_failure_is_an_error() {
        let mut store = MockAuditStore::new();
        store
            .expect_page()
            .returning(|_, _, _| Err(StoreError::Corrupt("x".into())));
        let tenant = Tenant::for_tests(AccountId(Uuid::nil()), UserId(Uuid::nil()), Role::Viewer);
        let page = PageQuery::new(None, None, 50, 100);
        let failed = AuditLogs::new(Arc::new(store))
            .page(&tenant, &AuditFilter::default(), page)
            .await;
        assert!(matches!(failed, Err(AuditError::Store(StoreError::Corrupt(_)))));
    }
}
