//! Segments and their number of contacts.

use async_trait::async_trait;
use diesel::OptionalExtension;
use diesel::prelude::{ExpressionMethods, QueryDsl};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::segments::{
    AudienceFilters, FilterReference, MembersAdded, PreviewOutcome, Segment, SegmentChange, SegmentDraft, SegmentStore,
};
use recado_domain::shared::{AccountId, ContactId, CursorPage, CursorQuery, RowOutcome, SegmentId, StoreError};
use serde_json::Value;
use time::OffsetDateTime;
use uuid::Uuid;

use super::counts::{self, MAX_AGE, SegmentRow, page_query, segment_query};
use super::{preview, references};
use crate::errors::{DbError, DbResult, failed};
use crate::filters::{BoundFilters, SegmentRule};
use crate::pool::TenantPool;
use crate::schema::segments;
use crate::sql::{IdRow, Sql, TextRow, collect_column, key_rows, sql, uuids};
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
        let mut rows: Vec<SegmentRow> = self.0.read_rows(account, query()).await?;
        let (stale, may_skip) = counts::stale(&rows);
        if !stale.is_empty() {
            for pass in counts::passes(stale) {
                in_tenant!(self.0, account, |conn| counts::refresh(
                    conn, account, &pass, MAX_AGE, may_skip
                ))?;
            }
            rows = self.0.read_rows(account, query()).await?;
        }
        let unwanted = counts::unwanted(&rows);
        if !unwanted.is_empty() {
            self.0.run(account, counts::want(account, unwanted)).await?;
        }
        if counts::need_passes(&rows) {
            let counted = in_tenant!(self.0, account, |conn| counts::count_trees(conn, account, &rows))?;
            counts::set_counts(&mut rows, &counted);
        }
        Ok(rows)
    }
}

/// Reads a segment in the transaction that wrote it. The stored count of a large account is returned whatever its age;
/// if there is none, the segment is counted.
async fn find(conn: &mut AsyncPgConnection, account: AccountId, id: SegmentId) -> DbResult<Option<Segment>> {
    let mut rows: Vec<SegmentRow> = segment_query(account, id).load(&mut *conn).await?;
    if let Some(row) = rows.as_slice().first().filter(|row| row.is_uncounted()) {
        counts::refresh(conn, account, &[row.segment()], MAX_AGE, false).await?;
        rows = segment_query(account, id).load(&mut *conn).await?;
    }
    if counts::need_passes(&rows) {
        let counted = counts::count_trees(conn, account, &rows).await?;
        counts::set_counts(&mut rows, &counted);
    }
    Ok(rows.into_iter().next().map(Segment::try_from).transpose()?)
}

/// A segment that is not deleted.
#[diesel::dsl::auto_type]
fn live(account: AccountId, id: SegmentId) -> _ {
    let key: (Uuid, Uuid) = (account.0, id.0);
    segments::table.find(key).filter(segments::deleted_at.is_null())
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
    let values = (
        segments::account_id.eq(account.0),
        segments::id.eq(id.0),
        segments::name.eq(&draft.name),
        segments::description.eq(&draft.description),
        segments::filters.eq(stored(&draft.filters)?),
        segments::created_at.eq(now),
        segments::updated_at.eq(now),
    );
    let insert = diesel::insert_into(segments::table).values(values);
    insert.execute(&mut *conn).await?;
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
    let filters = change.filters.as_ref().map(stored).transpose()?;
    // Absent fields are not written.
    let changed = (
        change.name.as_ref().map(|name| segments::name.eq(name)),
        change.description.as_ref().map(|text| segments::description.eq(text)),
        filters.map(|filters| segments::filters.eq(filters)),
        segments::updated_at.eq(now),
    );
    diesel::update(live(account, id))
        .set(changed)
        .execute(&mut *conn)
        .await?;
    // A stored count is made again: the answer to a change is of now.
    if counts::expire(conn, account, id).await? {
        let rows: Vec<SegmentRow> = segment_query(account, id).load(&mut *conn).await?;
        for row in rows {
            counts::refresh(conn, account, &[row.segment()], MAX_AGE, false).await?;
        }
    }
    find(conn, account, id).await
}

/// Locks the segment until the transaction ends, so that changes of its members are applied one after the other, and
/// returns its rule. None: the segment does not exist.
async fn lock(conn: &mut AsyncPgConnection, account: AccountId, id: SegmentId) -> DbResult<Option<SegmentRule>> {
    let query = live(account, id).select(segments::id).for_no_key_update();
    let locked: Option<Uuid> = query.get_result(&mut *conn).await.optional()?;
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
    let unknown = references::unknown_contacts(conn, account, contacts).await?;
    if !unknown.is_empty() {
        return Ok(MembersAdded::Unknown(unknown));
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
    Ok(segment.map_or(MembersAdded::Missing, |segment| MembersAdded::Done(Box::new(segment))))
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

    async fn unknown_references(
        &self,
        account: AccountId,
        references: &[(String, FilterReference)],
    ) -> Result<Vec<String>, StoreError> {
        let rows: Vec<TextRow> = self
            .0
            .read_rows(account, references::unknown(account, references))
            .await?;
        Ok(rows.into_iter().map(|row| row.text).collect())
    }

    async fn preview(
        &self,
        account: AccountId,
        filters: &AudienceFilters,
        members: &[ContactId],
        sample: i64,
    ) -> Result<PreviewOutcome, StoreError> {
        let filters = BoundFilters::try_from(filters)?;
        in_tenant!(self.0, account, |conn| preview::preview(
            conn, account, &filters, members, sample
        ))
    }

    async fn delete(&self, account: AccountId, id: SegmentId, now: OffsetDateTime) -> Result<RowOutcome, StoreError> {
        let deletion = (segments::deleted_at.eq(now), segments::updated_at.eq(now));
        let statement = diesel::update(live(account, id)).set(deletion);
        Ok(RowOutcome::of(self.0.run(account, statement).await? > 0))
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
    ) -> Result<RowOutcome, StoreError> {
        in_tenant!(self.0, account, |conn| remove_members(conn, account, id, contacts)).map(RowOutcome::of)
    }
}
