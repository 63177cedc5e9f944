//! What links need from the store.

use async_trait::async_trait;

use super::{ClickBatch, Link, LinkTarget};
use crate::shared::{AccountId, CursorPage, CursorQuery, LinkId, StoreError};

/// Links. `short_url` is not the store's to know: it reads and writes the code.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait LinkStore: Send + Sync {
    /// Newest first (by id); the cursor is the last item's id, and an unreadable one is an empty list's cursor.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Link>, StoreError>;

    /// Inserts. `UnknownReference { field: "campaign_id" }` when the campaign is not the account's, or was deleted;
    /// `Duplicate { field: "short_code" }` when any account has the code.
    async fn insert(&self, account: AccountId, link: &Link) -> Result<(), StoreError>;

    /// Returns where the link of whichever account has the code leads. The answer may be some seconds old.
    async fn target(&self, short_code: &str) -> Result<Option<LinkTarget>, StoreError>;

    /// Adds the clicks of a batch to links and roll-ups in one transaction, and returns the links whose clicks it did not
    /// add, because another transaction holds their rows. Links that no longer exist are left out. Batches of a writer
    /// MUST come in the order of their numbers. A batch that was applied MUST change nothing when it comes again, and
    /// return the same links.
    async fn add_clicks(&self, batch: &ClickBatch) -> Result<Vec<LinkId>, StoreError>;
}
