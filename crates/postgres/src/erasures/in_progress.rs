//! Waits for what began before the request and may still write data of the person.

use diesel::prelude::QueryableByName;
use diesel::sql_types::Bool;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::erasures::ErasureClaim;

use super::batch::Batch;
use crate::errors::DbResult;
use crate::sql::{PlannedEachTime, sql};

/// An erasure is done within a day, whatever has not ended.
const PATIENCE: &str = "interval '12 hours'";

/// A callback that waits longer is dropped: it is set aside, or is repeated without effect.
const CALLBACK_PATIENCE: &str = "interval '10 minutes'";

#[derive(QueryableByName)]
struct WaitRow {
    #[diesel(sql_type = Bool)]
    waits: bool,
}

/// Transactions that are older than the request, calls of WhatsApp whose result is not recorded, and responses that are
/// not stored yet.
fn waits() -> String {
    format!(include_str!("in_progress.sql"), patience = PATIENCE)
}

/// Callbacks from before the request that name the person. $1 terms, $2 time of the request.
const CALLBACKS: &str = "FROM whatsapp_callbacks c WHERE c.received_at <= $2
     AND EXISTS (SELECT FROM unnest($1) t WHERE position(convert_to(t, 'UTF8') IN c.body) > 0)";

pub(super) async fn wait(conn: &mut AsyncPgConnection, claim: &ErasureClaim) -> DbResult<Batch> {
    let row: WaitRow = sql(waits())
        .bind(claim.account_id)
        .bind(claim.contact_id)
        .bind(claim.id)
        .bind(claim.requested_at)
        .get_result(&mut *conn)
        .await?;
    let identifiers = claim.marks.identifiers();
    let terms: Vec<String> = identifiers
        .iter()
        .map(|identifier| identifier.as_str().to_owned())
        .collect();
    let dropped = PlannedEachTime(
        sql(format!(
            "DELETE {CALLBACKS} AND (c.due_at = 'infinity' OR c.received_at < now() - {CALLBACK_PATIENCE})"
        ))
        .bind(terms.clone())
        .bind(claim.requested_at),
    )
    .execute(&mut *conn)
    .await?;
    let callbacks: WaitRow = PlannedEachTime(
        sql(format!("SELECT EXISTS (SELECT {CALLBACKS}) AS waits"))
            .bind(terms)
            .bind(claim.requested_at),
    )
    .get_result(conn)
    .await?;
    let dropped = i64::try_from(dropped).unwrap_or(i64::MAX);
    Ok(Batch {
        waits: row.waits || callbacks.waits,
        ..Batch::of("callbacks", dropped, i64::MAX)
    })
}
