//! The port: one transaction a batch, tried again when another one got in its way.

use async_trait::async_trait;
use recado_domain::ingestion::{AdSpend, CartDraft, EventDraft, IngestionStore, OrderDraft, Recorded, Recording};
use recado_domain::shared::{AccountId, CartId, OrderId, StoreError};
use time::OffsetDateTime;

use super::{carts, events, orders, spend};
use crate::errors::retry;
use crate::pool::TenantPool;

/// What is told of an account's customers.
#[derive(Clone, Debug)]
pub struct PgIngestion(TenantPool);

impl PgIngestion {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[async_trait]
impl IngestionStore for PgIngestion {
    async fn orders(
        &self,
        account: AccountId,
        ids: &[OrderId],
        drafts: &[OrderDraft],
        now: OffsetDateTime,
    ) -> Result<Recording, StoreError> {
        retry(|| async {
            let mut tx = self.0.begin(account).await?;
            let recorded = orders::record(tx.conn()?, account, ids, drafts, now).await;
            tx.end(recorded).await
        })
        .await
    }

    async fn carts(
        &self,
        account: AccountId,
        ids: &[CartId],
        drafts: &[CartDraft],
        now: OffsetDateTime,
    ) -> Result<Recorded, StoreError> {
        retry(|| async {
            let mut tx = self.0.begin(account).await?;
            let recorded = carts::record(tx.conn()?, account, ids, drafts, now).await;
            tx.end(recorded).await
        })
        .await
    }

    async fn ad_spend(
        &self,
        account: AccountId,
        entries: &[AdSpend],
        now: OffsetDateTime,
    ) -> Result<Recorded, StoreError> {
        retry(|| async {
            let mut tx = self.0.begin(account).await?;
            let recorded = spend::record(tx.conn()?, account, entries, now).await;
            tx.end(recorded).await
        })
        .await
    }

    async fn events(
        &self,
        account: AccountId,
        drafts: &[EventDraft],
        now: OffsetDateTime,
    ) -> Result<Recording, StoreError> {
        retry(|| async {
            let mut tx = self.0.begin(account).await?;
            let recorded = events::record(tx.conn()?, account, drafts, now).await;
            tx.end(recorded).await
        })
        .await
    }
}
