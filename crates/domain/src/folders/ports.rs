//! What folders need from the store. Every method sees the one account alone.

use async_trait::async_trait;

use super::{Folder, FolderQuery};
use crate::shared::{AccountId, CursorPage, FolderId, StoreError};

/// Folders.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait FolderStore: Send + Sync {
    /// Newest first (by id); the cursor is the last item's id, and an unreadable one is an empty list's cursor.
    async fn list(&self, account: AccountId, query: &FolderQuery) -> Result<CursorPage<Folder>, StoreError>;

    /// Inserts.
    async fn insert(&self, account: AccountId, folder: &Folder) -> Result<(), StoreError>;

    /// Deletes, and in the same transaction leaves what lay in it without a folder; false when there is no such folder.
    async fn delete(&self, account: AccountId, id: FolderId) -> Result<bool, StoreError>;
}
