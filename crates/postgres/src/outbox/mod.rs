//! Transactional outbox: events commit with the change that causes them, and the relay moves them to their tables.

mod mark;
mod relay;
mod writes;

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, Event};
use serde_json::Value;

use crate::errors::{DbResult, failed};
use crate::sql::sql;

pub use relay::PgOutbox;

/// Appends all events in their order.
const APPEND_ALL: &str = "INSERT INTO outbox_events (account_id, payload)
     SELECT $1, e.payload FROM unnest($2) WITH ORDINALITY AS e (payload, position) ORDER BY e.position";

/// Like [`APPEND_ALL`], but skips webhook events to which no endpoint of the account subscribes.
const APPEND_SUBSCRIBED: &str = "INSERT INTO outbox_events (account_id, payload)
     SELECT $1, e.payload FROM unnest($2) WITH ORDINALITY AS e (payload, position)
     WHERE e.payload ->> 'kind' <> 'webhook' OR has_subscribers($1, e.payload ->> 'type')
     ORDER BY e.position";

/// Appends events to the outbox in the caller's transaction. A tenant may insert into the outbox and never read it.
pub(crate) async fn append(conn: &mut AsyncPgConnection, account: AccountId, events: &[Event]) -> DbResult<()> {
    let has_content = |event: &&Event| !matches!(event, Event::Webhook(webhook) if webhook.items.is_empty());
    let payloads = events
        .iter()
        .filter(has_content)
        .map(serde_json::to_value)
        .collect::<Result<Vec<Value>, _>>()
        .map_err(failed)?;
    if payloads.is_empty() {
        return Ok(());
    }
    let has_webhook_events = events.iter().any(|event| matches!(event, Event::Webhook(_)));
    sql(if has_webhook_events {
        APPEND_SUBSCRIBED
    } else {
        APPEND_ALL
    })
    .bind(account)
    .bind(payloads)
    .execute(conn)
    .await?;
    Ok(())
}
