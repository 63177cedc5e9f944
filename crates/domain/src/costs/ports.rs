//! Database ports of costs.

use async_trait::async_trait;

use super::{RateCard, RateCardDraft, RateRow};
use crate::administration::PlatformEntry;
use crate::shared::{CursorPage, CursorQuery, RateCardId, StoreError};

/// How the deletion of a rate card ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CardDeletion {
    Done,
    Missing,
    /// An amount was taken from the card, so it stays.
    InUse,
}

/// Rate cards, which belong to no account. A method that takes a [`PlatformEntry`] MUST insert it in the transaction of its
/// change, and only if it changes something.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RateCardStore: Send + Sync {
    async fn insert(&self, draft: &RateCardDraft, entry: PlatformEntry) -> Result<(), StoreError>;

    /// Newest first.
    async fn list(&self, query: &CursorQuery) -> Result<CursorPage<RateCard>, StoreError>;

    async fn find(&self, id: RateCardId) -> Result<Option<RateCard>, StoreError>;

    /// The rows of a card in the order of its file. None: the card does not exist.
    async fn rows(&self, id: RateCardId) -> Result<Option<Vec<RateRow>>, StoreError>;

    /// MUST wait for transactions that take an amount from the card.
    async fn delete(&self, id: RateCardId, entry: PlatformEntry) -> Result<CardDeletion, StoreError>;
}
