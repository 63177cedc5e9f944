//! What links need from the store.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::Link;
use crate::shared::{AccountId, Slice, SliceQuery, StoreError};

/// Links. `short_url` is not the store's to know: it reads and writes the code.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait LinkStore: Send + Sync {
    /// Newest first (by id); the cursor is the last item's id, and an unreadable one is an empty list's cursor.
    async fn list(&self, account: AccountId, query: &SliceQuery) -> Result<Slice<Link>, StoreError>;

    /// Inserts. `Dangling { field: "campaign_id" }` when the campaign is not the account's, or was deleted; `Taken
    /// { field: "short_code" }` when any account has the code.
    async fn insert(&self, account: AccountId, link: &Link) -> Result<(), StoreError>;

    /// Counts a click of now on the link of whichever account has the code, and says where it leads.
    async fn follow(&self, short_code: &str, now: OffsetDateTime) -> Result<Option<String>, StoreError>;
}
