//! The month's messages of an account: those sent and those that runs under way may still send, which the sends tell;
//! and tests, of which nothing else tells.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::Date as SqlDate;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::AccountId;
use time::Date;

use crate::errors::Attempt;
use crate::sql::{Number, sql};

#[derive(QueryableByName)]
pub(super) struct MonthRow {
    #[diesel(sql_type = SqlDate)]
    pub(super) month: Date,
}

/// The month that a message counts in that leaves now.
pub(super) async fn this_month(conn: &mut AsyncPgConnection) -> Attempt<Date> {
    let row: MonthRow = sql("SELECT date_trunc('month', now() AT TIME ZONE 'UTC')::date AS month")
        .get_result(conn)
        .await?;
    Ok(row.month)
}

/// How many of the month's messages are taken.
pub(super) async fn used(conn: &mut AsyncPgConnection, account: AccountId, month: Date) -> Attempt<i64> {
    let used: Option<Number> =
        sql("SELECT sent + reserved + tests AS n FROM message_usage WHERE account_id = $1 AND month = $2")
            .bind(account)
            .bind(month)
            .get_result(conn)
            .await
            .optional()?;
    Ok(used.map_or(0, |row| row.n))
}

/// Takes one of them for a test; false when none is left.
pub(super) async fn take_test(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    month: Date,
    limit: i64,
) -> Attempt<bool> {
    sql("INSERT INTO message_usage (account_id, month) VALUES ($1, $2) ON CONFLICT DO NOTHING")
        .bind(account)
        .bind(month)
        .execute(&mut *conn)
        .await?;
    let taken = sql("UPDATE message_usage SET tests = tests + 1
         WHERE account_id = $1 AND month = $2 AND sent + reserved + tests < $3")
    .bind(account)
    .bind(month)
    .bind(limit)
    .execute(conn)
    .await?;
    Ok(taken == 1)
}

/// Gives back what a test took.
pub(super) async fn give_test_back(conn: &mut AsyncPgConnection, account: AccountId, month: Date) -> Attempt<()> {
    sql("UPDATE message_usage SET tests = tests - 1 WHERE account_id = $1 AND month = $2 AND tests > 0")
        .bind(account)
        .bind(month)
        .execute(conn)
        .await?;
    Ok(())
}
