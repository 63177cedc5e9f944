//! The port: one transaction per batch, retried after a conflict.

use async_trait::async_trait;
use recado_domain::ingestion::{
    AdSpend, CartDraft, EventDraft, IngestionOutcome, IngestionResult, IngestionStore, OrderDraft,
};
use recado_domain::shared::{AccountId, CartId, OrderId, StoreError};
use time::OffsetDateTime;

use super::{carts, events, orders, spend};
use crate::pool::TenantPool;
use crate::transactions::in_tenant;

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
    ) -> Result<IngestionOutcome, StoreError> {
        in_tenant!(self.0, account, |conn| orders::record(conn, account, ids, drafts, now))
    }

    async fn carts(
        &self,
        account: AccountId,
        ids: &[CartId],
        drafts: &[CartDraft],
        now: OffsetDateTime,
    ) -> Result<IngestionResult, StoreError> {
        in_tenant!(self.0, account, |conn| carts::record(conn, account, ids, drafts, now))
    }

    async fn ad_spend(
        &self,
        account: AccountId,
        entries: &[AdSpend],
        now: OffsetDateTime,
    ) -> Result<IngestionResult, StoreError> {
        in_tenant!(self.0, account, |conn| spend::record(conn, account, entries, now))
    }

    async fn events(
        &self,
        account: AccountId,
        drafts: &[EventDraft],
        now: OffsetDateTime,
    ) -> Result<IngestionOutcome, StoreError> {
        in_tenant!(self.0, account, |conn| events::record(conn, account, drafts, now))
    }
}
