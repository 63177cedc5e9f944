//! Ports of links.

use async_trait::async_trait;

use super::{ClickBatch, Link, LinkTarget};
use crate::shared::{AccountId, CursorPage, CursorQuery, LinkId, StoreError};

/// Links. The store reads and writes the code and leaves `short_url` to the use cases.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait LinkStore: Send + Sync {
    /// Newest first, by id. The cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Link>, StoreError>;

    /// Inserts a link. `UnknownReference { field: "campaign_id" }` if the account has no such campaign, or it was
    /// deleted. `Duplicate { field: "short_code" }` if any account has the code.
    async fn insert(&self, account: AccountId, link: &Link) -> Result<(), StoreError>;

    /// The target of a code, across accounts. It may be a few seconds old.
    async fn target(&self, short_code: &str) -> Result<Option<LinkTarget>, StoreError>;

    /// Adds the clicks of a batch to links and rollups in one transaction. Returns the links whose rows another
    /// transaction locks; their clicks are not added. Links that no longer exist are skipped. Batches of a writer MUST
    /// arrive in the order of their numbers. A batch that was applied MUST NOT change anything when it is repeated,
    /// and MUST return the same links.
    async fn add_clicks(&self, batch: &ClickBatch) -> Result<Vec<LinkId>, StoreError>;
}
