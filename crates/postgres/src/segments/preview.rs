//! The contacts of a segment that is not stored, counted in one read-only snapshot.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::segments::{PreviewOutcome, SegmentPreview};
use recado_domain::shared::{AccountId, ContactId};
use time::OffsetDateTime;
use uuid::Uuid;

use super::references::unknown_contacts;
use crate::contacts;
use crate::errors::DbResult;
use crate::filters::{Access, BoundFilters, HAS_OPTED_OUT, LOOKUP_PLANS, SET_PLANS};
use crate::sql::{FENCE, sql, uuids};

/// One snapshot for all statements, no writes, and an end of each statement that does not depend on the session.
const SETTINGS: &str =
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SET LOCAL statement_timeout = '10s'";

#[derive(QueryableByName)]
struct CountRow {
    #[diesel(sql_type = BigInt)]
    contacts: i64,
    #[diesel(sql_type = BigInt)]
    reachable: i64,
    #[diesel(sql_type = Array<SqlUuid>)]
    newest: Vec<Uuid>,
    #[diesel(sql_type = Timestamptz)]
    as_of: OffsetDateTime,
}

/// MUST be the first statement of a transaction.
pub(super) async fn preview(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    filters: &BoundFilters,
    members: &[ContactId],
    sample: i64,
) -> DbResult<PreviewOutcome> {
    conn.batch_execute(SETTINGS).await?;
    let unknown = unknown_contacts(conn, account, members).await?;
    if !unknown.is_empty() {
        return Ok(PreviewOutcome::Unknown(unknown));
    }
    conn.batch_execute(SET_PLANS).await?;
    let text = count_text(filters, !members.is_empty());
    let query = sql(text).bind(account).bind(sample).bind(uuids(members));
    let counted: CountRow = filters.bind(query).get_result(&mut *conn).await?;
    conn.batch_execute(LOOKUP_PLANS).await?;
    Ok(PreviewOutcome::Done(SegmentPreview {
        count: counted.contacts,
        as_of: counted.as_of,
        reachable: counted.reachable,
        sample: contacts::read_newest_first(conn, account, counted.newest).await?,
    }))
}

/// Counts the contacts once. `$1` account, `$2` size of the sample, `$3` members, from `$4` the filters.
fn count_text(filters: &BoundFilters, has_members: bool) -> String {
    const MEMBERS: &str = "(SELECT DISTINCT m.id FROM unnest($3) AS m (id)) AS members";
    let tree = filters.written(4, Access::Sets, "s");
    let chosen = match filters.is_empty() {
        // Without a condition the members are looked up.
        true => format!(
            "FROM {MEMBERS} CROSS JOIN LATERAL (
               SELECT * FROM contacts c WHERE c.account_id = $1 AND c.id = members.id {FENCE}) AS c
             WHERE c.deleted_at IS NULL"
        ),
        false if has_members => format!(
            "FROM contacts c LEFT JOIN {MEMBERS} ON members.id = c.id {joins}
             WHERE c.account_id = $1 AND c.deleted_at IS NULL AND (members.id IS NOT NULL OR ({condition}))",
            joins = tree.joins,
            condition = tree.condition,
        ),
        // Without members the database can begin with the contacts that match one of the conditions.
        false => format!(
            "FROM contacts c {joins} WHERE c.account_id = $1 AND c.deleted_at IS NULL AND {condition}",
            joins = tree.joins,
            condition = tree.condition,
        ),
    };
    format!(
        "WITH chosen AS MATERIALIZED (
           SELECT c.id, c.phone IS NOT NULL AND NOT {HAS_OPTED_OUT} AS is_reachable {chosen})
         SELECT count(*) AS contacts, count(*) FILTER (WHERE is_reachable) AS reachable,
           ARRAY (SELECT n.id FROM chosen n ORDER BY n.id DESC LIMIT $2) AS newest, now() AS as_of
         FROM chosen"
    )
}
