//! The rollup of costs. The code that writes the prices calls this afterwards, in the same transaction.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::costs::CostRollupDelta;
use recado_domain::shared::AccountId;

use crate::errors::DbResult;
use crate::sql::{collect_column, sql};

/// Adds a delta. Rows are locked in the order of their keys, so concurrent writers do not deadlock.
pub(crate) async fn count_costs(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    delta: &CostRollupDelta,
) -> DbResult<()> {
    let changes = delta.changes();
    if changes.is_empty() {
        return Ok(());
    }
    sql(include_str!("add_costs.sql"))
        .bind(account)
        .bind(collect_column(&changes, |(key, _)| key.bucket_start))
        .bind(collect_column(&changes, |(key, _)| key.campaign_id))
        .bind(collect_column(&changes, |(key, _)| key.profile_id))
        .bind(collect_column(&changes, |(key, _)| key.template_id))
        .bind(collect_column(&changes, |(key, _)| key.category.clone()))
        .bind(collect_column(&changes, |(key, _)| key.market.clone()))
        .bind(collect_column(&changes, |(key, _)| key.currency.clone()))
        .bind(collect_column(&changes, |(_, sums)| sums.amount))
        .bind(collect_column(&changes, |(_, sums)| sums.messages))
        .bind(collect_column(&changes, |(_, sums)| sums.billable))
        .bind(collect_column(&changes, |(_, sums)| sums.free))
        .bind(collect_column(&changes, |(_, sums)| sums.unpriced))
        .execute(conn)
        .await?;
    Ok(())
}
