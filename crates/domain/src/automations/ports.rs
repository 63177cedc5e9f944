//! What automations need from the store. Every method sees the one account alone.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Automation, AutomationChange, Execution};
use crate::ingestion::IngestionResult;
use crate::shared::{AccountId, AutomationId, CursorPage, CursorQuery, StoreError};

/// Automations.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AutomationStore: Send + Sync {
    /// Newest first (by id); the cursor is the last item's id, and an unreadable one is an empty list's cursor.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Automation>, StoreError>;

    /// Inserts, however many the account has: the plan's limit is looked at when a plan is changed.
    async fn insert(&self, account: AccountId, automation: &Automation) -> Result<(), StoreError>;

    /// Changes what is given; the automation as it is then, or none when there is no such automation.
    async fn update(
        &self,
        account: AccountId,
        id: AutomationId,
        change: &AutomationChange,
        now: OffsetDateTime,
    ) -> Result<Option<Automation>, StoreError>;

    /// Records executions, those whose id the account does not know yet; none when there is no such automation.
    async fn record(
        &self,
        account: AccountId,
        id: AutomationId,
        executions: &[Execution],
        now: OffsetDateTime,
    ) -> Result<Option<IngestionResult>, StoreError>;
}
