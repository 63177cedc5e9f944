//! The audit log. It is read on the owner pool, which row-level security does not bind, so every condition of every
//! statement names the account.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use recado_domain::audit::{AuditFilter, AuditLog, AuditStore};
use recado_domain::shared::{AccountId, EventKind, Page, PageQuery, StoreError};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::outbox::PgOutbox;
use crate::pool::OwnerPool;
use crate::sql::sql;

#[derive(Clone, Debug)]
pub struct PgAudit {
    pool: OwnerPool,
    outbox: PgOutbox,
}

impl PgAudit {
    pub fn new(pool: OwnerPool) -> Self {
        Self {
            outbox: PgOutbox::new(pool.clone()),
            pool,
        }
    }
}

/// An entry and the total; an empty page has one row with the total only.
#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    total: i64,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    user_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Text>)]
    action: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    entity_type: Option<String>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    entity_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    changes: Option<Value>,
    #[diesel(sql_type = Nullable<Text>)]
    ip_address: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    created_at: Option<OffsetDateTime>,
}

impl Row {
    fn entry(self, account_id: AccountId) -> Option<AuditLog> {
        Some(AuditLog {
            id: self.id?.into(),
            account_id,
            user_id: self.user_id.map(Into::into),
            action: self.action?,
            entity_type: self.entity_type?,
            entity_id: self.entity_id,
            changes: self.changes,
            ip_address: self.ip_address,
            created_at: self.created_at?,
        })
    }
}

/// One page and the total, in one statement and therefore of one snapshot.
///
/// The total is exact in both cases. Below 100,000 the rows are counted, which includes rows that were written by
/// other means. From 100,000 on, counting would take longer than reading the page, so the stored counts are used. The
/// statement that counts also chooses: between two statements the relay could move the number over the limit, and
/// both results would be wrong.
///
/// The keys of the page are read from an index alone, also far down the list, and only then the rows, one lookup each.
/// The newest month is read first, and earlier months only if the page reaches them.
fn page_of(filter: &AuditFilter) -> String {
    let mut condition = "account_id = $1".to_owned();
    let mut parameter = 3;
    for (column, value) in [("entity_type", &filter.entity_type), ("action", &filter.action)] {
        if value.is_some() {
            parameter += 1;
            condition.push_str(&format!(" AND {column} = ${parameter}"));
        }
    }
    format!(
        "SELECT t.n AS total, l.id, l.user_id, l.action, l.entity_type, l.entity_id, l.changes, l.ip_address,
           l.created_at
         FROM (SELECT CASE WHEN stored.n >= 100000 THEN stored.n
                 ELSE (SELECT count(*) FROM audit_logs WHERE {condition}) END AS n
               FROM (SELECT coalesce(sum(n), 0)::bigint AS n FROM audit_counts WHERE {condition}) stored) t
         LEFT JOIN (
           (SELECT created_at AS time, id AS key FROM audit_logs WHERE {condition}
            ORDER BY created_at DESC, id DESC LIMIT $2 OFFSET $3) k
           CROSS JOIN LATERAL (SELECT * FROM audit_logs
             WHERE account_id = $1 AND created_at = k.time AND id = k.key LIMIT 1) l) ON true
         ORDER BY l.created_at DESC, l.id DESC"
    )
}

#[async_trait]
impl AuditStore for PgAudit {
    async fn page(
        &self,
        account: AccountId,
        filter: &AuditFilter,
        page: PageQuery,
    ) -> Result<Page<AuditLog>, StoreError> {
        if let Err(error) = self.outbox.catch_up(EventKind::Audit, account).await {
            tracing::warn!(cause = ?error, "the audit log is read without events that are still in the outbox");
        }
        let mut query = sql(page_of(filter))
            .bind(account)
            .bind(page.limit())
            .bind(page.offset());
        for value in [&filter.entity_type, &filter.action].into_iter().flatten() {
            query = query.bind(value.as_str());
        }
        let rows = self.pool.rows::<Row>(query).await?;
        let total = rows.as_slice().first().map_or(0, |row| row.total);
        let entries = rows.into_iter().filter_map(|row| row.entry(account)).collect();
        Ok(Page::new(page, entries, total))
    }
}
