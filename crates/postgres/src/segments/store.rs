//! Segments and their number of contacts.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::segments::{AudienceFilters, MembersAdded, Segment, SegmentChange, SegmentDraft, SegmentStore};
use recado_domain::shared::{AccountId, ContactId, CursorPage, CursorQuery, SegmentId, StoreError};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::counts::{self, SegmentRow, page_query, segment_query};
use super::membership::SegmentRule;
use crate::errors::{DbError, DbResult, failed};
use crate::pool::TenantPool;
use crate::sql::{IdRow, NumberRow, Sql, collect_column, key_rows, sql, uuids};
use crate::transactions::in_tenant;

#[derive(Clone, Debug)]
pub struct PgSegments(TenantPool);

impl PgSegments {
    pub fn new(pool: TenantPool) -> Self {
        Self(pool)
    }

    /// Reads segments. If stored counts are too old, they are counted, and the segments are read again.
    async fn counted(
        &self,
        account: AccountId,
        query: impl Fn() -> Sql<'static>,
    ) -> Result<Vec<SegmentRow>, StoreError> {
        let rows: Vec<SegmentRow> = self.0.read_rows(account, query()).await?;
        let (stale, may_skip) = counts::stale(&rows);
        if stale.is_empty() {
            return Ok(rows);
        }
        in_tenant!(self.0, account, |conn| counts::refresh(conn, account, &stale, may_skip))?;
        self.0.read_rows(account, query()).await
    }
}

/// Reads a segment in the transaction that wrote it. The stored count of a large account is returned whatever its age;
/// if there is none, the segment is counted.
async fn find(conn: &mut AsyncPgConnection, account: AccountId, id: SegmentId) -> DbResult<Option<Segment>> {
    let row: Option<SegmentRow> = segment_query(account, id).get_result(&mut *conn).await.optional()?;
    if row.as_ref().is_some_and(SegmentRow::is_uncounted) {
        counts::refresh(conn, account, &[id.0], false).await?;
        let row: Option<SegmentRow> = segment_query(account, id).get_result(conn).await.optional()?;
        return Ok(row.map(Segment::try_from).transpose()?);
    }
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
    if change.filters.is_some() && counts::expire(conn, account, id).await? {
        counts::refresh(conn, account, &[id.0], false).await?;
    }
    find(conn, account, id).await
}

/// Locks the segment until the transaction ends, so that changes of its members are applied one after the other, and
/// returns its rule. None: the segment does not exist.
async fn lock(conn: &mut AsyncPgConnection, account: AccountId, id: SegmentId) -> DbResult<Option<SegmentRule>> {
    let locked: Option<IdRow> =
        sql("SELECT id FROM segments WHERE account_id = $1 AND id = $2 AND deleted_at IS NULL FOR NO KEY UPDATE")
            .bind(account)
            .bind(id)
            .get_result(&mut *conn)
            .await
            .optional()?;
    match locked {
        Some(_) => SegmentRule::find(conn, account, id).await,
        None => Ok(None),
    }
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
    let Some(rule) = lock(conn, account, id).await? else {
        return Ok(MembersAdded::Missing);
    };
    let added: Vec<IdRow> = sql("INSERT INTO segment_members (account_id, segment_id, contact_id)
         SELECT DISTINCT $1, $2, i.id FROM unnest($3) AS i (id)
         ON CONFLICT DO NOTHING
         RETURNING contact_id AS id")
    .bind(account)
    .bind(id)
    .bind(uuids(contacts))
    .load(&mut *conn)
    .await?;
    if !added.is_empty() {
        counts::adjust(conn, account, &rule, &collect_column(&added, |row| row.id), 1).await?;
    }
    let segment = find(conn, account, id).await?;
    Ok(segment.map_or(MembersAdded::Missing, MembersAdded::Done))
}

async fn remove_members(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    id: SegmentId,
    contacts: &[ContactId],
) -> DbResult<bool> {
    let Some(rule) = lock(conn, account, id).await? else {
        return Ok(false);
    };
    let removed: Vec<IdRow> = sql(format!(
        "DELETE FROM segment_members m USING {keys} k
         WHERE m.account_id = $1 AND m.segment_id = $2 AND m.contact_id = k.contact_id
         RETURNING m.contact_id AS id",
        keys = key_rows("$3", "contact_id"),
    ))
    .bind(account)
    .bind(id)
    .bind(uuids(contacts))
    .load(&mut *conn)
    .await?;
    if !removed.is_empty() {
        counts::adjust(conn, account, &rule, &collect_column(&removed, |row| row.id), -1).await?;
    }
    Ok(true)
}

#[async_trait]
impl SegmentStore for PgSegments {
    async fn list(&self, account: AccountId, query: &CursorQuery) -> Result<CursorPage<Segment>, StoreError> {
        let limit = query.limit;
        // Without a cursor it starts at the greatest id, so that one index scan serves both cases.
        let before = query.cursor.unwrap_or(Uuid::max());
        let rows = self.counted(account, || page_query(account, before, limit + 1)).await?;
        let rows = rows.into_iter().map(Segment::try_from).collect::<Result<_, _>>()?;
        Ok(CursorPage::cut(rows, limit, |segment: &Segment| segment.id))
    }

    async fn find(&self, account: AccountId, id: SegmentId) -> Result<Option<Segment>, StoreError> {
        let rows = self.counted(account, || segment_query(account, id)).await?;
        rows.into_iter().next().map(Segment::try_from).transpose()
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
