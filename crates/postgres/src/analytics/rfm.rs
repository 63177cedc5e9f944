//! RFM scores of customers, and the queue of accounts whose scores are due.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Json, Nullable, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::analytics::{RfmClaim, RfmSegment, RfmStore, RfmTotals};
use recado_domain::shared::{AccountId, StoreError};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::errors::{DbResult, corrupt};
use crate::pool::{OwnerPool, TenantPool};
use crate::sql::{IdRow, NumberRow, sql};
use crate::transactions::in_tenant;

/// A calculation reads all orders of an account and writes all of its scores.
const SCORE_TIMEOUTS: &str = "SET LOCAL statement_timeout = '10min'; SET LOCAL lock_timeout = '30s'";

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

/// Scores all customers of the account `$1`. `$2`, `$3` and `$4` are the grid: recency, frequency and segment.
/// `rank() - 1` is the number of customers below, and the integer division avoids rounding.
const SCORES: &str = "
    INSERT INTO contact_rfm
      (account_id, contact_id, recency_score, frequency_score, monetary_score, segment, calculated_at)
    SELECT $1, k.contact_id, k.recency, k.frequency, k.monetary, g.segment, now()
    FROM (SELECT contact_id, score.recency, score.frequency, score.monetary
      FROM (SELECT contact_id, rank() OVER (ORDER BY last_at) - 1 AS earlier,
          rank() OVER (ORDER BY orders) - 1 AS fewer, rank() OVER (ORDER BY spend) - 1 AS less,
          greatest(count(*) OVER () - 1, 1) AS others
        FROM (SELECT o.contact_id, max(o.paid_at) AS last_at, count(*) AS orders, sum(o.total) AS spend
          FROM orders o
          JOIN contacts c ON c.account_id = o.account_id AND c.id = o.contact_id AND c.deleted_at IS NULL
          WHERE o.account_id = $1 AND o.status = 'paid' GROUP BY o.contact_id) AS customers) AS ranked
      CROSS JOIN LATERAL (SELECT least(5, 1 + 5 * earlier / others)::int AS recency,
        least(5, 1 + 5 * fewer / others)::int AS frequency, least(5, 1 + 5 * less / others)::int AS monetary) AS score
    ) AS k
    JOIN unnest($2, $3, $4) AS g (recency, frequency, segment) USING (recency, frequency)
    ORDER BY k.contact_id
    ON CONFLICT (account_id, contact_id) DO UPDATE SET recency_score = excluded.recency_score,
      frequency_score = excluded.frequency_score, monetary_score = excluded.monetary_score,
      segment = excluded.segment, calculated_at = excluded.calculated_at";

/// Replaces all scores, with the transaction's time. Returns false if the account has too few orders for scores.
async fn score(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    grid: &[(i32, i32, RfmSegment)],
    min_orders: i64,
) -> DbResult<bool> {
    conn.batch_execute(SCORE_TIMEOUTS).await?;
    let orders: NumberRow = sql(ORDERS).bind(account).get_result(&mut *conn).await?;
    if orders.n >= min_orders {
        sql(SCORES)
            .bind(account)
            .bind(grid.iter().map(|(recency, ..)| *recency).collect::<Vec<_>>())
            .bind(grid.iter().map(|(_, frequency, _)| *frequency).collect::<Vec<_>>())
            .bind(
                grid.iter()
                    .map(|(.., segment)| segment.as_str().to_owned())
                    .collect::<Vec<_>>(),
            )
            .execute(&mut *conn)
            .await?;
    }
    for statement in [
        "DELETE FROM contact_rfm WHERE account_id = $1 AND calculated_at <> now()",
        "DELETE FROM rfm_counts WHERE account_id = $1",
        "INSERT INTO rfm_counts (account_id, segment, contacts)
         SELECT $1, segment, count(*) FROM contact_rfm WHERE account_id = $1 GROUP BY segment",
    ] {
        sql(statement).bind(account).execute(&mut *conn).await?;
    }
    Ok(orders.n >= min_orders)
}

/// Completes the claim. The schedule row is written last, so that a concurrent `request` does not wait for the
/// calculation. False: another worker took over the claim, and the caller rolls back. Without scores, `calculated_at`
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

    async fn renew(&self, claim: &RfmClaim, lease: Duration) -> Result<bool, StoreError> {
        let statement = sql(
            "UPDATE rfm_calculations SET leased_until = now() + $3 * interval '1 microsecond'
             WHERE account_id = $1 AND worker = $2",
        )
        .bind(claim.account_id)
        .bind(claim.worker)
        .bind(lease);
        Ok(self.tenants.run(claim.account_id, statement).await? == 1)
    }

    async fn calculate(
        &self,
        claim: &RfmClaim,
        grid: &[(i32, i32, RfmSegment)],
        min_orders: i64,
        next: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        in_tenant!(
            self.tenants,
            claim.account_id,
            |conn| async {
                let scored = score(conn, claim.account_id, grid, min_orders).await?;
                complete(conn, claim, next, scored).await
            },
            unless false
        )
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
