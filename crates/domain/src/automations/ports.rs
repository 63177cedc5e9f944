//! What automations need from the store. Every method sees the one account alone.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{Automation, AutomationChange, Execution};
use crate::ingestion::Recorded;
use crate::shared::{AccountId, AutomationId, Slice, SliceQuery, StoreError};

/// Whether an automation was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// It was.
    Done,
    /// The account's plan allows no more than it has.
    Full {
        /// How many it allows.
        limit: i64,
    },
}

/// Automations.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait AutomationStore: Send + Sync {
    /// Newest first (by id); the cursor is the last item's id, and an unreadable one is an empty list's cursor.
    async fn list(&self, account: AccountId, query: &SliceQuery) -> Result<Slice<Automation>, StoreError>;

    /// Inserts, unless the account has as many as its plan allows: several at the same time cannot together exceed it.
    async fn insert(&self, account: AccountId, automation: &Automation) -> Result<Inserted, StoreError>;

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
    ) -> Result<Option<Recorded>, StoreError>;
}
