//! Waits for what began before the request and may still write data of the person.

use diesel::prelude::QueryableByName;
use diesel::sql_types::Bool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::erasures::ErasureClaim;

use super::batch::Batch;
use super::callbacks;
use crate::direct_messages::fail_unsent;
use crate::errors::DbResult;
use crate::sql::sql;

/// An erasure is done within a day, whatever has not ended.
const LONGEST_WAIT: &str = "interval '12 hours'";

#[derive(QueryableByName)]
struct WaitRow {
    #[diesel(sql_type = Bool)]
    waits: bool,
}

/// Transactions that are older than the request, calls of WhatsApp whose result is not recorded, and responses that are
/// not stored yet.
fn waits() -> String {
    format!(include_str!("in_progress.sql"), longest_wait = LONGEST_WAIT)
}

pub(super) async fn wait(conn: &mut AsyncPgConnection, claim: &ErasureClaim, limit: i64) -> DbResult<Batch> {
    // A request that had read the contact before may have stored a message since.
    fail_unsent(conn, claim.account_id, claim.contact_id, limit).await?;
    let row: WaitRow = sql(waits())
        .bind(claim.account_id)
        .bind(claim.contact_id)
        .bind(claim.id)
        .bind(claim.requested_at)
        .get_result(&mut *conn)
        .await?;
    let (changed, is_waiting) = callbacks::remove(conn, claim).await?;
    Ok(Batch {
        waits: row.waits || is_waiting,
        ..Batch::of("callbacks", changed, i64::MAX)
    })
}
