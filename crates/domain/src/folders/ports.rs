//! Ports of folders. Every method MUST see only the rows of the given account.

use async_trait::async_trait;

use super::{Folder, FolderQuery};
use crate::shared::{AccountId, CursorPage, FolderId, RowOutcome, StoreError};

#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait FolderStore: Send + Sync {
    /// Newest first, by id. The cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &FolderQuery) -> Result<CursorPage<Folder>, StoreError>;

    async fn insert(&self, account: AccountId, folder: &Folder) -> Result<(), StoreError>;

    /// Deletes a folder, and clears `folder_id` of its items in the same transaction.
    async fn delete(&self, account: AccountId, id: FolderId) -> Result<RowOutcome, StoreError>;
}
