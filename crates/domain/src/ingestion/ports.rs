//! What ingestion needs from the store. Every method sees the one account alone, and records a whole batch or nothing.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{AdSpend, CartDraft, EventDraft, IngestionResult, OrderDraft};
use crate::shared::{AccountId, CartId, OrderId, StoreError};

/// A reference that names no row of the account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReference {
    /// Of which item.
    pub index: usize,
    /// Which field of it.
    pub field: &'static str,
}

/// What became of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IngestionOutcome {
    /// It is recorded, with everything that counts it.
    Done(IngestionResult),
    /// Nothing is: these references name nothing. Deleted contacts and campaigns are nothing, too.
    UnknownReferences(Vec<UnknownReference>),
}

/// What is told of an account's customers. The roll-ups are written in the transaction of the rows.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait IngestionStore: Send + Sync {
    /// Upserts orders by platform and external id, as `Order::merged` says; of several of one order the last counts.
    /// New ones get the id in their place.
    async fn orders(
        &self,
        account: AccountId,
        ids: &[OrderId],
        drafts: &[OrderDraft],
        now: OffsetDateTime,
    ) -> Result<IngestionOutcome, StoreError>;

    /// Upserts carts by platform and external id, as `Cart::merged` says; of several of one cart the last counts.
    async fn carts(
        &self,
        account: AccountId,
        ids: &[CartId],
        drafts: &[CartDraft],
        now: OffsetDateTime,
    ) -> Result<IngestionResult, StoreError>;

    /// Upserts spend by date and source; of several of one day and source the last counts.
    async fn ad_spend(
        &self,
        account: AccountId,
        entries: &[AdSpend],
        now: OffsetDateTime,
    ) -> Result<IngestionResult, StoreError>;

    /// Inserts the events whose ids the account does not know yet.
    async fn events(
        &self,
        account: AccountId,
        drafts: &[EventDraft],
        now: OffsetDateTime,
    ) -> Result<IngestionOutcome, StoreError>;
}
