//! What platform administrators see and do, over all accounts. Every statement here runs as the owner: what is asked
//! belongs to no tenant.

mod accounts;
mod deletion;
mod figures;
mod overview;
mod support;

use async_trait::async_trait;
use recado_domain::accounts::{Account, AccountStatus};
use recado_domain::platform::{
    AccountChange, AccountDetail, AccountFilter, AccountRow, AccountUpdate, DayChurn, DayRevenue, Days, PlatformStore,
    SubscriptionFigures, Totals,
};
use recado_domain::shared::{AccountId, Event, Page, PageQuery, StoreError};
use recado_domain::team::InviteInsert;
use time::{Duration, OffsetDateTime};

use crate::errors::retry;
use crate::pool::PlatformPool;

pub use deletion::PgDeletions;
pub use support::PgSupport;

/// How far the list looks back for messages.
const MESSAGES_SINCE: Duration = Duration::days(30);

/// Accounts from above.
#[derive(Clone, Debug)]
pub struct PgPlatform(PlatformPool);

impl PgPlatform {
    pub fn new(pool: PlatformPool) -> Self {
        Self(pool)
    }
}

#[async_trait]
impl PlatformStore for PgPlatform {
    async fn list(
        &self,
        filter: &AccountFilter,
        page: PageQuery,
        now: OffsetDateTime,
    ) -> Result<Page<AccountRow>, StoreError> {
        let mut held = self.0.get().await?;
        let found = overview::page(held.conn()?, filter, page, now - MESSAGES_SINCE).await;
        held.end(found)
    }

    async fn account(&self, id: AccountId) -> Result<Option<Account>, StoreError> {
        let mut held = self.0.get().await?;
        let found = accounts::find(held.conn()?, id).await;
        held.end(found)
    }

    async fn detail(&self, id: AccountId) -> Result<Option<AccountDetail>, StoreError> {
        let mut tx = self.0.begin().await?;
        let found = overview::detail(tx.conn()?, id).await;
        tx.end(found).await
    }

    async fn create(
        &self,
        account: &Account,
        is_given: bool,
        owner: Option<InviteInsert>,
    ) -> Result<Account, StoreError> {
        retry(|| async {
            let mut tx = self.0.begin().await?;
            let created = accounts::create(tx.conn()?, account, is_given, owner.as_ref()).await;
            tx.end(created).await
        })
        .await
    }

    async fn update(
        &self,
        id: AccountId,
        change: &AccountChange,
        owner: Option<InviteInsert>,
    ) -> Result<AccountUpdate, StoreError> {
        retry(|| async {
            let mut tx = self.0.begin().await?;
            match accounts::update(tx.conn()?, id, change, owner.as_ref()).await {
                Ok(refused @ (AccountUpdate::Owned | AccountUpdate::Member)) => {
                    tx.rollback().await?;
                    Ok(refused)
                }
                done => tx.end(done).await,
            }
        })
        .await
    }

    async fn set_status(&self, id: AccountId, status: AccountStatus, events: &[Event]) -> Result<bool, StoreError> {
        let mut tx = self.0.begin().await?;
        let set = accounts::set(tx.conn()?, id, "status", status.as_str(), events).await;
        tx.end(set).await
    }

    async fn set_plan(&self, id: AccountId, plan: &str, events: &[Event]) -> Result<bool, StoreError> {
        let mut tx = self.0.begin().await?;
        let set = accounts::set(tx.conn()?, id, "plan", plan, events).await;
        tx.end(set).await
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        let mut held = self.0.get().await?;
        let counted = figures::totals(held.conn()?).await;
        held.end(counted)
    }

    async fn subscriptions(
        &self,
        since: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<SubscriptionFigures, StoreError> {
        let mut held = self.0.get().await?;
        let counted = figures::subscriptions(held.conn()?, since, now).await;
        held.end(counted)
    }

    async fn revenue(&self, days: Days) -> Result<Vec<DayRevenue>, StoreError> {
        let mut held = self.0.get().await?;
        let counted = figures::revenue(held.conn()?, days).await;
        held.end(counted)
    }

    async fn churn(&self, days: Days) -> Result<Vec<DayChurn>, StoreError> {
        let mut held = self.0.get().await?;
        let counted = figures::churn(held.conn()?, days).await;
        held.end(counted)
    }
}
