//! The report of lost files.

use diesel::prelude::QueryableByName;
use diesel::sql_types::Uuid as SqlUuid;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::{AccountId, Event};
use time::Duration;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::outbox;
use crate::sql::sql;

/// Class of advisory locks with two keys: this and a hash of the account. No other lock in the database uses it.
const LOST_LOCK: i32 = 0x6d65_6c6f;

#[derive(QueryableByName)]
pub(super) struct AccountRow {
    #[diesel(sql_type = SqlUuid)]
    pub(super) account_id: Uuid,
}

pub(super) const IS_LOST: &str =
    "l.state IN ('failed', 'expired') AND l.message_id IS NOT NULL AND l.lost_reported_at IS NULL";

/// Whether the account was not notified within `$2`.
pub(super) const IS_REPORT_DUE: &str = "NOT EXISTS (SELECT 1 FROM message_media r WHERE r.account_id = l.account_id
    AND r.lost_reported_at > now() - $2 * interval '1 microsecond')";

/// One transaction per account. The lock makes a concurrent report wait and find the files marked.
pub(super) async fn report_account(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    interval: Duration,
    event: fn(u64) -> Event,
) -> DbResult<bool> {
    sql("SELECT pg_advisory_xact_lock($1, hashtext($2))")
        .bind(LOST_LOCK)
        .bind(account.to_string())
        .execute(&mut *conn)
        .await?;
    let lost = sql(format!(
        "UPDATE message_media l SET lost_reported_at = now()
         WHERE l.account_id = $1 AND {IS_LOST} AND {IS_REPORT_DUE}"
    ))
    .bind(account)
    .bind(interval)
    .execute(&mut *conn)
    .await?;
    if lost == 0 {
        return Ok(false);
    }
    let lost = u64::try_from(lost).unwrap_or(u64::MAX);
    outbox::append(conn, account, &[event(lost)]).await?;
    Ok(true)
}
