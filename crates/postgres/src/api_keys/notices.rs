//! The notifications about API keys: claims with a lease, and decisions that commit with their outbox events.

use std::collections::HashMap;

use async_trait::async_trait;
use diesel::pg::Pg;
use diesel::prelude::QueryableByName;
use diesel::sql_types::Timestamptz;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::api_keys::{KeyNoticeStore, NoticeClaim, NoticeDecision, NoticeTimes};
use recado_domain::shared::StoreError;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::PgApiKeys;
use crate::errors::{DbResult, parse_enum};
use crate::outbox;
use crate::schema::api_keys;
use crate::sql::{IdRow, collect_column, sql};
use crate::transactions::in_owner;

/// How long a claim holds. A batch is decided without any call to another system.
const LEASE: Duration = Duration::minutes(1);

/// Claims keys by the two indexes of notices. `SKIP LOCKED`: a key that is being changed is claimed later.
const CLAIM: &str = "WITH due AS (
      SELECT account_id, id FROM api_keys
      WHERE (expiry_notice = 'none' AND expires_at <= $3
          OR expiry_notice = 'week' AND expires_at <= $2
          OR expiry_notice = 'day' AND expires_at <= $1
          OR greatest(coalesce(last_used_at, created_at), unused_notified_at) <= $4)
        AND (notice_lease_until IS NULL OR notice_lease_until <= now())
      LIMIT $5 FOR NO KEY UPDATE SKIP LOCKED)
    UPDATE api_keys k SET notice_lease_until = now() + $6 * interval '1 microsecond'
    FROM due WHERE k.account_id = due.account_id AND k.id = due.id
    RETURNING k.account_id, k.id, k.name, k.key_hint, k.created_at, k.last_used_at, k.expires_at, k.expiry_notice,
      k.unused_notified_at, k.notice_lease_until";

#[derive(QueryableByName)]
#[diesel(table_name = api_keys, check_for_backend(Pg))]
struct ClaimRow {
    account_id: Uuid,
    id: Uuid,
    name: String,
    key_hint: String,
    created_at: OffsetDateTime,
    last_used_at: Option<OffsetDateTime>,
    expires_at: Option<OffsetDateTime>,
    expiry_notice: String,
    unused_notified_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Timestamptz)]
    notice_lease_until: OffsetDateTime,
}

impl TryFrom<ClaimRow> for NoticeClaim {
    type Error = StoreError;

    fn try_from(row: ClaimRow) -> Result<Self, StoreError> {
        Ok(Self {
            account_id: row.account_id.into(),
            id: row.id.into(),
            name: row.name,
            key_hint: row.key_hint,
            created_at: row.created_at,
            last_used_at: row.last_used_at,
            expires_at: row.expires_at,
            expiry_notice: parse_enum(&row.expiry_notice)?,
            unused_notified_at: row.unused_notified_at,
            lease_until: row.notice_lease_until,
        })
    }
}

/// The lease is the fencing token: another worker's claim has another end.
async fn record(conn: &mut AsyncPgConnection, decisions: &[NoticeDecision]) -> DbResult<()> {
    let recorded: Vec<IdRow> = sql("UPDATE api_keys k
         SET expiry_notice = d.notice, unused_notified_at = d.unused_notified_at, notice_lease_until = NULL
         FROM unnest($1, $2, $3, $4, $5, $6, $7)
           AS d (account_id, id, lease_until, expires_at, claimed_notice, notice, unused_notified_at)
         WHERE k.account_id = d.account_id AND k.id = d.id AND k.notice_lease_until = d.lease_until
           AND k.expires_at IS NOT DISTINCT FROM d.expires_at AND k.expiry_notice = d.claimed_notice
         RETURNING k.id")
    .bind(collect_column(decisions, |decision| {
        Uuid::from(decision.claim.account_id)
    }))
    .bind(collect_column(decisions, |decision| Uuid::from(decision.claim.id)))
    .bind(collect_column(decisions, |decision| decision.claim.lease_until))
    .bind(collect_column(decisions, |decision| decision.claim.expires_at))
    .bind(collect_column(decisions, |decision| {
        decision.claim.expiry_notice.as_str().to_owned()
    }))
    .bind(collect_column(decisions, |decision| {
        decision.expiry_notice.as_str().to_owned()
    }))
    .bind(collect_column(decisions, |decision| decision.unused_notified_at))
    .load(&mut *conn)
    .await?;
    let by_id: HashMap<Uuid, &NoticeDecision> = decisions
        .iter()
        .map(|decision| (decision.claim.id.into(), decision))
        .collect();
    for decision in recorded.iter().filter_map(|row| by_id.get(&row.id)) {
        outbox::append(conn, decision.claim.account_id, &decision.events).await?;
    }
    Ok(())
}

#[async_trait]
impl KeyNoticeStore for PgApiKeys {
    async fn claim(&self, times: &NoticeTimes, limit: i64) -> Result<Vec<NoticeClaim>, StoreError> {
        let query = sql(CLAIM)
            .bind(times.now)
            .bind(times.day)
            .bind(times.week)
            .bind(times.unused_since)
            .bind(limit)
            .bind(LEASE);
        let rows = self.0.rows::<ClaimRow>(query).await?;
        rows.into_iter().map(NoticeClaim::try_from).collect()
    }

    async fn record(&self, decisions: &[NoticeDecision]) -> Result<(), StoreError> {
        in_owner!(self.0, |conn| record(conn, decisions))
    }
}
