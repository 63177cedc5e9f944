//! An in-memory store of endpoints, deliveries, logs and the feed: the reference that the store in PostgreSQL is
//! compared with, and the store of the deliverer's tests.

mod deliveries;
mod endpoints;
mod reads;
mod tables;

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::{
    Attempt, ClaimRequest, ClaimedDelivery, DeliveryKey, DeliveryQueue, Direction, FeedQuery, HealthUpdate,
    InboundLogEntry, InboundStore, LogQuery, LoggedDelivery, StoredWebhook, Webhook, WebhookEvent, WebhookLog,
    WebhookLogStore, WebhookStore,
};
use crate::shared::{
    AccountId, CursorPage, Event, InsertOutcome, Page, PageQuery, RowOutcome, StoreError, UpdateOutcome,
    WebhookEventId, WebhookId, WebhookLogId,
};

pub use tables::*;

/// The stores of webhooks over [`WebhookTables`].
#[derive(Debug)]
pub struct InMemoryWebhooks(Mutex<WebhookTables>);

impl InMemoryWebhooks {
    pub fn new(tables: WebhookTables) -> Self {
        Self(Mutex::new(tables))
    }

    pub fn tables(&self) -> MutexGuard<'_, WebhookTables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl WebhookStore for InMemoryWebhooks {
    async fn page(&self, account: AccountId, page: PageQuery) -> Result<Page<Webhook>, StoreError> {
        Ok(self.tables().page(account, page))
    }

    async fn find(&self, account: AccountId, id: WebhookId) -> Result<Option<StoredWebhook>, StoreError> {
        Ok(self.tables().endpoint(account, id).map(|row| row.stored.clone()))
    }

    async fn insert(
        &self,
        account: AccountId,
        webhook: &StoredWebhook,
        at_most: i64,
        events: &[Event],
    ) -> Result<InsertOutcome, StoreError> {
        Ok(self.tables().insert(account, webhook, at_most, events))
    }

    async fn update(
        &self,
        account: AccountId,
        webhook: &StoredWebhook,
        events: &[Event],
    ) -> Result<UpdateOutcome<()>, StoreError> {
        Ok(self.tables().update(account, webhook, events))
    }

    async fn delete(&self, account: AccountId, id: WebhookId, events: &[Event]) -> Result<RowOutcome, StoreError> {
        Ok(self.tables().delete(account, id, events))
    }
}

#[async_trait]
impl WebhookLogStore for InMemoryWebhooks {
    async fn logs(&self, account: AccountId, query: &LogQuery) -> Result<Vec<WebhookLog>, StoreError> {
        Ok(self.tables().logs(account, query))
    }

    async fn logged(&self, account: AccountId, id: WebhookLogId) -> Result<Option<LoggedDelivery>, StoreError> {
        let tables = self.tables();
        let row = tables.logs.get(&id).filter(|row| row.account_id == account);
        Ok(row.map(|row| LoggedDelivery {
            endpoint_id: row.log.endpoint_id,
            event_id: row.event_id,
        }))
    }

    async fn feed(&self, account: AccountId, query: &FeedQuery) -> Result<CursorPage<WebhookEvent>, StoreError> {
        Ok(self.tables().feed(account, query))
    }

    async fn ping(&self, account: AccountId, id: WebhookId, event: &WebhookEvent) -> Result<RowOutcome, StoreError> {
        Ok(self.tables().ping(account, id, event))
    }

    async fn redeliver(
        &self,
        account: AccountId,
        id: WebhookId,
        event: WebhookEventId,
    ) -> Result<RowOutcome, StoreError> {
        Ok(self.tables().redeliver(account, id, event))
    }

    async fn recover(
        &self,
        account: AccountId,
        id: WebhookId,
        since: OffsetDateTime,
        slice: i64,
    ) -> Result<i64, StoreError> {
        Ok(self.tables().recover(account, id, since, slice))
    }
}

#[async_trait]
impl InboundStore for InMemoryWebhooks {
    async fn endpoint(&self, id: WebhookId) -> Result<Option<(AccountId, StoredWebhook)>, StoreError> {
        let tables = self.tables();
        let accepts_calls = |row: &&InMemoryEndpoint| {
            let webhook = &row.stored.webhook;
            let is_suspended = tables.suspended_accounts.contains(&row.account_id);
            webhook.direction == Direction::Inbound && webhook.is_active && !is_suspended
        };
        let row = tables.endpoints.get(&id).filter(accepts_calls);
        Ok(row.map(|row| (row.account_id, row.stored.clone())))
    }

    async fn is_taken(&self, _: AccountId, id: WebhookId, message_id: &str) -> Result<bool, StoreError> {
        Ok(self.tables().inbox.contains(&(id, message_id.to_owned())))
    }

    async fn log(&self, account: AccountId, entry: &InboundLogEntry) -> Result<(), StoreError> {
        self.tables().log_call(account, entry);
        Ok(())
    }
}

#[async_trait]
impl DeliveryQueue for InMemoryWebhooks {
    async fn claim(&self, request: &ClaimRequest, lease: Duration) -> Result<Vec<ClaimedDelivery>, StoreError> {
        Ok(self.tables().claim(request, lease))
    }

    async fn finish(
        &self,
        attempts: &[Attempt],
        health_updates: &[(AccountId, WebhookId, HealthUpdate)],
    ) -> Result<(), StoreError> {
        self.tables().finish(attempts, health_updates);
        Ok(())
    }

    async fn release(&self, claims: &[(DeliveryKey, i64)]) -> Result<(), StoreError> {
        self.tables().release(claims);
        Ok(())
    }

    async fn sweep(&self, older_than: Duration, limit: i64) -> Result<usize, StoreError> {
        Ok(self.tables().sweep(older_than, limit))
    }
}
