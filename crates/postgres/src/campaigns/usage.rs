//! An account's use of its monthly quota: sent messages, reservations, test sends, replies and direct messages.
//!
//! A template that is sent as a reply or direct message reserves one message while it is pending. A free-form one
//! reserves nothing, counts when WhatsApp has accepted it, and may exceed the quota. Test sends are counted only here.
//! Replies and direct messages are counted in `message_rollups`.

use diesel::prelude::QueryableByName;
use diesel::sql_types::Date as SqlDate;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::AccountId;
use time::Date;

use crate::analytics::replies_of_month;
use crate::errors::DbResult;
use crate::sql::{NumberRow, sql};

#[derive(QueryableByName)]
pub(super) struct MonthRow {
    #[diesel(sql_type = SqlDate)]
    pub(super) month: Date,
}

/// The quota month of a message that is sent now.
pub(super) async fn this_month(conn: &mut AsyncPgConnection) -> DbResult<Date> {
    let row: MonthRow = sql("SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date AS month")
        .get_result(conn)
        .await?;
    Ok(row.month)
}

/// How many messages of the month's quota are used or reserved.
pub(crate) async fn used(conn: &mut AsyncPgConnection, account: AccountId, month: Date) -> DbResult<i64> {
    let used: NumberRow = sql(concat!(
        "SELECT coalesce((SELECT sent + reserved + test_sends FROM message_usage WHERE account_id = $1 AND month = $2),
           0) + ",
        replies_of_month!("$2"),
        " AS n"
    ))
    .bind(account)
    .bind(month)
    .get_result(conn)
    .await?;
    Ok(used.n)
}

/// Adds to the month's sent and reserved messages, in the counter slot that `counter_slot()` selects.
pub(crate) async fn change(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    month: Date,
    sent: i64,
    reserved: i64,
) -> DbResult<()> {
    sql(
        "INSERT INTO message_usage_slots AS u (account_id, month, slot, sent, reserved)
         SELECT account_id, month, counter_slot(reserved), $3, $4 FROM message_usage_slots
         WHERE account_id = $1 AND month = $2 AND slot = 0
         ON CONFLICT (account_id, month, slot) DO UPDATE
           SET sent = u.sent + excluded.sent, reserved = u.reserved + excluded.reserved",
    )
    .bind(account)
    .bind(month)
    .bind(sent)
    .bind(reserved)
    .execute(conn)
    .await?;
    Ok(())
}

/// Reserves `count` messages of the month's quota. Afterwards the caller compares [`used`] with the limit and MUST roll
/// back if it is exceeded.
///
/// The write comes first and the check is a separate statement: every other reservation waits at counter slot 0 until
/// this transaction ends, and then sees its reservation. A transaction that writes another slot only uses or releases
/// existing reservations.
pub(crate) async fn reserve(conn: &mut AsyncPgConnection, account: AccountId, month: Date, count: i64) -> DbResult<()> {
    sql(
        "INSERT INTO message_usage_slots AS u (account_id, month, reserved) VALUES ($1, $2, $3)
         ON CONFLICT (account_id, month, slot) DO UPDATE SET reserved = u.reserved + excluded.reserved",
    )
    .bind(account)
    .bind(month)
    .bind(count)
    .execute(conn)
    .await?;
    Ok(())
}

/// Reserves one message for a test send. The rules of [`reserve`] apply.
pub(super) async fn reserve_test_send(conn: &mut AsyncPgConnection, account: AccountId, month: Date) -> DbResult<()> {
    sql(
        "INSERT INTO message_usage_slots AS u (account_id, month, test_sends) VALUES ($1, $2, 1)
         ON CONFLICT (account_id, month, slot) DO UPDATE SET test_sends = u.test_sends + 1",
    )
    .bind(account)
    .bind(month)
    .execute(conn)
    .await?;
    Ok(())
}

/// Releases the message that [`reserve_test_send`] reserved.
pub(super) async fn release_test_send(conn: &mut AsyncPgConnection, account: AccountId, month: Date) -> DbResult<()> {
    sql("UPDATE message_usage_slots SET test_sends = test_sends - 1
         WHERE account_id = $1 AND month = $2 AND slot = 0 AND test_sends > 0")
    .bind(account)
    .bind(month)
    .execute(conn)
    .await?;
    Ok(())
}
