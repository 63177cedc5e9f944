//! The number of contacts of segments. An account of at most [`EXACT_COUNTS`] contacts is counted when it is read. For
//! a larger one each segment has a stored count, which is at most [`MAX_AGE`] old. A worker counts again what was read
//! lately (`recount.rs`); a read that finds a count older counts all segments of its page itself. Changes of members
//! adjust the stored count.
//!
//! All segments without a tree of conditions are counted in one pass over the contacts; one with a tree has a pass of
//! its own.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Bool, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::segments::Segment;
use recado_domain::shared::{AccountId, SegmentId, StoreError};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use crate::errors::DbResult;
use crate::filters::{
    Access, CONDITIONS, LOOKUP_PLANS, RuleRow, SET_PLANS, SegmentRule, has_conditions, is_member, matches,
    member_count, stored_filters,
};
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
    #[diesel(sql_type = Bool)]
    has_tree: bool,
    /// Whether the account is counted when it is read.
    #[diesel(sql_type = Bool)]
    is_small: bool,
    /// None: not counted yet.
    #[diesel(sql_type = Nullable<BigInt>)]
    members: Option<i64>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    members_as_of: Option<OffsetDateTime>,
    /// Whether the stored count is too old.
    #[diesel(sql_type = Bool)]
    is_stale: bool,
    /// Whether the worker does not know that the stored count is read.
    #[diesel(sql_type = Bool)]
    is_unwanted: bool,
    #[diesel(sql_type = Timestamptz)]
    created_at: OffsetDateTime,
    #[diesel(sql_type = Timestamptz)]
    updated_at: OffsetDateTime,
}

impl SegmentRow {
    /// Whether the segment was never counted, and its account is too large to be counted by a read.
    pub(super) fn is_uncounted(&self) -> bool {
        !self.is_small && self.members.is_none()
    }

    pub(super) fn segment(&self) -> CountedSegment {
        CountedSegment {
            id: self.id,
            has_tree: self.has_tree,
        }
    }

    /// Whether the statement that read the row could not count it.
    fn needs_pass(&self) -> bool {
        self.is_small && self.has_tree && self.members.is_none()
    }
}

/// A segment to be counted.
#[derive(Clone, Copy, Debug, QueryableByName)]
pub(super) struct CountedSegment {
    #[diesel(sql_type = SqlUuid)]
    pub(super) id: Uuid,
    #[diesel(sql_type = Bool)]
    pub(super) has_tree: bool,
}

impl TryFrom<SegmentRow> for Segment {
    type Error = StoreError;

    fn try_from(row: SegmentRow) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.into(),
            name: row.name,
            description: row.description,
            filters: stored_filters(row.filters)?,
            members: row.members.unwrap_or_default(),
            members_as_of: row.members_as_of.unwrap_or(row.updated_at),
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

/// The segments whose stored counts are too old, and whether each of them has one.
pub(super) fn stale(rows: &[SegmentRow]) -> (Vec<CountedSegment>, bool) {
    let stale = rows.iter().filter(|row| row.is_stale);
    let all_counted = stale.clone().all(|row| row.members.is_some());
    (stale.map(SegmentRow::segment).collect(), all_counted)
}

/// The segments that one transaction counts: those without a tree together, the others one by one. A stored count is
/// locked until its transaction ends.
pub(super) fn passes(segments: Vec<CountedSegment>) -> Vec<Vec<CountedSegment>> {
    let (trees, plain): (Vec<_>, Vec<_>) = segments.into_iter().partition(|segment| segment.has_tree);
    let trees = trees.into_iter().map(|segment| vec![segment]);
    let plain = Some(plain).filter(|plain| !plain.is_empty());
    plain.into_iter().chain(trees).collect()
}

/// The segments whose stored counts the worker does not keep fresh.
pub(super) fn unwanted(rows: &[SegmentRow]) -> Vec<Uuid> {
    let unwanted = rows.iter().filter(|row| row.is_unwanted);
    unwanted.map(|row| row.id).collect()
}

/// Notes that the counts are read. A row that is just being counted or adjusted is left for the next read.
pub(super) fn want<'a>(account: AccountId, segments: Vec<Uuid>) -> Sql<'a> {
    let text = format!(
        "UPDATE segment_counts k SET wanted_at = now() FROM (
           SELECT n.segment_id FROM {keys} i
           JOIN segment_counts n ON n.account_id = $1 AND n.segment_id = i.id FOR NO KEY UPDATE OF n SKIP LOCKED) w
         WHERE k.account_id = $1 AND k.segment_id = w.segment_id",
        keys = key_rows("$2", "id"),
    );
    sql(text).bind(account).bind(segments)
}

/// Whether a row needs [`count_trees`].
pub(super) fn need_passes(rows: &[SegmentRow]) -> bool {
    rows.iter().any(SegmentRow::needs_pass)
}

#[derive(QueryableByName)]
pub(super) struct PassRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = BigInt)]
    contacts: i64,
    #[diesel(sql_type = Timestamptz)]
    counted_at: OffsetDateTime,
    #[diesel(sql_type = Bool)]
    has_members: bool,
}

/// Counts the segments with trees of a small account, in one pass each.
pub(super) async fn count_trees(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    rows: &[SegmentRow],
) -> DbResult<Vec<PassRow>> {
    conn.batch_execute(SET_PLANS).await?;
    let mut counted = vec![];
    for row in rows.iter().filter(|row| row.needs_pass()) {
        let rule = SegmentRule::of(row.id.into(), row.filters.clone())?;
        counted.push(count_tree(conn, account, &rule).await?);
    }
    conn.batch_execute(LOOKUP_PLANS).await?;
    Ok(counted)
}

/// Fills the counts into their rows.
pub(super) fn set_counts(rows: &mut [SegmentRow], counted: &[PassRow]) {
    for pass in counted {
        if let Some(row) = rows.iter_mut().find(|row| row.id == pass.id) {
            (row.members, row.members_as_of) = (Some(pass.contacts), Some(pass.counted_at));
        }
    }
}

/// Counts those segments of a large account whose counts are older than `max_age`, and stores the counts. At most one
/// transaction per account counts at a time. While another one does, old counts are left as they are if `may_skip`.
pub(super) async fn refresh(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    segments: &[CountedSegment],
    max_age: Duration,
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
    let (trees, plain): (Vec<CountedSegment>, _) = segments.iter().partition(|segment| segment.has_tree);
    if !plain.is_empty() {
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
            .bind(plain.iter().map(|segment| segment.id).collect::<Vec<Uuid>>())
            .bind(max_age)
            .execute(&mut *conn)
            .await?;
    }
    for segment in trees {
        refresh_tree(conn, account, segment.id, max_age).await?;
    }
    Ok(())
}

async fn refresh_tree(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    segment: Uuid,
    max_age: Duration,
) -> DbResult<()> {
    let stale: Option<StaleTree> = sql("SELECT s.id, s.filters, coalesce(k.changes, 0) AS changes, EXISTS (
           SELECT 1 FROM segment_members m WHERE m.account_id = $1 AND m.segment_id = s.id) AS has_members
         FROM segments s LEFT JOIN segment_counts k ON k.account_id = $1 AND k.segment_id = s.id
         WHERE s.account_id = $1 AND s.id = $2 AND s.deleted_at IS NULL
           AND coalesce(k.counted_at <= now() - $3 * interval '1 microsecond', true)")
    .bind(account)
    .bind(segment)
    .bind(max_age)
    .get_result(&mut *conn)
    .await
    .optional()?;
    let Some(StaleTree { rule, changes }) = stale else {
        return Ok(());
    };
    conn.batch_execute(SET_PLANS).await?;
    let mut rule: SegmentRule = rule.try_into()?;
    let mut counted = count_tree(conn, account, &rule).await?;
    if counted.has_members && !rule.has_members {
        // The first member came after the rule was read.
        rule.has_members = true;
        counted = count_tree(conn, account, &rule).await?;
    }
    conn.batch_execute(LOOKUP_PLANS).await?;
    // Members that changed after the rule was read are not in the count, or twice.
    sql(
        "INSERT INTO segment_counts AS k (account_id, segment_id, contacts, counted_at, changes)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (account_id, segment_id) DO UPDATE SET contacts = excluded.contacts,
           counted_at = excluded.counted_at, leased_until = NULL
           WHERE k.changes = excluded.changes",
    )
    .bind(account)
    .bind(segment)
    .bind(counted.contacts)
    .bind(counted.counted_at)
    .bind(changes)
    .execute(conn)
    .await?;
    Ok(())
}

/// A segment with a tree whose stored count is too old.
#[derive(QueryableByName)]
struct StaleTree {
    #[diesel(embed)]
    rule: RuleRow,
    /// The number of changes that the stored count knows.
    #[diesel(sql_type = BigInt)]
    changes: i64,
}

/// Counts the contacts of a segment with a tree, in one pass. A statement that also wrote the count could not run in
/// parallel.
async fn count_tree(conn: &mut AsyncPgConnection, account: AccountId, rule: &SegmentRule) -> DbResult<PassRow> {
    let tree = rule.written(2, Access::Sets);
    let text = format!(
        "SELECT $2 AS id, count(*) AS contacts, statement_timestamp() AS counted_at, EXISTS (
           SELECT 1 FROM segment_members m WHERE m.account_id = $1 AND m.segment_id = $2) AS has_members
         FROM contacts c {joins}
         WHERE c.account_id = $1 AND c.deleted_at IS NULL AND {belongs}",
        joins = tree.joins,
        belongs = tree.condition,
    );
    Ok(rule.bind(sql(text).bind(account)).get_result(conn).await?)
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
