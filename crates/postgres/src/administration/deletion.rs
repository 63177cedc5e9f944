//! Deletion of accounts: closes an account, deletes its rows, and records what remains to be cancelled at the payment
//! gateway.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::administration::{DeletionStore, GatewayCancellation, PlatformEntry};
use recado_domain::shared::{AccountId, RowOutcome, StoreError, SubscriptionId, WorkOutcome};
use serde_json::json;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::platform_audit;
use super::purge::{plan_by_key, purge};
use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sql::{IdRow, sql};
use crate::transactions::in_owner;

#[derive(Clone, Debug)]
pub struct PgDeletions(OwnerPool);

impl PgDeletions {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct CancellationRow {
    #[diesel(sql_type = SqlUuid)]
    subscription_id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    gateway_subscription_id: Option<String>,
    #[diesel(sql_type = Timestamptz)]
    until: OffsetDateTime,
}

impl From<CancellationRow> for GatewayCancellation {
    fn from(row: CancellationRow) -> Self {
        Self {
            subscription_id: row.subscription_id.into(),
            gateway_subscription_id: row.gateway_subscription_id,
            until: row.until,
        }
    }
}

/// What the platform audit log keeps of a deleted account.
#[derive(QueryableByName)]
struct ClosedRow {
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Text)]
    slug: String,
    #[diesel(sql_type = Text)]
    plan: String,
}

/// Rows by which requests find the account or its members. They are deleted first, so that no request reaches data
/// that is being deleted.
const DIRECTORIES: [&str; 11] = [
    "DELETE FROM gateway_events WHERE gateway_subscription_id IN
       (SELECT gateway_subscription_id FROM gateway_subscriptions WHERE account_id = $1)",
    "DELETE FROM gateway_subscriptions WHERE account_id = $1",
    "DELETE FROM phone_number_send_slots p WHERE EXISTS
       (SELECT FROM whatsapp_numbers n WHERE n.phone_number_id = p.phone_number_id AND n.account_id = $1)
     AND NOT EXISTS
       (SELECT FROM whatsapp_numbers n WHERE n.phone_number_id = p.phone_number_id AND n.account_id <> $1)",
    "DELETE FROM whatsapp_held_messages h WHERE EXISTS
       (SELECT FROM whatsapp_numbers n WHERE n.phone_number_id = h.phone_number_id AND n.account_id = $1)
     AND NOT EXISTS
       (SELECT FROM whatsapp_numbers n WHERE n.phone_number_id = h.phone_number_id AND n.account_id <> $1)",
    "DELETE FROM whatsapp_numbers WHERE account_id = $1",
    "DELETE FROM api_key_hashes WHERE account_id = $1",
    "DELETE FROM invite_tokens WHERE account_id = $1",
    "DELETE FROM account_slugs WHERE account_id = $1",
    "DELETE FROM idempotency_keys WHERE scope = $1",
    "DELETE FROM idempotency_key_counts WHERE scope = $1",
    "DELETE FROM account_users WHERE account_id = $1",
];

async fn begin(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    lease: Duration,
    watched_until: OffsetDateTime,
    entry: &PlatformEntry,
) -> DbResult<bool> {
    let closed: Option<ClosedRow> = sql(
        "UPDATE accounts SET status = 'suspended', deleting_at = now(), updated_at = now()
         WHERE id = $1 AND deleting_at IS NULL RETURNING name, slug, plan",
    )
    .bind(account)
    .get_result(&mut *conn)
    .await
    .optional()?;
    let Some(ClosedRow { name, slug, plan }) = closed else {
        return Ok(false);
    };
    let entry = entry
        .clone()
        .with_changes(json!({ "name": name, "slug": slug, "plan": plan }));
    platform_audit::insert(conn, &entry).await?;
    sql("INSERT INTO account_deletions (account_id, due_at) VALUES ($1, now() + $2 * interval '1 microsecond')")
        .bind(account)
        .bind(lease)
        .execute(&mut *conn)
        .await?;
    sql(
        "INSERT INTO gateway_cancellations (subscription_id, account_id, gateway_subscription_id, until, due_at)
         SELECT id, account_id, gateway_subscription_id, $2, now() + $3 * interval '1 microsecond' FROM subscriptions
         WHERE account_id = $1 AND (status IN ('active', 'pending', 'past_due') OR intent IS NOT NULL)
         ON CONFLICT DO NOTHING",
    )
    .bind(account)
    .bind(watched_until)
    .bind(lease)
    .execute(&mut *conn)
    .await?;
    for statement in DIRECTORIES {
        sql(statement).bind(account).execute(&mut *conn).await?;
    }
    Ok(true)
}

async fn end(conn: &mut AsyncPgConnection, account: AccountId) -> DbResult<()> {
    // Deletes late rows that reference the account by cascade, then rows without a foreign key.
    plan_by_key(&mut *conn).await?;
    sql("DELETE FROM accounts WHERE id = $1 AND deleting_at IS NOT NULL")
        .bind(account)
        .execute(&mut *conn)
        .await?;
    while purge(&mut *conn, account).await? {}
    sql("DELETE FROM account_deletions WHERE account_id = $1")
        .bind(account)
        .execute(conn)
        .await?;
    Ok(())
}

#[async_trait]
impl DeletionStore for PgDeletions {
    async fn begin(
        &self,
        account: AccountId,
        lease: Duration,
        watched_until: OffsetDateTime,
        entry: PlatformEntry,
    ) -> Result<RowOutcome, StoreError> {
        in_owner!(self.0, |conn| begin(conn, account, lease, watched_until, &entry)).map(RowOutcome::of)
    }

    async fn claim(&self, lease: Duration) -> Result<Option<AccountId>, StoreError> {
        let statement = sql(
            "UPDATE account_deletions SET due_at = now() + $1 * interval '1 microsecond'
             WHERE account_id = (SELECT account_id FROM account_deletions WHERE due_at <= now()
               ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING account_id AS id",
        )
        .bind(lease);
        Ok(self.0.row_if_any::<IdRow>(statement).await?.map(|row| row.id.into()))
    }

    async fn purge(&self, account: AccountId, lease: Duration) -> Result<WorkOutcome, StoreError> {
        let renew =
            sql("UPDATE account_deletions SET due_at = now() + $2 * interval '1 microsecond' WHERE account_id = $1");
        self.0.run(renew.bind(account).bind(lease)).await?;
        in_owner!(self.0, |conn| purge(conn, account)).map(WorkOutcome::of)
    }

    async fn end(&self, account: AccountId) -> Result<(), StoreError> {
        in_owner!(self.0, |conn| end(conn, account))
    }

    async fn cancellations(&self, account: AccountId) -> Result<Vec<GatewayCancellation>, StoreError> {
        let statement = sql(
            "SELECT subscription_id, gateway_subscription_id, until FROM gateway_cancellations
             WHERE account_id = $1 ORDER BY subscription_id",
        )
        .bind(account);
        let rows = self.0.rows::<CancellationRow>(statement).await?;
        Ok(rows.into_iter().map(GatewayCancellation::from).collect())
    }

    async fn claim_cancellation(&self, pause: Duration) -> Result<Option<GatewayCancellation>, StoreError> {
        let statement = sql(
            "UPDATE gateway_cancellations SET due_at = now() + $1 * interval '1 microsecond'
             WHERE subscription_id = (SELECT subscription_id FROM gateway_cancellations WHERE due_at <= now()
               ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING subscription_id, gateway_subscription_id, until",
        )
        .bind(pause);
        Ok(self
            .0
            .row_if_any::<CancellationRow>(statement)
            .await?
            .map(GatewayCancellation::from))
    }

    async fn delete_cancellation(&self, id: SubscriptionId) -> Result<(), StoreError> {
        let statement = sql("DELETE FROM gateway_cancellations WHERE subscription_id = $1");
        self.0.run(statement.bind(id)).await.map(drop)
    }
}
