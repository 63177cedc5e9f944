//! Business statistics, by the rules of `recado_domain::administration`. A test compares both over random histories.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{BigInt, Date as SqlDate};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::administration::{DayChurn, DayRevenue, Days, Revenue, SubscriptionTotals, Totals};
use recado_domain::billing::Cents;
use time::{Date, OffsetDateTime};

use crate::errors::DbResult;
use crate::sql::sql;

/// The monthly value of the subscription `s`: `recado_domain::administration::monthly_value`.
macro_rules! monthly_value {
    () => {
        "CASE s.cycle WHEN 'YEARLY' THEN s.value / 12
           + CASE WHEN s.value % 12 > 6 OR (s.value % 12 = 6 AND (s.value / 12) % 2 = 1) THEN 1 ELSE 0 END
         ELSE s.value END"
    };
}
pub(super) use monthly_value;

/// The subscriptions that count, with the time of their end: no attempts, and none of accounts that are being deleted.
macro_rules! counted {
    () => {
        concat!(
            "(SELECT s.account_id, s.status, s.value, s.created_at, ",
            monthly_value!(),
            " AS monthly, CASE WHEN s.status IN ('cancelled', 'inactive') THEN
                greatest(coalesce(least(s.cancelled_at, s.inactivated_at), s.updated_at), s.created_at) END AS ended_at
              FROM subscriptions s
              WHERE NOT s.attempt AND s.account_id NOT IN (SELECT account_id FROM account_deletions))"
        )
    };
}

#[derive(QueryableByName)]
struct TotalsRow {
    #[diesel(sql_type = BigInt)]
    accounts: i64,
    #[diesel(sql_type = BigInt)]
    users: i64,
    #[diesel(sql_type = BigInt)]
    contacts: i64,
    #[diesel(sql_type = BigInt)]
    conversations: i64,
}

pub(super) async fn totals(conn: &mut AsyncPgConnection) -> DbResult<Totals> {
    let row: TotalsRow = sql(
        "SELECT (SELECT count(*) FROM accounts WHERE deleting_at IS NULL) AS accounts,
           (SELECT count(*) FROM users) AS users,
           (SELECT coalesce(sum(contacts), 0)::bigint FROM contact_counts) AS contacts,
           (SELECT coalesce(sum(conversations), 0)::bigint FROM conversation_counts) AS conversations",
    )
    .get_result(conn)
    .await?;
    Ok(Totals {
        accounts: row.accounts,
        users: row.users,
        contacts: row.contacts,
        conversations: row.conversations,
    })
}

#[derive(QueryableByName)]
struct SubscriptionTotalsRow {
    #[diesel(sql_type = BigInt)]
    mrr: i64,
    #[diesel(sql_type = BigInt)]
    paying: i64,
    #[diesel(sql_type = BigInt)]
    live_before: i64,
    #[diesel(sql_type = BigInt)]
    ended_since: i64,
}

pub(super) async fn subscriptions(
    conn: &mut AsyncPgConnection,
    since: OffsetDateTime,
    now: OffsetDateTime,
) -> DbResult<SubscriptionTotals> {
    let row: SubscriptionTotalsRow = sql(concat!(
        "SELECT coalesce(sum(monthly) FILTER (WHERE status IN ('active', 'past_due')), 0)::bigint AS mrr,
           count(DISTINCT account_id) FILTER (WHERE status IN ('active', 'past_due') AND value > 0) AS paying,
           count(*) FILTER (WHERE value > 0 AND created_at < $1 AND (ended_at IS NULL OR ended_at >= $1)) AS live_before,
           count(*) FILTER (WHERE value > 0 AND created_at < $1 AND ended_at >= $1 AND ended_at <= $2) AS ended_since
         FROM ",
        counted!(),
        " s"
    ))
    .bind(since)
    .bind(now)
    .get_result(conn)
    .await?;
    Ok(SubscriptionTotals {
        mrr: Cents(row.mrr),
        paying_accounts: row.paying,
        live_before: row.live_before,
        ended_since: row.ended_since,
    })
}

#[derive(QueryableByName)]
struct RevenueRow {
    #[diesel(sql_type = SqlDate)]
    date: Date,
    #[diesel(sql_type = BigInt)]
    revenue: i64,
    #[diesel(sql_type = BigInt)]
    payments: i64,
}

pub(super) async fn revenue(conn: &mut AsyncPgConnection, days: Days) -> DbResult<Vec<DayRevenue>> {
    let rows: Vec<RevenueRow> = sql(
        "SELECT (paid_at AT TIME ZONE 'UTC')::date AS date, sum(value)::bigint AS revenue, count(*) AS payments
         FROM billing_history
         WHERE paid_at >= $1::timestamp AT TIME ZONE 'UTC' AND paid_at < ($2 + 1)::timestamp AT TIME ZONE 'UTC'
           AND account_id NOT IN (SELECT account_id FROM account_deletions)
         GROUP BY 1 ORDER BY 1",
    )
    .bind(days.first)
    .bind(days.last)
    .load(conn)
    .await?;
    let day = |row: RevenueRow| {
        let revenue = Revenue {
            revenue: Cents(row.revenue),
            payments: row.payments,
        };
        (row.date, revenue)
    };
    Ok(rows.into_iter().map(day).collect())
}

#[derive(QueryableByName)]
struct ChurnRow {
    #[diesel(sql_type = SqlDate)]
    date: Date,
    #[diesel(sql_type = BigInt)]
    ended: i64,
    #[diesel(sql_type = BigInt)]
    ended_value: i64,
    #[diesel(sql_type = BigInt)]
    live_before: i64,
    #[diesel(sql_type = BigInt)]
    ended_of_these: i64,
}

/// Reads every subscription once, for any number of days. A subscription counts as live at the beginning of a day
/// from the day after its creation to the day of its end.
fn churn_statement() -> String {
    format!(include_str!("churn.sql"), counted = counted!())
}

pub(super) async fn churn(conn: &mut AsyncPgConnection, days: Days) -> DbResult<Vec<DayChurn>> {
    let rows: Vec<ChurnRow> = sql(churn_statement())
        .bind(days.first)
        .bind(days.last)
        .load(conn)
        .await?;
    let day = |row: ChurnRow| DayChurn {
        date: row.date,
        ended: row.ended,
        ended_value: Cents(row.ended_value),
        live_before: row.live_before,
        ended_of_these: row.ended_of_these,
    };
    Ok(rows.into_iter().map(day).collect())
}
