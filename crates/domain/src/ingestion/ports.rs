//! The port of ingestion. Every method MUST see only the given account, and record either the whole batch or nothing.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{AdSpend, CartDraft, EventDraft, IngestionResult, OrderDraft};
use crate::shared::{AccountId, CartId, OrderId, StoreError};

/// A reference to a row that the account does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReference {
    /// The index of the item in the batch.
    pub index: usize,
    /// The field of the item.
    pub field: &'static str,
}

/// How the write of a batch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngestionOutcome {
    /// The batch and its rollups were recorded.
    Done(IngestionResult),
    /// Nothing was recorded: these references are unknown. A deleted contact or campaign is unknown too.
    UnknownReferences(Vec<UnknownReference>),
}

/// Orders, carts, ad spend and metric events. The rollups MUST be written in the transaction of the rows.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait IngestionStore: Send + Sync {
    /// Upserts orders by platform and external id with `Order::merged`. If a batch has an order more than once, the
    /// last one wins. A new order gets the id with its index. MUST append [`super::orders_recorded`] for the orders
    /// that are new or changed, in the same transaction.
    async fn orders(
        &self,
        account: AccountId,
        ids: &[OrderId],
        drafts: &[OrderDraft],
        now: OffsetDateTime,
    ) -> Result<IngestionOutcome, StoreError>;

    /// Upserts carts by platform and external id with `Cart::merged`. If a batch has a cart more than once, the last
    /// one wins.
    async fn carts(
        &self,
        account: AccountId,
        ids: &[CartId],
        drafts: &[CartDraft],
        now: OffsetDateTime,
    ) -> Result<IngestionResult, StoreError>;

    /// Upserts ad spend by date and source. If a batch has a date and source more than once, the last entry wins.
    async fn ad_spend(
        &self,
        account: AccountId,
        entries: &[AdSpend],
        now: OffsetDateTime,
    ) -> Result<IngestionResult, StoreError>;

    /// Inserts the metric events whose ids the account does not have yet. MUST append [`super::metrics_recorded`] for
    /// them in the same transaction.
    async fn events(
        &self,
        account: AccountId,
        drafts: &[EventDraft],
        now: OffsetDateTime,
    ) -> Result<IngestionOutcome, StoreError>;
}
