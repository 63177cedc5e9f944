//! Cost alerts: sums of months that status updates add to, and the alerts that they pass.
//!
//! The row of a month is locked last in a transaction. So of two transactions that pass an amount together, the second
//! one sees the sum of the first.

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::costs::{CostMonth, CostRollupDelta, added_to_months, alert_events, passed};
use recado_domain::shared::{AccountId, Amount, ZoneName};

use crate::errors::DbResult;
use crate::ingestion::amount;
use crate::outbox;
use crate::settings;
use crate::sql::{TextRow, sql};

/// Emits the events of the alerts that the transaction's changes pass. MUST be the last statement that locks a row.
pub(crate) async fn check_alerts(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    delta: &CostRollupDelta,
) -> DbResult<()> {
    if !delta.changes_amounts() {
        return Ok(());
    }
    let (zone_name, alerts) = settings::cost_alerts(conn, account).await?;
    let zone = zone_name.zone();
    for (month, added) in added_to_months(delta, &alerts, &zone) {
        let Some((previous, sum)) = add_to_month(conn, account, &month, &zone_name, added).await? else {
            continue;
        };
        let thresholds = passed(&alerts, &month.currency, previous, sum);
        let thresholds = give(conn, account, &month, thresholds).await?;
        if !thresholds.is_empty() {
            let events = alert_events(&month, &thresholds, previous, sum);
            outbox::append(conn, account, &events).await?;
        }
    }
    Ok(())
}

#[derive(QueryableByName)]
struct SumRow {
    #[diesel(sql_type = Text)]
    amount: String,
    /// Whether the sum was not computed since the account's alerts were set.
    #[diesel(sql_type = Bool)]
    is_new: bool,
    #[diesel(sql_type = Bool)]
    is_stale: bool,
}

/// Returns the sum of a month before and after. The sum is computed from the rollup once, and again each minute: so it
/// contains what another server added that did not know of the alerts, and what a rebuild of the rollups corrected.
async fn add_to_month(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    month: &CostMonth,
    zone: &ZoneName,
    added: Amount,
) -> DbResult<Option<(Amount, Amount)>> {
    let row: SumRow = sql(
        "INSERT INTO cost_months AS m (account_id, currency, month, zone, amount) VALUES ($1, $2, $3, $4, $5::text::numeric)
         ON CONFLICT (account_id, currency, month) DO UPDATE SET amount = m.amount + excluded.amount,
           zone = excluded.zone,
           summed_at = CASE WHEN m.zone = excluded.zone OR m.summed_at IS NULL THEN m.summed_at ELSE '-infinity' END
         RETURNING m.amount::text AS amount, m.summed_at IS NULL AS is_new,
           (m.summed_at > now() - interval '1 minute') IS NOT TRUE AS is_stale",
    )
    .bind(account)
    .bind(month.currency.as_str())
    .bind(month.first_day)
    .bind(zone.as_str())
    .bind(added.to_string())
    .get_result(&mut *conn)
    .await?;
    let counted = amount(&row.amount)?;
    if !row.is_stale {
        return Ok(Some((counted - added, counted)));
    }
    let Some((begin, end)) = month.limits(&zone.zone()) else {
        return Ok(None);
    };
    // A statement of its own: it reads what was committed before the row was locked.
    let summed: TextRow = sql(
        "UPDATE cost_months SET summed_at = now(), amount = (SELECT coalesce(sum(r.amount), 0)
           FROM cost_rollups r WHERE r.account_id = $1 AND r.bucket_start >= $4 AND r.bucket_start < $5
             AND r.currency = $2)
         WHERE account_id = $1 AND currency = $2 AND month = $3
         RETURNING amount::text AS text",
    )
    .bind(account)
    .bind(month.currency.as_str())
    .bind(month.first_day)
    .bind(begin)
    .bind(end)
    .get_result(conn)
    .await?;
    let summed = amount(&summed.text)?;
    let before = if row.is_new { summed } else { counted };
    Ok(Some((before - added, summed)))
}

/// Records the alerts and returns those that were not given in this month before.
async fn give(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    month: &CostMonth,
    thresholds: Vec<Amount>,
) -> DbResult<Vec<Amount>> {
    if thresholds.is_empty() {
        return Ok(thresholds);
    }
    let given: Vec<TextRow> = sql(
        "INSERT INTO given_cost_alerts (account_id, currency, month, threshold, given_at)
         SELECT $1, $2, $3, t.threshold::numeric, now() FROM unnest($4) AS t (threshold)
         ON CONFLICT DO NOTHING RETURNING threshold::text AS text",
    )
    .bind(account)
    .bind(month.currency.as_str())
    .bind(month.first_day)
    .bind(thresholds)
    .load(conn)
    .await?;
    let mut given: Vec<Amount> = given.iter().map(|row| amount(&row.text)).collect::<DbResult<_>>()?;
    given.sort_unstable();
    Ok(given)
}
