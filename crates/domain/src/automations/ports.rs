//! Ports of automations. Every method MUST see only the rows of the given account.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Automation, AutomationChange, Execution};
use crate::ingestion::IngestionResult;
use crate::shared::{AccountId, AutomationId, CursorPage, CursorQuery, StoreError};

#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AutomationStore: Send + Sync {
    /// Newest first, by id. The cursor is the last item's id.
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Automation>, StoreError>;

    /// Inserts an automation. There is no limit here: a change of plan checks the plan's limit.
    async fn insert(&self, account: AccountId, automation: &Automation) -> Result<(), StoreError>;

    /// Changes the given fields and returns the automation, or none if it does not exist.
    async fn update(
        &self,
        account: AccountId,
        id: AutomationId,
        change: &AutomationChange,
        now: OffsetDateTime,
    ) -> Result<Option<Automation>, StoreError>;

    /// Stores the executions whose ids the account does not have yet. None if the automation does not exist.
    async fn record(
        &self,
        account: AccountId,
        id: AutomationId,
        executions: &[Execution],
        now: OffsetDateTime,
    ) -> Result<Option<IngestionResult>, StoreError>;
}
