//! What exports need from the store.

use async_trait::async_trait;

use super::super::Window;
use super::{ExportKind, ExportPosition, ExportRecord};
use crate::shared::{AccountId, StoreError};

/// Records in parts. Nothing is held between two parts.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ExportStore: Send + Sync {
    /// Up to `limit` records after the position, newest first, each with its own; the first ones without a position.
    /// Contacts and campaigns are those that their lists show, whenever they were made; messages those of the window.
    async fn part(
        &self,
        account: AccountId,
        kind: ExportKind,
        window: &Window,
        after: Option<ExportPosition>,
        limit: i64,
    ) -> Result<Vec<(ExportPosition, ExportRecord)>, StoreError>;
}
