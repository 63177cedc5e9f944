//! The terms of accounts, their runs, the rows that leave, and the archives of sends.

mod archives;
mod conditions;
mod counts;
mod direct_messages;
mod file_row;
mod files;
mod rows;

use async_trait::async_trait;
use diesel::OptionalExtension as _;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Jsonb, Nullable, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::retention::{
    ReleasedFile, RemovalCounts, RemovedRows, RetainedRows, RetentionBounds, RetentionClaim, RetentionKind,
    RetentionRuns, RetentionState, RetentionStore, RetentionTerms, RowBatch,
};
use recado_domain::shared::{AccountId, Event, StoreError};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::errors::{DbResult, corrupt, failed};
use crate::outbox;
use crate::pool::{OwnerPool, TenantPool};
use crate::sql::sql;
use crate::transactions::{in_owner, in_tenant};

pub(crate) use file_row::FileRow;

/// The most accounts without a row that one claim gives a run, where the operator forces a term.
const FORCED_ACCOUNTS: i64 = 1000;

/// The store of retention. Tenants read and change their terms; the runs use the owner pool.
#[derive(Clone, Debug)]
pub struct PgRetention {
    tenants: TenantPool,
    owner: OwnerPool,
}

impl PgRetention {
    pub fn new(tenants: TenantPool, owner: OwnerPool) -> Self {
        Self { tenants, owner }
    }
}

#[derive(QueryableByName)]
struct StateRow {
    #[diesel(sql_type = Jsonb)]
    terms: Value,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    last_run_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    next_run_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Jsonb)]
    would_remove: Value,
}

#[derive(QueryableByName)]
struct ClaimRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = Jsonb)]
    terms: Value,
    #[diesel(sql_type = BigInt)]
    version: i64,
    #[diesel(sql_type = Timestamptz)]
    now: OffsetDateTime,
}

fn stored_terms(terms: Value) -> Result<RetentionTerms, StoreError> {
    serde_json::from_value(terms).map_err(corrupt)
}

#[async_trait]
impl RetentionStore for PgRetention {
    async fn find(&self, account: AccountId) -> Result<RetentionState, StoreError> {
        let query = sql(
            "SELECT terms, version, last_run_at, next_run_at, would_remove FROM retention_settings
             WHERE account_id = $1",
        )
        .bind(account);
        let Some(row) = self.tenants.read_row_if_any::<StateRow, _>(account, query).await? else {
            return Ok(RetentionState::default());
        };
        Ok(RetentionState {
            terms: stored_terms(row.terms)?,
            version: row.version,
            last_run_at: row.last_run_at,
            next_run_at: row.next_run_at,
            would_remove: serde_json::from_value(row.would_remove).map_err(corrupt)?,
        })
    }

    async fn update(
        &self,
        account: AccountId,
        terms: &RetentionTerms,
        version: i64,
        next_run_at: Option<OffsetDateTime>,
        events: &[Event],
    ) -> Result<bool, StoreError> {
        let terms = serde_json::to_value(terms).map_err(failed)?;
        in_tenant!(self.tenants, account, |conn| update(
            conn,
            account,
            &terms,
            version,
            next_run_at,
            events
        ))
    }
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    terms: &Value,
    version: i64,
    next_run_at: Option<OffsetDateTime>,
    events: &[Event],
) -> DbResult<bool> {
    let written = sql(
        "INSERT INTO retention_settings AS r (account_id, terms, version, next_run_at) VALUES ($1, $2, 1, $4)
         ON CONFLICT (account_id) DO UPDATE
           SET terms = excluded.terms, version = r.version + 1, next_run_at = excluded.next_run_at, updated_at = now()
           WHERE r.version = $3",
    )
    .bind(account)
    .bind(terms.clone())
    .bind(version)
    .bind(next_run_at)
    .execute(&mut *conn)
    .await?;
    if written == 0 {
        return Ok(false);
    }
    outbox::append(conn, account, events).await?;
    Ok(true)
}

/// Gives accounts without a row a run.
async fn insert_forced(conn: &mut AsyncPgConnection) -> DbResult<()> {
    sql("INSERT INTO retention_settings (account_id, next_run_at)
         SELECT a.id, now() FROM accounts a WHERE a.deleting_at IS NULL
           AND NOT EXISTS (SELECT FROM retention_settings r WHERE r.account_id = a.id)
         LIMIT $1 ON CONFLICT DO NOTHING")
    .bind(FORCED_ACCOUNTS)
    .execute(&mut *conn)
    .await?;
    // Their terms are null, and so was the operator's when they were set.
    sql("UPDATE retention_settings SET next_run_at = now() WHERE account_id IN
           (SELECT account_id FROM retention_settings WHERE next_run_at IS NULL LIMIT $1)")
    .bind(FORCED_ACCOUNTS)
    .execute(conn)
    .await?;
    Ok(())
}

async fn claim(
    conn: &mut AsyncPgConnection,
    claim: Uuid,
    lease: Duration,
    is_forced: bool,
) -> DbResult<Option<RetentionClaim>> {
    if is_forced {
        insert_forced(&mut *conn).await?;
    }
    let row: Option<ClaimRow> = sql(
        "UPDATE retention_settings SET claim_id = $1, leased_until = now() + $2 * interval '1 microsecond'
         WHERE account_id = (SELECT account_id FROM retention_settings
           WHERE next_run_at <= now() AND (leased_until IS NULL OR leased_until <= now())
           ORDER BY next_run_at LIMIT 1 FOR UPDATE SKIP LOCKED)
         RETURNING account_id, terms, version, now() AS now",
    )
    .bind(claim)
    .bind(lease)
    .get_result(conn)
    .await
    .optional()?;
    let Some(row) = row else { return Ok(None) };
    Ok(Some(RetentionClaim {
        account_id: row.account_id.into(),
        claim,
        version: row.version,
        terms: stored_terms(row.terms)?,
        now: row.now,
    }))
}

#[async_trait]
impl RetentionRuns for PgRetention {
    async fn claim(
        &self,
        id: Uuid,
        lease: Duration,
        bounds: &RetentionBounds,
    ) -> Result<Option<RetentionClaim>, StoreError> {
        let is_forced = bounds.force_days.is_some();
        in_owner!(self.owner, |conn| claim(conn, id, lease, is_forced))
    }

    async fn renew(&self, claim: &RetentionClaim, lease: Duration) -> Result<bool, StoreError> {
        let statement = sql(
            "UPDATE retention_settings SET leased_until = now() + $4 * interval '1 microsecond'
             WHERE account_id = $1 AND claim_id = $2 AND version = $3",
        )
        .bind(claim.account_id)
        .bind(claim.claim)
        .bind(claim.version)
        .bind(lease);
        Ok(self.owner.run(statement).await? > 0)
    }

    async fn remove(
        &self,
        account: AccountId,
        rows: RetainedRows,
        horizon: OffsetDateTime,
        batch: RowBatch,
    ) -> Result<RemovedRows, StoreError> {
        in_owner!(self.owner, |conn| rows::remove(conn, account, rows, horizon, batch))
    }

    async fn release_files(
        &self,
        account: AccountId,
        horizon: OffsetDateTime,
        limit: i64,
    ) -> Result<Vec<ReleasedFile>, StoreError> {
        in_owner!(self.owner, |conn| files::release(conn, account, horizon, limit))
    }

    async fn record_deleted(&self, account: AccountId, files: &[ReleasedFile]) -> Result<(), StoreError> {
        self.owner.run(files::record_deleted(account, files)).await.map(drop)
    }

    async fn count(&self, account: AccountId, kind: RetentionKind, horizon: OffsetDateTime) -> Result<i64, StoreError> {
        counts::count(&self.owner, account, kind, horizon).await
    }

    async fn end(
        &self,
        claim: &RetentionClaim,
        next_run_at: Option<OffsetDateTime>,
        counts: Option<RemovalCounts>,
    ) -> Result<(), StoreError> {
        let counts = counts.map(serde_json::to_value).transpose().map_err(failed)?;
        let statement = sql("UPDATE retention_settings SET claim_id = NULL, leased_until = NULL,
               next_run_at = CASE WHEN version = $3 THEN $4 ELSE next_run_at END,
               last_run_at = CASE WHEN $5 IS NULL THEN last_run_at ELSE now() END,
               would_remove = coalesce($5, would_remove)
             WHERE account_id = $1 AND claim_id = $2")
        .bind(claim.account_id)
        .bind(claim.claim)
        .bind(claim.version)
        .bind(next_run_at)
        .bind(counts);
        self.owner.run(statement).await.map(drop)
    }
}
