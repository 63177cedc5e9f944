//! The platform audit log: entries are inserted in the transaction of the change and never changed.

use async_trait::async_trait;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::administration::{PlatformAuditFilter, PlatformAuditLog, PlatformAuditStore, PlatformEntry};
use recado_domain::shared::{Page, PageQuery, StoreError};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::pool::OwnerPool;
use crate::sql::{Sql, sql};

#[derive(Clone, Debug)]
pub struct PgPlatformAudit(OwnerPool);

impl PgPlatformAudit {
    pub fn new(pool: OwnerPool) -> Self {
        Self(pool)
    }
}

/// Inserts an entry in the caller's transaction, with the time at which that began.
pub(crate) async fn insert(conn: &mut AsyncPgConnection, entry: &PlatformEntry) -> DbResult<()> {
    sql("INSERT INTO platform_audit
           (id, user_id, email, action, entity_type, entity_id, account_id, changes, ip_address, request_id)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
    .bind(entry.id.0)
    .bind(entry.user_id)
    .bind(entry.email.as_str())
    .bind(entry.action.as_str())
    .bind(entry.entity.as_str())
    .bind(entry.entity_id)
    .bind(entry.account_id)
    .bind(entry.changes.clone())
    .bind(entry.ip_address.as_deref())
    .bind(entry.request_id.as_deref())
    .execute(conn)
    .await?;
    Ok(())
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
    email: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    action: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    entity_type: Option<String>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    entity_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    account_id: Option<Uuid>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    changes: Option<Value>,
    #[diesel(sql_type = Nullable<Text>)]
    ip_address: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    request_id: Option<String>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    created_at: Option<OffsetDateTime>,
}

impl Row {
    fn entry(self) -> Option<PlatformAuditLog> {
        Some(PlatformAuditLog {
            id: self.id?.into(),
            user_id: self.user_id?.into(),
            email: self.email?,
            action: self.action?,
            entity_type: self.entity_type?,
            entity_id: self.entity_id,
            account_id: self.account_id.map(Into::into),
            changes: self.changes,
            ip_address: self.ip_address,
            request_id: self.request_id,
            created_at: self.created_at?,
        })
    }
}

/// One page and the total, in one statement and therefore of one snapshot. Only the conditions of given filters are in
/// the statement, so that each is planned with its index.
fn page_of(filter: &PlatformAuditFilter, page: PageQuery) -> Sql<'_> {
    let mut conditions = vec!["true".to_owned()];
    let mut parameter = 2;
    for (condition, is_given) in [
        ("action =", filter.action.is_some()),
        ("entity_type =", filter.entity_type.is_some()),
        ("account_id =", filter.account_id.is_some()),
        ("user_id =", filter.user_id.is_some()),
        ("created_at >=", filter.since.is_some()),
        ("created_at <=", filter.until.is_some()),
    ] {
        if is_given {
            parameter += 1;
            conditions.push(format!("{condition} ${parameter}"));
        }
    }
    let condition = conditions.join(" AND ");
    let statement = sql(format!(
        "SELECT t.n AS total, l.* FROM (SELECT count(*) AS n FROM platform_audit WHERE {condition}) t
         LEFT JOIN (SELECT * FROM platform_audit WHERE {condition}
           ORDER BY created_at DESC, id DESC LIMIT $1 OFFSET $2) l ON true
         ORDER BY l.created_at DESC, l.id DESC"
    ));
    let statement = statement.bind(page.limit()).bind(page.offset());
    let texts = [&filter.action, &filter.entity_type].into_iter().flatten();
    let statement = texts.fold(statement, |statement, text| statement.bind(text.as_str()));
    let ids = [filter.account_id.map(|id| id.0), filter.user_id.map(|id| id.0)];
    let statement = ids
        .into_iter()
        .flatten()
        .fold(statement, |statement, id| statement.bind(id));
    let times = [filter.since, filter.until];
    times
        .into_iter()
        .flatten()
        .fold(statement, |statement, at| statement.bind(at))
}

#[async_trait]
impl PlatformAuditStore for PgPlatformAudit {
    async fn page(&self, filter: &PlatformAuditFilter, page: PageQuery) -> Result<Page<PlatformAuditLog>, StoreError> {
        let rows = self.0.rows::<Row>(page_of(filter, page)).await?;
        let total = rows.as_slice().first().map_or(0, |row| row.total);
        Ok(Page::new(
            page,
            rows.into_iter().filter_map(Row::entry).collect(),
            total,
        ))
    }
}
