//! The number of contacts of segments. An account of at most [`EXACT_COUNTS`] contacts is counted when it is read. For
//! a larger one each segment has a stored count, which is at most [`MAX_AGE`] old: the read that finds it older counts
//! all segments of its page in one pass over the contacts. Changes of members adjust the stored count.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::segments::{AudienceFilters, Segment};
use recado_domain::shared::{AccountId, SegmentId, StoreError};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::membership::{CONDITIONS, SegmentRule, has_conditions, is_member, matches, member_count};
use crate::errors::{DbResult, corrupt};
use crate::sql::{FlagRow, Sql, key_rows, sql};

/// The largest account, in contacts, whose segments are counted when they are read.
pub(super) const EXACT_COUNTS: i64 = 100_000;

/// The greatest age of a stored count that a read returns.
pub(super) const MAX_AGE: Duration = Duration::seconds(60);

/// A count reads all contacts of the account once. The wait is for another count of the same account.
const COUNT_TIMEOUTS: &str = "SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '10s'";

#[derive(QueryableByName)]
pub(super) struct SegmentRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = Text)]
    name: String,
    #[diesel(sql_type = Nullable<Text>)]
    description: Option<String>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    filters: Option<Value>,
    /// None: the account is large, and the segment was never counted.
    #[diesel(sql_type = Nullable<diesel::sql_types::BigInt>)]
    members: Option<i64>,
    /// Whether the stored count is too old.
    #[diesel(sql_type = Bool)]
    is_stale: bool,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    updated_at: OffsetDateTime,
}

impl SegmentRow {
    /// Whether the segment was never counted, and its account is too large to be counted by a read.
    pub(super) fn is_uncounted(&self) -> bool {
        self.members.is_none()
    }
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
            members: row.members.unwrap_or_default(),
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    }
}

/// The contacts that match the conditions of each segment of `part` and are no members: one pass over the contacts of
/// `$1`, however many segments there are, and none without a condition. `gate` is a condition without columns.
fn matching(gate: &str) -> String {
    format!(
        "SELECT p.id, count(*) AS contacts
         FROM contacts c CROSS JOIN LATERAL (SELECT p.id FROM part p WHERE {has_conditions} AND {matches} OFFSET 0) p
         WHERE {gate} AND EXISTS (SELECT 1 FROM part p WHERE {has_conditions})
           AND c.account_id = $1 AND c.deleted_at IS NULL AND NOT {member}
         GROUP BY p.id",
        has_conditions = has_conditions("p"),
        matches = matches("p"),
        member = is_member("p"),
    )
}

/// Selects segments of `$1` with their number of contacts, newest first. The page is cut before anything is counted.
fn segments(part: &str) -> String {
    format!(
        include_str!("segments.sql"),
        conditions = CONDITIONS,
        part = part,
        matching = matching("(SELECT is_small FROM account)"),
        member_count = member_count("p"),
    )
}

/// Selects up to `limit` segments with smaller ids than `before`.
pub(super) fn page_query<'a>(account: AccountId, before: Uuid, limit: i64) -> Sql<'a> {
    sql(segments("s.id < $4 ORDER BY s.id DESC LIMIT $5"))
        .bind(account)
        .bind(MAX_AGE)
        .bind(EXACT_COUNTS)
        .bind(before)
        .bind(limit)
}

pub(super) fn segment_query<'a>(account: AccountId, id: SegmentId) -> Sql<'a> {
    sql(segments("s.id = $4"))
        .bind(account)
        .bind(MAX_AGE)
        .bind(EXACT_COUNTS)
        .bind(id)
}

/// The ids of segments whose stored counts are too old, and whether each of them has one.
pub(super) fn stale(rows: &[SegmentRow]) -> (Vec<Uuid>, bool) {
    let stale = rows.iter().filter(|row| row.is_stale);
    let all_counted = stale.clone().all(|row| row.members.is_some());
    (stale.map(|row| row.id).collect(), all_counted)
}

/// Counts segments of a large account in one pass, and stores the counts. At most one transaction per account counts
/// at a time. While another one does, old counts are left as they are if `may_skip`.
pub(super) async fn refresh(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    segments: &[Uuid],
    may_skip: bool,
) -> DbResult<()> {
    conn.batch_execute(COUNT_TIMEOUTS).await?;
    let lock = |function: &str| {
        sql(format!(
            "SELECT coalesce({function}(hashtext('recado segment counts'), hashtext($1))::text, '') <> 'false' AS yes"
        ))
        .bind(account.to_string())
    };
    if !lock("pg_try_advisory_xact_lock").get_result::<FlagRow>(conn).await?.yes {
        if may_skip {
            return Ok(());
        }
        lock("pg_advisory_xact_lock").execute(conn).await?;
    }
    // Those that another transaction counted in the meantime are left out.
    let text = format!(
        include_str!("refresh_counts.sql"),
        conditions = CONDITIONS,
        keys = key_rows("$2", "id"),
        matching = matching("true"),
        member_count = member_count("p"),
    );
    sql(text)
        .bind(account)
        .bind(segments.to_vec())
        .bind(MAX_AGE)
        .execute(conn)
        .await?;
    Ok(())
}

/// Adds to the stored count (`sign` 1) the contacts that became members, or subtracts (-1) those that stopped being
/// members. Contacts that belong to the segment by its filters do not change the count.
pub(super) async fn adjust(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    rule: &SegmentRule,
    contacts: &[Uuid],
    sign: i64,
) -> DbResult<()> {
    let matches = match &rule.filters {
        None => "false".to_owned(),
        Some(filters) => filters.conditions(5),
    };
    let adjusted = sql(format!(
        "UPDATE segment_counts SET changes = changes + 1, contacts = contacts + $3 * (
           SELECT count(*) FROM {keys} i JOIN contacts c ON c.account_id = $1 AND c.id = i.id
           WHERE c.deleted_at IS NULL AND NOT ({matches}))
         WHERE account_id = $1 AND segment_id = $4",
        keys = key_rows("$2", "id"),
    ));
    let adjusted = adjusted.bind(account).bind(contacts.to_vec()).bind(sign);
    rule.bind(adjusted).execute(conn).await?;
    Ok(())
}

/// Makes the stored count too old for every read, after a change of the filters. False: there is none.
pub(super) async fn expire(conn: &mut AsyncPgConnection, account: AccountId, id: SegmentId) -> DbResult<bool> {
    let expired = sql(
        "UPDATE segment_counts SET counted_at = '-infinity', changes = changes + 1
         WHERE account_id = $1 AND segment_id = $2",
    )
    .bind(account)
    .bind(id)
    .execute(conn)
    .await?;
    Ok(expired > 0)
}
