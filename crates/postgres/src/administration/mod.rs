//! Platform administration: reads and changes across all accounts. Every statement runs on the owner pool, because
//! none belongs to one tenant.

mod accounts;
mod deletion;
mod overview;
mod platform_audit;
mod purge;
mod stats;
mod support;

pub(crate) use platform_audit::insert as insert_platform_entry;

use async_trait::async_trait;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::accounts::{Account, AccountStatus};
use recado_domain::administration::{
    AccountChange, AccountDetail, AccountFilter, AccountRow, AccountUpdate, AdministrationReportStore,
    AdministrationStore, DayChurn, DayRevenue, Days, PlatformEntry, SubscriptionTotals, Totals,
};
use recado_domain::billing::{Change, ChangeOutcome};
use recado_domain::shared::{AccountId, Event, Page, PageQuery, RowOutcome, StoreError, UserId};
use recado_domain::team::InviteInsert;
use time::OffsetDateTime;

use crate::billing;
use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sessions;
use crate::transactions::{in_owner, on_owner};

pub use deletion::PgDeletions;
pub use platform_audit::PgPlatformAudit;
pub use support::PgSupport;

#[derive(Clone, Debug)]
pub struct PgAdministration(OwnerPool);

impl PgAdministration {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

async fn change_subscription(
    conn: &mut AsyncPgConnection,
    change: &Change,
    entry: &PlatformEntry,
) -> DbResult<ChangeOutcome> {
    let written = billing::write(conn, change).await?;
    if let Some(subject) = &written.new_subject {
        billing::wake_events(subject).execute(conn).await?;
    }
    if written.outcome == ChangeOutcome::Done {
        platform_audit::insert(conn, entry).await?;
    }
    Ok(written.outcome)
}

async fn end_sessions(
    conn: &mut AsyncPgConnection,
    user: UserId,
    at: OffsetDateTime,
    entry: &PlatformEntry,
) -> DbResult<Option<OffsetDateTime>> {
    let ended = sessions::end_all(conn, user, at).await?;
    if ended.is_some() {
        platform_audit::insert(conn, entry).await?;
    }
    Ok(ended)
}

#[async_trait]
impl AdministrationStore for PgAdministration {
    async fn account(&self, id: AccountId) -> Result<Option<Account>, StoreError> {
        on_owner!(self.0, |conn| accounts::find(conn, id))
    }

    async fn create(
        &self,
        account: &Account,
        is_given: bool,
        owner: Option<InviteInsert>,
        entry: PlatformEntry,
    ) -> Result<(Account, bool), StoreError> {
        in_owner!(self.0, |conn| accounts::create(
            conn,
            account,
            is_given,
            owner.as_ref(),
            &entry
        ))
    }

    async fn update(
        &self,
        id: AccountId,
        change: &AccountChange,
        owner: Option<InviteInsert>,
        entry: PlatformEntry,
    ) -> Result<AccountUpdate, StoreError> {
        in_owner!(self.0, |conn| accounts::update(conn, id, change, owner.as_ref(), &entry),
            unless AccountUpdate::Owned | AccountUpdate::Member)
    }

    async fn set_status(
        &self,
        id: AccountId,
        status: AccountStatus,
        events: &[Event],
        entry: PlatformEntry,
    ) -> Result<RowOutcome, StoreError> {
        in_owner!(self.0, |conn| accounts::set_status(conn, id, status, events, &entry)).map(RowOutcome::of)
    }

    async fn set_plan(
        &self,
        id: AccountId,
        plan: &str,
        events: &[Event],
        entry: PlatformEntry,
    ) -> Result<RowOutcome, StoreError> {
        in_owner!(self.0, |conn| accounts::grant_plan(conn, id, plan, events, &entry)).map(RowOutcome::of)
    }

    async fn change_subscription(&self, change: &Change, entry: PlatformEntry) -> Result<ChangeOutcome, StoreError> {
        let written = in_owner!(self.0, |conn| change_subscription(conn, change, &entry),
            unless ChangeOutcome::Stale | ChangeOutcome::Missing | ChangeOutcome::Exceeds(_) | ChangeOutcome::Repeated);
        billing::duplicate_to_stale(written)
    }

    async fn end_sessions(
        &self,
        user: UserId,
        at: OffsetDateTime,
        entry: PlatformEntry,
    ) -> Result<Option<OffsetDateTime>, StoreError> {
        in_owner!(self.0, |conn| end_sessions(conn, user, at, &entry))
    }
}

#[async_trait]
impl AdministrationReportStore for PgAdministration {
    async fn list(
        &self,
        filter: &AccountFilter,
        page: PageQuery,
        since: OffsetDateTime,
    ) -> Result<Page<AccountRow>, StoreError> {
        on_owner!(self.0, |conn| overview::page(conn, filter, page, since))
    }

    async fn detail(&self, id: AccountId) -> Result<Option<AccountDetail>, StoreError> {
        in_owner!(self.0, |conn| overview::detail(conn, id))
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        on_owner!(self.0, |conn| stats::totals(conn))
    }

    async fn subscriptions(
        &self,
        since: OffsetDateTime,
        now: OffsetDateTime,
    ) -> Result<SubscriptionTotals, StoreError> {
        on_owner!(self.0, |conn| stats::subscriptions(conn, since, now))
    }

    async fn revenue(&self, days: Days) -> Result<Vec<DayRevenue>, StoreError> {
        on_owner!(self.0, |conn| stats::revenue(conn, days))
    }

    async fn churn(&self, days: Days) -> Result<Vec<DayChurn>, StoreError> {
        on_owner!(self.0, |conn| stats::churn(conn, days))
    }
}
