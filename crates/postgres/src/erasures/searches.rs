//! Searches the account's stored events, logs, notifications and audit entries for copies of the person's data.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::erasures::{ErasureClaim, ErasureStep};
use recado_domain::shared::WebhookKind;

use super::batch::{Batch, kind, until};
use crate::errors::DbResult;
use crate::pool::INDEX_ORDER;
use crate::sql::{NumberRow, PlannedEachTime, sql};

/// Whether a text has an id of `$2`, or is from before `$6` and matches one of the patterns `$5`: what is stored later may
/// be of a new contact with the same number.
fn names_person(text: &str, at: &str) -> String {
    format!(
        "(EXISTS (SELECT FROM unnest($2) t WHERE strpos({text}, t) > 0)
           OR {at} <= $6 AND lower({text}) ~ ANY ($5))"
    )
}

#[derive(QueryableByName)]
struct PageRow {
    /// The key of the last row that was read. Null: there are no more rows.
    #[diesel(sql_type = Nullable<Text>)]
    last: Option<String>,
    #[diesel(sql_type = BigInt)]
    n: i64,
    /// Rows of a second table.
    #[diesel(sql_type = BigInt)]
    others: i64,
}

/// The event of the erasure itself stays.
fn webhook_events() -> String {
    format!(
        include_str!("search_webhook_events.sql"),
        erased = WebhookKind::ContactErased.as_str(),
        names_person = names_person("payload::text", "occurred_at"),
        nil = uuid::Uuid::nil(),
    )
}

/// `table` with the key `id`. `change`: what happens to the rows that are found.
fn by_id(table: &str, text: &str, change: &str) -> String {
    format!(
        "WITH page AS MATERIALIZED (
           SELECT id, {names_person} AS is_found
           FROM {table} WHERE account_id = $1 AND id > coalesce($3::uuid, '{nil}') ORDER BY id LIMIT $4
         ), found AS MATERIALIZED (SELECT id FROM page WHERE is_found
         ), changed AS ({change} WHERE e.account_id = $1 AND e.id = f.id RETURNING 1)
         SELECT (SELECT max(id::text) FROM page) AS last, (SELECT count(*) FROM changed) AS n, 0::bigint AS others",
        names_person = names_person(text, "created_at"),
        nil = uuid::Uuid::nil(),
    )
}

/// The key of an entry is its time and its id.
fn audit_logs() -> String {
    format!(
        include_str!("search_audit_logs.sql"),
        names_person = names_person("changes::text", "created_at"),
        nil = uuid::Uuid::nil(),
    )
}

/// Searches a page of a table for the person.
pub(super) async fn search(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    step: ErasureStep,
    after: Option<String>,
    limit: i64,
) -> DbResult<Batch> {
    use diesel_async::SimpleAsyncConnection as _;
    let ids = claim.marks.own_ids(claim.contact_id.0);
    let (statement, ids) = match step {
        ErasureStep::WebhookEvents => (webhook_events(), ids),
        ErasureStep::WebhookLogs => {
            let emptied = "UPDATE webhook_logs e SET payload = NULL, error = NULL FROM found f";
            let text = "concat(payload::text, ' ', error)";
            (by_id("webhook_logs", text, emptied), ids)
        }
        // Ids of rows that stay are no personal data.
        ErasureStep::Notifications => {
            let text = "concat(title, ' ', message, ' ', data::text)";
            let removed = "DELETE FROM notifications e USING found f";
            (by_id("notifications", text, removed), vec![])
        }
        _ => (audit_logs(), vec![]),
    };
    conn.batch_execute(INDEX_ORDER).await?;
    let page: PageRow = sql(statement)
        .bind(claim.account_id)
        .bind(ids)
        .bind(after)
        .bind(limit)
        .bind(claim.marks.personal_patterns())
        .bind(until(claim))
        .get_result(conn)
        .await?;
    Ok(Batch {
        removed: vec![(kind(step), page.n), ("webhook_deliveries", page.others)],
        has_more: page.last.is_some(),
        after: page.last,
        waits: false,
    })
}

/// An event of the outbox may have items of several people: those of the others stay. The rows are locked, so that a
/// relay has either moved an event already, or moves what is left of it.
fn outbox_statement() -> String {
    let others = format!(
        "SELECT jsonb_agg(i.item ORDER BY i.position) FROM jsonb_array_elements(o.payload -> 'items')
           WITH ORDINALITY AS i (item, position) WHERE NOT {}",
        names_person("i.item::text", "o.created_at")
    );
    format!(
        include_str!("search_outbox.sql"),
        others = others,
        erased = WebhookKind::ContactErased.as_str(),
        names_person = names_person("o.payload::text", "o.created_at"),
    )
}

pub(super) async fn outbox_events(conn: &mut AsyncPgConnection, claim: &ErasureClaim, limit: i64) -> DbResult<Batch> {
    let found: NumberRow = PlannedEachTime(
        sql(outbox_statement())
            .bind(claim.account_id)
            .bind(claim.marks.own_ids(claim.contact_id.0))
            .bind(None::<String>)
            .bind(limit)
            .bind(claim.marks.personal_patterns())
            .bind(until(claim)),
    )
    .get_result(conn)
    .await?;
    Ok(Batch::of(kind(ErasureStep::OutboxEvents), found.n, limit))
}
