//! RFM scores of customers, and the queue of accounts whose scores are due.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Json, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::analytics::{RfmClaim, RfmSegment, RfmStore, RfmTotals};
use recado_domain::shared::{AccountId, LeaseOutcome, StoreError};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::errors::{DbResult, corrupt};
use crate::pool::{OwnerPool, TenantPool};
use crate::sql::{IdRow, NumberRow, collect_column, key_rows, sql};
use crate::transactions::in_tenant;

/// The ranking reads all orders of an account. It writes only the scores that differ.
const STAGE_TIMEOUTS: &str = "SET LOCAL statement_timeout = '5min'; SET LOCAL lock_timeout = '30s'";

/// Changed scores in one transaction.
const BATCH_SIZE: i64 = 2000;

/// RFM scores and their schedule.
#[derive(Clone, Debug)]
pub struct PgRfm {
    tenants: TenantPool,
    owner: OwnerPool,
}

impl PgRfm {
    /// `owner` claims due calculations across accounts.
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self {
            tenants: tenants.with_custom_plans(),
            owner,
        }
    }
}

#[derive(QueryableByName)]
struct RfmTotalsRow {
    #[diesel(sql_type = BigInt)]
    orders: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    calculated_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Json)]
    sizes: Value,
}

const TOTALS: &str = "
    SELECT (SELECT coalesce(sum(paid), 0)::bigint FROM order_rollups WHERE account_id = $1
      AND bucket_minutes = 1440) AS orders,
      (SELECT calculated_at FROM rfm_calculations WHERE account_id = $1) AS calculated_at,
      (SELECT coalesce(json_agg(json_build_array(segment, contacts)), '[]')
       FROM rfm_counts WHERE account_id = $1) AS sizes";

/// Counts the paid orders of the account `$1`.
const ORDERS: &str =
    "SELECT coalesce(sum(paid), 0)::bigint AS n FROM order_rollups WHERE account_id = $1 AND bucket_minutes = 1440";

/// `rank() - 1` is the number of customers below, and the integer division avoids rounding.
const CHANGES: &str = include_str!("rfm_changes.sql");

/// Stages the removal of all scores.
const REMOVALS: &str = "
    INSERT INTO rfm_changes (account_id, worker, contact_id)
    SELECT $1, $2, contact_id FROM contact_rfm WHERE account_id = $1
    ON CONFLICT DO NOTHING";

/// Stages what has to be written, in a transaction of its own. Returns false if the account has too few orders for
/// scores.
async fn stage(
    conn: &mut AsyncPgConnection,
    claim: &RfmClaim,
    grid: &[(i32, i32, RfmSegment)],
    min_orders: i64,
) -> DbResult<bool> {
    conn.batch_execute(STAGE_TIMEOUTS).await?;
    // Also removes what another worker left behind.
    sql("DELETE FROM rfm_changes WHERE account_id = $1")
        .bind(claim.account_id)
        .execute(&mut *conn)
        .await?;
    let orders: NumberRow = sql(ORDERS).bind(claim.account_id).get_result(&mut *conn).await?;
    let is_scored = orders.n >= min_orders;
    let statement = match is_scored {
        false => sql(REMOVALS).bind(claim.account_id).bind(claim.worker),
        true => sql(CHANGES)
            .bind(claim.account_id)
            .bind(claim.worker)
            .bind(collect_column(grid, |(recency, ..)| *recency))
            .bind(collect_column(grid, |(_, frequency, _)| *frequency))
            .bind(collect_column(grid, |(.., segment)| segment.as_str().to_owned())),
    };
    statement.execute(conn).await?;
    Ok(is_scored)
}

/// A staged change.
#[derive(QueryableByName)]
struct ChangeRow {
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Nullable<Text>)]
    segment: Option<String>,
    #[diesel(sql_type = Nullable<SmallInt>)]
    recency_score: Option<i16>,
    #[diesel(sql_type = Nullable<SmallInt>)]
    frequency_score: Option<i16>,
    #[diesel(sql_type = Nullable<SmallInt>)]
    monetary_score: Option<i16>,
}

/// Whether the worker holds the claim. The row stays locked, so that no other worker takes over before the transaction ends.
async fn holds_claim(conn: &mut AsyncPgConnection, claim: &RfmClaim) -> DbResult<bool> {
    let held: Option<IdRow> =
        sql("SELECT account_id AS id FROM rfm_calculations WHERE account_id = $1 AND worker = $2 FOR SHARE")
            .bind(claim.account_id)
            .bind(claim.worker)
            .get_result(conn)
            .await
            .optional()?;
    Ok(held.is_some())
}

/// The outcome of writing a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Batch {
    Written,
    NoneLeft,
    /// Another worker took over the claim.
    ClaimLost,
}

/// Writes the first `BATCH_SIZE` staged changes, ordered by contact.
async fn write_batch(conn: &mut AsyncPgConnection, claim: &RfmClaim) -> DbResult<Batch> {
    if !holds_claim(conn, claim).await? {
        return Ok(Batch::ClaimLost);
    }
    let changes: Vec<ChangeRow> = sql(
        "SELECT contact_id, segment, recency_score, frequency_score, monetary_score FROM rfm_changes
         WHERE account_id = $1 AND worker = $2 ORDER BY contact_id LIMIT $3",
    )
    .bind(claim.account_id)
    .bind(claim.worker)
    .bind(BATCH_SIZE)
    .load(&mut *conn)
    .await?;
    let Some(last) = changes.last().map(|change| change.contact_id) else {
        return Ok(Batch::NoneLeft);
    };
    change_sizes(conn, claim.account_id, &changes).await?;
    let (scored, unscored): (Vec<_>, Vec<_>) = changes.into_iter().partition(|change| change.segment.is_some());
    let score = |score: Option<i16>| score.map(i32::from);
    sql(
        "INSERT INTO contact_rfm (account_id, contact_id, recency_score, frequency_score, monetary_score, segment)
         SELECT $1, n.* FROM unnest($2, $3, $4, $5, $6) AS n (contact_id, recency, frequency, monetary, segment)
         ON CONFLICT (account_id, contact_id) DO UPDATE SET recency_score = excluded.recency_score,
           frequency_score = excluded.frequency_score, monetary_score = excluded.monetary_score,
           segment = excluded.segment",
    )
    .bind(claim.account_id)
    .bind(collect_column(&scored, |change| change.contact_id))
    .bind(collect_column(&scored, |change| score(change.recency_score)))
    .bind(collect_column(&scored, |change| score(change.frequency_score)))
    .bind(collect_column(&scored, |change| score(change.monetary_score)))
    .bind(collect_column(&scored, |change| change.segment.clone()))
    .execute(&mut *conn)
    .await?;
    sql(format!(
        "DELETE FROM contact_rfm r USING {keys} k WHERE r.account_id = $1 AND r.contact_id = k.contact_id",
        keys = key_rows("$2", "contact_id"),
    ))
    .bind(claim.account_id)
    .bind(collect_column(&unscored, |change| change.contact_id))
    .execute(&mut *conn)
    .await?;
    sql("DELETE FROM rfm_changes WHERE account_id = $1 AND worker = $2 AND contact_id <= $3")
        .bind(claim.account_id)
        .bind(claim.worker)
        .bind(last)
        .execute(conn)
        .await?;
    Ok(Batch::Written)
}

/// Changes the sizes of RFM segments by the staged changes, before they are written: the sizes are exact after every
/// batch.
async fn change_sizes(conn: &mut AsyncPgConnection, account: AccountId, changes: &[ChangeRow]) -> DbResult<()> {
    let text = format!(
        "WITH moved AS (
           SELECT r.segment, -1 AS contacts FROM {keys} k
           JOIN contact_rfm r ON r.account_id = $1 AND r.contact_id = k.contact_id
           UNION ALL
           SELECT n.segment, 1 FROM unnest($3) AS n (segment) WHERE n.segment IS NOT NULL)
         INSERT INTO rfm_counts AS n (account_id, segment, contacts)
         SELECT $1, segment, sum(contacts) FROM moved GROUP BY segment ORDER BY segment
         ON CONFLICT (account_id, segment) DO UPDATE SET contacts = n.contacts + excluded.contacts",
        keys = key_rows("$2", "contact_id"),
    );
    sql(text)
        .bind(account)
        .bind(collect_column(changes, |change| change.contact_id))
        .bind(collect_column(changes, |change| change.segment.clone()))
        .execute(&mut *conn)
        .await?;
    sql("DELETE FROM rfm_counts WHERE account_id = $1 AND contacts = 0")
        .bind(account)
        .execute(conn)
        .await?;
    Ok(())
}

/// Completes the claim. False: another worker took over the claim. Without scores, `calculated_at`
/// becomes null.
async fn complete(
    conn: &mut AsyncPgConnection,
    claim: &RfmClaim,
    next: OffsetDateTime,
    scored: bool,
) -> DbResult<bool> {
    let updated = sql("UPDATE rfm_calculations
         SET calculated_at = CASE WHEN $4 THEN now() END, due_at = $3, worker = NULL, leased_until = NULL
         WHERE account_id = $1 AND worker = $2")
    .bind(claim.account_id)
    .bind(claim.worker)
    .bind(next)
    .bind(scored)
    .execute(conn)
    .await?;
    Ok(updated == 1)
}

#[async_trait]
impl RfmStore for PgRfm {
    async fn totals(&self, account: AccountId) -> Result<RfmTotals, StoreError> {
        let statement = sql(TOTALS).bind(account);
        let row: RfmTotalsRow = self.tenants.read_row(account, statement).await?;
        Ok(RfmTotals {
            orders: row.orders,
            calculated_at: row.calculated_at,
            sizes: serde_json::from_value(row.sizes).map_err(corrupt)?,
        })
    }

    async fn request(&self, account: AccountId) -> Result<(), StoreError> {
        let statement = sql(
            "INSERT INTO rfm_calculations AS r (account_id, due_at) VALUES ($1, now())
             ON CONFLICT (account_id) DO UPDATE SET due_at = excluded.due_at WHERE r.due_at > excluded.due_at",
        )
        .bind(account);
        self.tenants.run(account, statement).await.map(drop)
    }

    async fn unplanned(&self, limit: i64) -> Result<Vec<AccountId>, StoreError> {
        let statement = sql("SELECT a.id FROM accounts a
             WHERE NOT EXISTS (SELECT FROM rfm_calculations r WHERE r.account_id = a.id) LIMIT $1");
        let rows: Vec<IdRow> = self.owner.rows(statement.bind(limit)).await?;
        Ok(rows.into_iter().map(|row| row.id.into()).collect())
    }

    async fn plan(&self, due: &[(AccountId, OffsetDateTime)]) -> Result<(), StoreError> {
        // The account may have been deleted meanwhile.
        let statement = sql("INSERT INTO rfm_calculations (account_id, due_at)
             SELECT p.account_id, p.due_at FROM unnest($1, $2) AS p (account_id, due_at)
             JOIN accounts a ON a.id = p.account_id
             ON CONFLICT DO NOTHING")
        .bind(due.iter().map(|(account, _)| account.0).collect::<Vec<_>>())
        .bind(due.iter().map(|(_, due_at)| *due_at).collect::<Vec<_>>());
        self.owner.run(statement).await.map(drop)
    }

    async fn claim(&self, worker: Uuid, lease: Duration) -> Result<Option<AccountId>, StoreError> {
        let statement = sql(
            "UPDATE rfm_calculations SET worker = $1, leased_until = now() + $2 * interval '1 microsecond'
             WHERE account_id = (SELECT account_id FROM rfm_calculations
               WHERE due_at <= now() AND (leased_until IS NULL OR leased_until <= now())
               ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED)
             RETURNING account_id AS id",
        );
        let claimed: Option<IdRow> = self.owner.row_if_any(statement.bind(worker).bind(lease)).await?;
        Ok(claimed.map(|row| row.id.into()))
    }

    async fn renew(&self, claim: &RfmClaim, lease: Duration) -> Result<LeaseOutcome, StoreError> {
        let statement = sql(
            "UPDATE rfm_calculations SET leased_until = now() + $3 * interval '1 microsecond'
             WHERE account_id = $1 AND worker = $2",
        )
        .bind(claim.account_id)
        .bind(claim.worker)
        .bind(lease);
        Ok(LeaseOutcome::of(
            self.tenants.run(claim.account_id, statement).await? == 1,
        ))
    }

    async fn calculate(
        &self,
        claim: &RfmClaim,
        grid: &[(i32, i32, RfmSegment)],
        min_orders: i64,
        next: OffsetDateTime,
    ) -> Result<LeaseOutcome, StoreError> {
        let account = claim.account_id;
        let is_scored = in_tenant!(self.tenants, account, |conn| stage(conn, claim, grid, min_orders))?;
        loop {
            match in_tenant!(self.tenants, account, |conn| write_batch(conn, claim))? {
                Batch::Written => {}
                Batch::NoneLeft => break,
                Batch::ClaimLost => return Ok(LeaseOutcome::Lost),
            }
        }
        in_tenant!(self.tenants, account, |conn| complete(conn, claim, next, is_scored)).map(LeaseOutcome::of)
    }

    async fn postpone(&self, claim: &RfmClaim, until: OffsetDateTime) -> Result<(), StoreError> {
        let statement = sql(
            "UPDATE rfm_calculations SET due_at = $3, worker = NULL, leased_until = NULL
             WHERE account_id = $1 AND worker = $2",
        )
        .bind(claim.account_id)
        .bind(claim.worker)
        .bind(until);
        self.tenants.run(claim.account_id, statement).await.map(drop)
    }
}
