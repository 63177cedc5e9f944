//! Use cases of notifications. Whether a notification is read is stored per account, not per user; every role may mark
//! it.

use std::sync::Arc;

use super::{Notification, NotificationError, NotificationQuery, NotificationStore};
use crate::shared::{CursorPage, NotificationId, Tenant};

/// Use cases of notifications.
pub struct Notifications {
    store: Arc<dyn NotificationStore>,
}

impl Notifications {
    pub fn new(store: Arc<dyn NotificationStore>) -> Self {
        Self { store }
    }

    /// Returns a page of the account's notifications, newest first.
    pub async fn list(
        &self,
        tenant: &Tenant,
        query: &NotificationQuery,
    ) -> Result<CursorPage<Notification>, NotificationError> {
        Ok(self.store.list(tenant.account_id, query).await?)
    }

    /// Marks a notification as read. Has no effect if it is already read.
    pub async fn read(&self, tenant: &Tenant, id: NotificationId) -> Result<(), NotificationError> {
        self.store
            .read(tenant.account_id, id)
            .await?
            .or_missing(NotificationError::NotFound)
    }

    /// Marks all notifications of the account as read.
    pub async fn read_all(&self, tenant: &Tenant) -> Result<(), NotificationError> {
        Ok(self.store.read_all(tenant.account_id).await?)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::super::MockNotificationStore;
    use super::*;
    use crate::shared::{AccountId, Role, RowOutcome, UserId};

    fn tenant(role: Role) -> Tenant {
        Tenant::for_tests(AccountId(Uuid::from_u128(7)), UserId(Uuid::nil()), role)
    }

    #[tokio::test]
    async fn notification_can_be_marked_read_by_every_role() {
        for &role in Role::ALL {
            let mut store = MockNotificationStore::new();
            let existing = NotificationId(Uuid::from_u128(1));
            store
                .expect_read()
                .withf(|account, _| account.0 == Uuid::from_u128(7))
                .returning(move |_, id| Ok(RowOutcome::of(id == existing)));
            store.expect_read_all().times(1).returning(|_| Ok(()));
            let notifications = Notifications::new(Arc::new(store));
            notifications.read(&tenant(role), existing).await.unwrap();
            notifications.read_all(&tenant(role)).await.unwrap();
            let missing = notifications.read(&tenant(role), NotificationId(Uuid::nil())).await;
            assert!(matches!(missing, Err(NotificationError::NotFound)));
        }
    }
}
