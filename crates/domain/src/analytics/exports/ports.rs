//! The port of exports.

use async_trait::async_trait;

use super::super::Window;
use super::{ExportKind, ExportPosition, ExportRecord};
use crate::shared::{AccountId, StoreError};

/// Reads records page by page. No transaction or connection stays open between two pages.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait ExportStore: Send + Sync {
    /// Keyset pagination: up to `limit` records after the position, newest first, each with its position. Without a
    /// position, starts at the newest record. Messages are those of the window. Contacts and campaigns are those that
    /// their lists show, regardless of the window.
    async fn part(
        &self,
        account: AccountId,
        kind: ExportKind,
        window: &Window,
        after: Option<ExportPosition>,
        limit: i64,
    ) -> Result<Vec<(ExportPosition, ExportRecord)>, StoreError>;
}
