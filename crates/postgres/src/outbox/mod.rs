//! Events that commit with a change, and the relay that carries them where they belong.

mod relay;
mod writes;

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, Event};
use serde_json::Value;

use crate::errors::{Attempt, failed};
use crate::sql::sql;

pub use relay::PgOutbox;

/// Leaves events behind, as part of the caller's transaction. A tenant may add to the outbox and never read it.
pub(crate) async fn append(conn: &mut AsyncPgConnection, account: AccountId, events: &[Event]) -> Attempt<()> {
    if events.is_empty() {
        return Ok(());
    }
    let payloads = events
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<Vec<Value>, _>>()
        .map_err(failed)?;
    sql("INSERT INTO outbox_events (account_id, payload)
         SELECT $1, e.payload FROM unnest($2) WITH ORDINALITY AS e (payload, position) ORDER BY e.position")
    .bind(account)
    .bind(payloads)
    .execute(conn)
    .await?;
    Ok(())
}
