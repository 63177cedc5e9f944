//! Test sends: the contact with the phone number, and the reservation of one message of the month's quota.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{TestSendContact, TestSendFacts, TestSendStore};
use recado_domain::contacts::Phone;
use recado_domain::shared::{AccountId, CampaignId, Event, StoreError};
use time::Date;

use super::audience::RecipientRow;
use super::{facts, usage};
use crate::errors::DbResult;
use crate::pool::TenantPool;
use crate::sql::sql;
use crate::transactions::in_tenant;
use crate::{outbox, whatsapp};

#[derive(Clone, Debug)]
pub struct PgTestSends(TenantPool);

impl PgTestSends {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[async_trait]
impl TestSendStore for PgTestSends {
    async fn facts(
        &self,
        account: AccountId,
        id: CampaignId,
        phone: &Phone,
    ) -> Result<Option<TestSendFacts>, StoreError> {
        in_tenant!(self.0, account, |conn| facts(conn, account, id, phone))
    }

    async fn reserve_message(
        &self,
        account: AccountId,
        limit: i64,
        events: &[Event],
    ) -> Result<Option<Date>, StoreError> {
        in_tenant!(self.0, account, |conn| reserve_message(conn, account, limit, events), unless None)
    }

    async fn release_message(&self, account: AccountId, month: Date) -> Result<(), StoreError> {
        in_tenant!(self.0, account, |conn| usage::release_test_send(conn, account, month))
    }
}

async fn facts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: CampaignId,
    phone: &Phone,
) -> DbResult<Option<TestSendFacts>> {
    let Some(run) = facts::facts(conn, account, id).await? else {
        return Ok(None);
    };
    let profile = match run.profile_id {
        Some(profile) => whatsapp::find_profile(conn, account, profile).await?,
        None => None,
    };
    let row: Option<RecipientRow> = sql(
        "SELECT id, name, phone, email, attributes, opted_out_at IS NOT NULL AS opted_out FROM contacts
         WHERE account_id = $1 AND phone = $2 AND deleted_at IS NULL",
    )
    .bind(account)
    .bind(phone.as_str())
    .get_result(conn)
    .await
    .optional()?;
    let contact = row.map(|row| {
        let opted_out = row.opted_out;
        row.try_into().map(|recipient| TestSendContact { recipient, opted_out })
    });
    let contact = contact.transpose()?;
    Ok(Some(TestSendFacts { run, profile, contact }))
}

/// Reserves one message of the month's quota. On `None` the caller MUST roll back.
async fn reserve_message(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    limit: i64,
    events: &[Event],
) -> DbResult<Option<Date>> {
    let month = usage::this_month(conn).await?;
    outbox::append(conn, account, events).await?;
    // Reserve last: every start of the account waits for this row. As in a start, the plan is read again after it.
    usage::reserve_test_send(conn, account, month).await?;
    let limit = facts::current_limit(conn, account, limit).await?.unwrap_or(0);
    let within_limit = usage::used(conn, account, month).await? <= limit;
    Ok(within_limit.then_some(month))
}
