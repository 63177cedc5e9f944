//! What the audit log needs from the store.

use async_trait::async_trait;

use super::{AuditFilter, AuditLog};
use crate::shared::{AccountId, Page, PageQuery, StoreError};

/// Entries of the audit log.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// One page of the account's entries, newest first (by time, then by id), and the exact total.
    ///
    /// Whoever was answered by an audited operation MUST find its entry here, whichever process answered: the store
    /// first carries out what the account's operations left waiting. It waits for that a second at most; what cannot be
    /// carried out by then is missing from the answer and not an error.
    async fn page(
        &self,
        account: AccountId,
        filter: &AuditFilter,
        page: PageQuery,
    ) -> Result<Page<AuditLog>, StoreError>;
}
