//! Ad spend: the latest reported amount per day and source.

use std::collections::BTreeMap;

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::ingestion::{AdSpend, IngestionResult};
use recado_domain::shared::AccountId;
use time::OffsetDateTime;

use crate::errors::DbResult;
use crate::sql::{collect_column, sql};

pub(super) async fn record(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    entries: &[AdSpend],
    now: OffsetDateTime,
) -> DbResult<IngestionResult> {
    let latest: BTreeMap<_, _> = entries
        .iter()
        .map(|entry| ((entry.date, &entry.source), entry))
        .collect();
    let latest: Vec<&AdSpend> = latest.into_values().collect();
    let accepted = sql(
        "INSERT INTO ad_spend AS s (account_id, date, source, amount, updated_at)
         SELECT $1, d.date, d.source, d.amount::numeric, $5
         FROM unnest($2, $3, $4) WITH ORDINALITY AS d (date, source, amount, position) ORDER BY d.position
         ON CONFLICT (account_id, date, source) DO UPDATE SET amount = excluded.amount, updated_at = excluded.updated_at
         WHERE s.amount <> excluded.amount",
    )
    .bind(account)
    .bind(collect_column(&latest, |entry| entry.date))
    .bind(collect_column(&latest, |entry| entry.source.clone()))
    .bind(collect_column(&latest, |entry| entry.amount))
    .bind(now)
    .execute(conn)
    .await?;
    Ok(IngestionResult::of(entries.len(), accepted))
}
