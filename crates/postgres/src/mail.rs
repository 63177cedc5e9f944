//! The queue of outgoing mail, across tenants.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Binary, Integer, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::mail::{ClaimedMail, MailQueue, OutgoingMail};
use recado_domain::shared::{AccountId, MailId, Sealed, StoreError};
use time::Duration;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sql::sql;

/// Enqueues a mail in the caller's transaction.
pub(crate) async fn append(conn: &mut AsyncPgConnection, account: AccountId, mail: &OutgoingMail) -> DbResult<()> {
    sql("INSERT INTO outgoing_mail (id, account_id, content) VALUES ($1, $2, $3)")
        .bind(mail.id)
        .bind(account)
        .bind(mail.content.0.as_slice())
        .execute(conn)
        .await?;
    Ok(())
}

/// The queue as a worker uses it.
#[derive(Clone, Debug)]
pub struct PgMailQueue(OwnerPool);

impl PgMailQueue {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

impl PgMailQueue {
    /// Claims the first due mail of the accounts that match a condition on `account_id` and `$2`, in index order.
    async fn claim_where(
        &self,
        accounts: &'static str,
        lease: Duration,
        previous: Option<AccountId>,
    ) -> Result<Option<ClaimedMail>, StoreError> {
        let query = sql(format!(
            "UPDATE outgoing_mail SET due_at = now() + $1 * interval '1 microsecond', attempts = attempts + 1
             WHERE id = (SELECT id FROM outgoing_mail WHERE due_at <= now() AND {accounts}
               ORDER BY account_id, due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING id, account_id, content, attempts",
        ))
        .bind(lease)
        .bind(previous);
        Ok(self.0.row_if_any::<MailRow>(query).await?.map(ClaimedMail::from))
    }
}

#[derive(QueryableByName)]
struct MailRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = Binary)]
    content: Vec<u8>,
    #[diesel(sql_type = Integer)]
    attempts: i32,
}

impl From<MailRow> for ClaimedMail {
    fn from(row: MailRow) -> Self {
        Self {
            mail: OutgoingMail {
                id: row.id.into(),
                content: Sealed(row.content),
            },
            account_id: row.account_id.into(),
            attempts: row.attempts.unsigned_abs(),
        }
    }
}

#[async_trait]
impl MailQueue for PgMailQueue {
    async fn claim(&self, lease: Duration, previous: Option<AccountId>) -> Result<Option<ClaimedMail>, StoreError> {
        if previous.is_some() {
            let behind = self.claim_where("account_id > $2", lease, previous).await?;
            if behind.is_some() {
                return Ok(behind);
            }
        }
        self.claim_where("($2 IS NULL OR account_id <= $2)", lease, previous)
            .await
    }

    async fn delete(&self, id: MailId) -> Result<(), StoreError> {
        let statement = sql("DELETE FROM outgoing_mail WHERE id = $1");
        self.0.run(statement.bind(id)).await.map(drop)
    }

    async fn defer(&self, id: MailId, attempts: u32, delay: Duration) -> Result<(), StoreError> {
        let statement = sql("UPDATE outgoing_mail SET due_at = now() + $3 * interval '1 microsecond'
             WHERE id = $1 AND attempts = $2")
        .bind(id)
        .bind(i32::try_from(attempts).unwrap_or(i32::MAX))
        .bind(delay);
        self.0.run(statement).await.map(drop)
    }
}
