//! Segments and their number of contacts.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::segments::{AudienceFilters, MembersAdded, Segment, SegmentChange, SegmentDraft, SegmentStore};
use recado_domain::shared::{AccountId, ContactId, CursorPage, CursorQuery, SegmentId, StoreError};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::membership::{CONDITIONS, count};
use crate::errors::{DbError, DbResult, corrupt, failed};
use crate::pool::TenantPool;
use crate::sql::{IdRow, NumberRow, Sql, key_rows, sql, uuids};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgSegments(TenantPool);

impl PgSegments {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }
}

#[derive(QueryableByName)]
struct SegmentRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    description: Option<String>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    filters: Option<Value>,
    #[diesel(sql_type = BigInt)]
    members: i64,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    updated_at: OffsetDateTime,
}

impl TryFrom<SegmentRow> for Segment {
    type Error = StoreError;

    fn try_from(row: SegmentRow) -> Result<Self, StoreError> {
        let filters: Option<AudienceFilters> = match row.filters {
            None => None,
            Some(filters) => serde_json::from_value(filters).map_err(corrupt)?,
        };
        Ok(Self {
            id: row.id.into(),
            name: row.name,
            description: row.description,
            filters: filters.unwrap_or_default(),
            members: row.members,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

/// Selects segments of `$1` with their number of contacts, newest first. The page is cut before contacts are counted.
fn segments(part: &str) -> String {
    format!(
        "WITH part AS MATERIALIZED (
           SELECT s.id, s.name, s.description, s.filters, s.created_at, s.updated_at, {CONDITIONS}
           FROM segments s WHERE s.account_id = $1 AND s.deleted_at IS NULL AND {part})
         SELECT p.id, p.name, p.description, p.filters, p.created_at, p.updated_at, {count} AS members
         FROM part p ORDER BY p.id DESC",
        count = count("p")
    )
}

fn segment_query<'a>(account: AccountId, id: SegmentId) -> Sql<'a> {
    sql(segments("s.id = $2")).bind(account).bind(id)
}

async fn find(conn: &mut AsyncPgConnection, account: AccountId, id: SegmentId) -> DbResult<Option<Segment>> {
    let row: Option<SegmentRow> = segment_query(account, id).get_result(conn).await.optional()?;
    Ok(row.map(Segment::try_from).transpose()?)
}

fn stored(filters: &AudienceFilters) -> DbResult<Value> {
    Ok(serde_json::to_value(filters).map_err(failed)?)
}

async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: SegmentId,
    draft: &SegmentDraft,
    now: OffsetDateTime,
) -> DbResult<Segment> {
    sql(
        "INSERT INTO segments (account_id, id, name, description, filters, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $6)",
    )
    .bind(account)
    .bind(id)
    .bind(draft.name.as_str())
    .bind(draft.description.as_deref())
    .bind(stored(&draft.filters)?)
    .bind(now)
    .execute(&mut *conn)
    .await?;
    let inserted = find(conn, account, id).await?;
    inserted.ok_or(DbError::Database(diesel::result::Error::NotFound))
}

async fn update(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: SegmentId,
    change: &SegmentChange,
    now: OffsetDateTime,
) -> DbResult<Option<Segment>> {
    sql(
        "UPDATE segments SET name = coalesce($3, name), description = CASE WHEN $4 THEN $5 ELSE description END,
           filters = coalesce($6, filters), updated_at = $7
         WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL",
    )
    .bind(account)
    .bind(id)
    .bind(change.name.as_deref())
    .bind(change.description.is_some())
    .bind(change.description.clone().flatten())
    .bind(change.filters.as_ref().map(stored).transpose()?)
    .bind(now)
    .execute(&mut *conn)
    .await?;
    find(conn, account, id).await
}

/// Locks the segment until the transaction ends, so that changes of its members are applied one after the other.
/// False: the segment does not exist.
async fn lock(conn: &mut AsyncPgConnection, account: AccountId, id: SegmentId) -> DbResult<bool> {
    let locked: Option<IdRow> =
        sql("SELECT id FROM segments WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE")
            .bind(account)
            .bind(id)
            .get_result(conn)
            .await
            .optional()?;
    Ok(locked.is_some_and(|locked| locked.id == id.0))
}

async fn add_members(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: SegmentId,
    contacts: &[ContactId],
) -> DbResult<MembersAdded> {
    let unknown: Vec<NumberRow> = sql(format!(
        "SELECT i.position - 1 AS n FROM {keys} i
         WHERE NOT EXISTS (SELECT 1 FROM contacts c
           WHERE c.account_id = $1 AND c.id = i.id AND c.deleted_at IS NULL)
         ORDER BY i.position",
        keys = key_rows("$2", "id"),
    ))
    .bind(account)
    .bind(uuids(contacts))
    .load(&mut *conn)
    .await?;
    if !unknown.is_empty() {
        let positions = unknown.iter().map(|row| usize::try_from(row.n).unwrap_or_default());
        return Ok(MembersAdded::Unknown(positions.collect()));
    }
    if !lock(conn, account, id).await? {
        return Ok(MembersAdded::Missing);
    }
    sql("INSERT INTO segment_members (account_id, segment_id, contact_id)
         SELECT DISTINCT $1, $2, i.id FROM unnest($3) AS i (id)
         ON CONFLICT DO NOTHING")
    .bind(account)
    .bind(id)
    .bind(uuids(contacts))
    .execute(&mut *conn)
    .await?;
    let segment = find(conn, account, id).await?;
    Ok(segment.map_or(MembersAdded::Missing, MembersAdded::Done))
}

async fn remove_members(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: SegmentId,
    contacts: &[ContactId],
) -> DbResult<bool> {
    if !lock(conn, account, id).await? {
        return Ok(false);
    }
    sql(format!(
        "DELETE FROM segment_members m USING {keys} k
         WHERE m.account_id = $1 AND m.segment_id = $2 AND m.contact_id = k.contact_id",
        keys = key_rows("$3", "contact_id"),
    ))
    .bind(account)
    .bind(id)
    .bind(uuids(contacts))
    .execute(&mut *conn)
    .await?;
    Ok(true)
}

#[async_trait]
impl SegmentStore for PgSegments {
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Segment>, StoreError> {
        let limit = query.limit;
        // Without a cursor it starts at the greatest id, so that one index scan serves both cases.
        let after = query.cursor.unwrap_or(Uuid::max());
        let listed = sql(segments("s.id < $2 ORDER BY s.id DESC LIMIT $3"))
            .bind(account)
            .bind(after)
            .bind(limit + 1);
        let rows: Vec<SegmentRow> = self.0.read_rows(account, listed).await?;
        let rows = rows.into_iter().map(Segment::try_from).collect::<Result<_, _>>()?;
        Ok(CursorPage::cut(rows, limit, |segment: &Segment| segment.id))
    }

    async fn find(&self, account: AccountId, id: SegmentId) -> Result<Option<Segment>, StoreError> {
        let row: Option<SegmentRow> = self.0.read_row_if_any(account, segment_query(account, id)).await?;
        row.map(Segment::try_from).transpose()
    }

    async fn insert(
        &self,
        account: AccountId,
        id: SegmentId,
        draft: &SegmentDraft,
        now: OffsetDateTime,
    ) -> Result<Segment, StoreError> {
        in_tenant!(self.0, account, |conn| insert(conn, account, id, draft, now))
    }

    async fn update(
        &self,
        account: AccountId,
        id: SegmentId,
        change: &SegmentChange,
        now: OffsetDateTime,
    ) -> Result<Option<Segment>, StoreError> {
        in_tenant!(self.0, account, |conn| update(conn, account, id, change, now))
    }

    async fn delete(&self, account: AccountId, id: SegmentId, now: OffsetDateTime) -> Result<bool, StoreError> {
        let statement = sql("UPDATE segments SET deleted_at = $3, updated_at = $3
                               WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL")
        .bind(account)
        .bind(id)
        .bind(now);
        Ok(self.0.run(account, statement).await? > 0)
    }

    async fn add_members(
        &self,
        account: AccountId,
        id: SegmentId,
        contacts: &[ContactId],
    ) -> Result<MembersAdded, StoreError> {
        in_tenant!(self.0, account, |conn| add_members(conn, account, id, contacts))
    }

    async fn remove_members(
        &self,
        account: AccountId,
        id: SegmentId,
        contacts: &[ContactId],
    ) -> Result<bool, StoreError> {
        in_tenant!(self.0, account, |conn| remove_members(conn, account, id, contacts))
    }
}
