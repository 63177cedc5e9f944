//! The database port of settings.

use async_trait::async_trait;
use time::OffsetDateTime;

use super::{AccountSettings, SettingsChange};
use crate::shared::{AccountId, Event, StoreError, UserId};

/// The settings of each account.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SettingsStore: Send + Sync {
    /// The account's settings: the defaults for what it never changed.
    async fn load(&self, account: AccountId) -> Result<AccountSettings, StoreError>;

    /// Writes the given fields, and no other, as changes of the user, and commits the events with them. Returns all fields
    /// as they are then.
    async fn update(
        &self,
        account: AccountId,
        change: &SettingsChange,
        user: UserId,
        now: OffsetDateTime,
        events: &[Event],
    ) -> Result<AccountSettings, StoreError>;
}
