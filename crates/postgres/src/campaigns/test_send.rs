//! Test sends: the recipient, if it is a contact, and the reservation of one message of the month's quota.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{TestRecipient, TestSendContact, TestSendFacts, TestSendStore};
use recado_domain::shared::{AccountId, CampaignId, Event, StoreError};
use time::Date;

use super::audience::RecipientRow;
use super::{facts, usage};
use crate::contacts::IDS_BY_USER_ID;
use crate::errors::DbResult;
use crate::filters::HAS_OPTED_OUT;
use crate::pool::TenantPool;
use crate::sql::sql;
use crate::transactions::in_tenant;
use crate::whatsapp::USER_ID_SCOPE;
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
        to: &TestRecipient,
    ) -> Result<Option<TestSendFacts>, StoreError> {
        in_tenant!(self.0, account, |conn| facts(conn, account, id, to))
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
    to: &TestRecipient,
) -> DbResult<Option<TestSendFacts>> {
    let Some(run) = facts::facts(conn, account, id).await? else {
        return Ok(None);
    };
    let profile = match run.profile_id {
        Some(profile) => whatsapp::find_profile(conn, account, profile).await?,
        None => None,
    };
    let (ids, key) = match to {
        TestRecipient::Phone(phone) => (
            "SELECT id FROM contacts WHERE account_id = $1 AND phone = $2",
            phone.to_string(),
        ),
        TestRecipient::Contact(id) => ("SELECT $2::uuid AS id", id.to_string()),
        TestRecipient::User(id) => (IDS_BY_USER_ID, id.clone()),
    };
    let row: Option<RecipientRow> = sql(format!(
        "SELECT c.id, c.name, c.phone, c.email, c.attributes, {HAS_OPTED_OUT} AS opted_out, n.user_id
         FROM ({ids}) k JOIN contacts c ON c.account_id = $1 AND c.id = k.id
         CROSS JOIN LATERAL (SELECT fitting_user_id($1, c.id, c.wa_user_id, (SELECT {USER_ID_SCOPE}
           FROM whatsapp_profiles p WHERE p.account_id = $1 AND p.id = $3)) AS user_id) n
         WHERE c.deleted_at IS NULL ORDER BY (n.user_id = $2) IS TRUE DESC, c.id LIMIT 1"
    ))
    .bind(account)
    .bind(key)
    .bind(run.profile_id)
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
