//! The queue of outgoing mail, across tenants.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use diesel::pg::Pg;
use diesel::prelude::{ExpressionMethods, QueryDsl, QueryableByName};
use diesel::sql_types::{Nullable, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::mail::{ClaimedMail, MailQueue, OutgoingMail};
use recado_domain::shared::{AccountId, MailId, Sealed, StoreError};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::errors::DbResult;
use crate::low_water::{Position, ReadyQueues, lock};
use crate::pool::OwnerPool;
use crate::schema::outgoing_mail;
use crate::sql::{PlannedEachTime, sql};

/// Enqueues a mail in the caller's transaction.
pub(crate) async fn append(conn: &mut AsyncPgConnection, account: AccountId, mail: &OutgoingMail) -> DbResult<()> {
    diesel::insert_into(outgoing_mail::table)
        .values((
            outgoing_mail::id.eq(mail.id.0),
            outgoing_mail::account_id.eq(account.0),
            outgoing_mail::content.eq(&mail.content.0),
        ))
        .execute(conn)
        .await?;
    Ok(())
}

/// The queue as a worker uses it. Clones share the accounts with due mail.
#[derive(Clone, Debug)]
pub struct PgMailQueue {
    pool: OwnerPool,
    ready: Arc<Mutex<ReadyQueues<AccountId>>>,
}

impl PgMailQueue {
    pub fn new(pool: OwnerPool) -> Self {
        Self {
            pool,
            ready: Arc::default(),
        }
    }
}

/// The accounts of mails that became due since a time. Returns one row with nulls if there is none.
const DISCOVER: &str = "SELECT now() AS read_at, m.account_id, m.oldest FROM (SELECT 1) one LEFT JOIN (
       SELECT account_id, min(due_at) AS oldest FROM outgoing_mail
       WHERE due_at >= (SELECT $1) AND due_at <= (SELECT now()) GROUP BY account_id) m ON true";

#[derive(QueryableByName)]
struct DiscoveredRow {
    #[diesel(sql_type = Timestamptz)]
    read_at: OffsetDateTime,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    account_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    oldest: Option<OffsetDateTime>,
}

/// Claims the first due mail of an account after a position.
const CLAIM: &str = "WITH due AS MATERIALIZED (
       SELECT id, due_at FROM outgoing_mail WHERE account_id = $2 AND due_at <= (SELECT now())
         AND (due_at, id) > ((SELECT $3), (SELECT $4))
       ORDER BY due_at, id LIMIT 1 FOR UPDATE SKIP LOCKED),
     claimed AS (
       UPDATE outgoing_mail SET due_at = now() + $1 * interval '1 microsecond', attempts = attempts + 1
       WHERE id = (SELECT id FROM due)
       RETURNING id, account_id, content, attempts)
     SELECT c.*, due.due_at FROM claimed c JOIN due ON true";

impl PgMailQueue {
    async fn discover(&self) -> Result<(), StoreError> {
        let (read, since) = lock(&self.ready).begin();
        let rows = self
            .pool
            .rows::<DiscoveredRow>(PlannedEachTime(sql(DISCOVER).bind(since)))
            .await?;
        if let Some(read_at) = rows.as_slice().first().map(|row| row.read_at) {
            let found = rows
                .iter()
                .filter_map(|row| Some((row.account_id?.into(), row.oldest?)));
            lock(&self.ready).end(read, read_at, found);
        }
        Ok(())
    }

    /// Claims from the accounts that are known to have due mail.
    async fn claim_known(
        &self,
        lease: Duration,
        previous: Option<AccountId>,
    ) -> Result<Option<ClaimedMail>, StoreError> {
        loop {
            let next = lock(&self.ready).next_after(previous);
            let Some((account, after)) = next else {
                return Ok(None);
            };
            let claimed = self.claim_of(account, after, lease).await?;
            let mut ready = lock(&self.ready);
            match claimed {
                Some(row) => {
                    ready.advance(account, (row.due_at, row.id));
                    return Ok(Some(row.into()));
                }
                None => ready.remove(account),
            }
        }
    }

    async fn claim_of(
        &self,
        account: AccountId,
        (due_at, id): Position,
        lease: Duration,
    ) -> Result<Option<MailRow>, StoreError> {
        let query = sql(CLAIM).bind(lease).bind(account).bind(due_at).bind(id);
        self.pool.row_if_any(PlannedEachTime(query)).await
    }
}

#[derive(QueryableByName)]
#[diesel(table_name = outgoing_mail, check_for_backend(Pg))]
struct MailRow {
    id: Uuid,
    account_id: Uuid,
    content: Vec<u8>,
    attempts: i32,
    /// When it was due, before the claim.
    due_at: OffsetDateTime,
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
        let must_discover = lock(&self.ready).must_discover();
        if !must_discover && let Some(mail) = self.claim_known(lease, previous).await? {
            return Ok(Some(mail));
        }
        self.discover().await?;
        self.claim_known(lease, previous).await
    }

    async fn delete(&self, id: MailId) -> Result<(), StoreError> {
        let statement = diesel::delete(outgoing_mail::table.find(id.0));
        self.pool.run(PlannedEachTime(statement)).await.map(drop)
    }

    async fn defer(&self, id: MailId, attempts: u32, delay: Duration) -> Result<(), StoreError> {
        let statement = sql("UPDATE outgoing_mail SET due_at = now() + $3 * interval '1 microsecond'
             WHERE id = $1 AND attempts = $2")
        .bind(id)
        .bind(i32::try_from(attempts).unwrap_or(i32::MAX))
        .bind(delay);
        self.pool.run(PlannedEachTime(statement)).await.map(drop)
    }
}
