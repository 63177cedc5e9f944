//! Empties the rows of a person. Each statement finds them by an index, and leaves out those that are empty already.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::erasures::{ErasureClaim, ErasureStep};

use super::batch::{Batch, kind};
use crate::direct_messages::{ENDED_MESSAGE, EndedMessage, store_references};
use crate::errors::DbResult;
use crate::sql::{NumberRow, collect_column, key_rows, sql};

/// WhatsApp's message ids contain the number of the person.
const MESSAGES: &str = include_str!("messages.sql");

const CAMPAIGN_SENDS: &str = include_str!("campaign_sends.sql");

const METRIC_EVENTS: &str = "WITH found AS MATERIALIZED (
       SELECT metric_name, occurred_at, id FROM metric_events
       WHERE account_id = $1 AND contact_id = $2 AND properties <> '{}' LIMIT $3
     ), emptied AS (
       UPDATE metric_events e SET properties = '{}' FROM found f
       WHERE e.account_id = $1 AND e.metric_name = f.metric_name AND e.occurred_at = f.occurred_at AND e.id = f.id
       RETURNING 1
     ) SELECT count(*) AS n FROM emptied";

/// `orders` or `carts`: afterwards they belong to no contact.
fn without_contact(table: &str) -> String {
    format!(
        "WITH found AS MATERIALIZED (
           SELECT id FROM {table} WHERE account_id = $1 AND contact_id = $2 ORDER BY id LIMIT $3 FOR NO KEY UPDATE
         ), emptied AS (
           UPDATE {table} o SET contact_id = NULL FROM found f WHERE o.account_id = $1 AND o.id = f.id RETURNING 1
         ) SELECT count(*) AS n FROM emptied"
    )
}

/// A link that was made for the person leads to the start page from then on: its path and query may name the person.
const LINKS: &str = r"WITH found AS MATERIALIZED (
       SELECT id FROM links WHERE account_id = $1 AND contact_id = $2 ORDER BY id LIMIT $3 FOR NO KEY UPDATE
     ), emptied AS (
       UPDATE links l SET contact_id = NULL,
         original_url = regexp_replace(original_url, '^([A-Za-z]+://)(?:[^/?#]*@)?([^/?#]*).*$', '\1\2/')
       FROM found f WHERE l.account_id = $1 AND l.id = f.id RETURNING 1
     ) SELECT count(*) AS n FROM emptied";

/// Empties rows by the statement of a step.
pub(super) async fn empty(
    conn: &mut AsyncPgConnection,
    claim: &ErasureClaim,
    step: ErasureStep,
    limit: i64,
) -> DbResult<Batch> {
    let statement = match step {
        ErasureStep::Messages => MESSAGES.to_owned(),
        ErasureStep::CampaignSends => CAMPAIGN_SENDS.to_owned(),
        ErasureStep::MetricEvents => METRIC_EVENTS.to_owned(),
        ErasureStep::Orders => without_contact("orders"),
        ErasureStep::Carts => without_contact("carts"),
        ErasureStep::Links => LINKS.to_owned(),
        _ => return Ok(Batch::default()),
    };
    let emptied: NumberRow = sql(statement)
        .bind(claim.account_id)
        .bind(claim.contact_id)
        .bind(limit)
        .get_result(conn)
        .await?;
    Ok(Batch::of(kind(step), emptied.n, limit))
}

fn found_direct_messages() -> String {
    format!(
        "SELECT {ENDED_MESSAGE} FROM direct_messages
         WHERE account_id = $1 AND contact_id = $2 AND status <> 'pending' AND (request <> 'null'
           OR num_nonnulls(client_reference, text, wa_message_id, error_message) > 0)
         ORDER BY id LIMIT $3 FOR NO KEY UPDATE"
    )
}

/// Empties direct messages. Their references stay, with a hash of the request, as those of removed messages do: the same
/// request is recognized.
pub(super) async fn direct_messages(conn: &mut AsyncPgConnection, claim: &ErasureClaim, limit: i64) -> DbResult<Batch> {
    let found: Vec<EndedMessage> = sql(found_direct_messages())
        .bind(claim.account_id)
        .bind(claim.contact_id)
        .bind(limit)
        .load(&mut *conn)
        .await?;
    if found.is_empty() {
        return Ok(Batch::default());
    }
    store_references(conn, claim.account_id, &found).await?;
    sql(format!(
        "UPDATE direct_messages m SET request = 'null', text = NULL, client_reference = NULL, wa_message_id = NULL,
           error_message = NULL
         FROM {keys} k WHERE m.account_id = $1 AND m.id = k.id",
        keys = key_rows("$2", "id"),
    ))
    .bind(claim.account_id)
    .bind(collect_column(&found, |row| row.id))
    .execute(conn)
    .await?;
    let count = i64::try_from(found.len()).unwrap_or(i64::MAX);
    Ok(Batch::of(kind(ErasureStep::DirectMessages), count, limit))
}
