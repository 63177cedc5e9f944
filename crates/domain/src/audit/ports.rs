//! Database port of the audit log.

use async_trait::async_trait;

use super::{AuditFilter, AuditLog};
use crate::shared::{AccountId, Page, PageQuery, StoreError};

/// Entries of the audit log.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Returns one page of the account's entries, newest first (by time, then by id), with the exact total.
    ///
    /// Read-your-writes: the entry of an operation that has returned, in any process, MUST be in the result. The store
    /// first moves the account's waiting outbox events, for at most one second. Entries that it cannot move in that
    /// time are missing from the result, without an error.
    async fn page(
        &self,
        account: AccountId,
        filter: &AuditFilter,
        page: PageQuery,
    ) -> Result<Page<AuditLog>, StoreError>;
}
