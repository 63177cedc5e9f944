//! The sends of a run that may be in flight, by their ids, and what is left of a run, by its counters. Neither reads
//! the other sends of the campaign.
//!
//! Only claimed sends are started. `campaign_claims` holds the sends of the latest claim and those that were in flight
//! before it, so every send that was started and has no recorded result is among them.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Nullable, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{HeldSends, QueuedRun};
use recado_domain::shared::{AccountId, CampaignId};
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::send_ids::{SendIdRange, id_of_campaign, smallest};
use crate::errors::DbResult;
use crate::sql::{FENCE, IdRow, NumberRow, equals_without_index, key_rows, sql, unknown_limit};

#[derive(QueryableByName)]
struct ClaimedIdsRow {
    #[diesel(sql_type = Array<SqlUuid>)]
    send_ids: Vec<Uuid>,
}

/// The ids of the run's latest claim. Empty before the first claim.
async fn claimed_ids(conn: &mut AsyncPgConnection, account: AccountId, campaign: CampaignId) -> DbResult<Vec<Uuid>> {
    let row: Option<ClaimedIdsRow> =
        sql("SELECT send_ids || earlier_send_ids AS send_ids FROM campaign_claims WHERE account_id = $1 AND campaign_id = $2")
            .bind(account)
            .bind(campaign)
            .get_result(conn)
            .await
            .optional()?;
    Ok(row.map(|row| row.send_ids).unwrap_or_default())
}

/// Reads which sends of the run were started and have no recorded result. For a worker that did not start them itself.
/// Each claimed send is looked up by its key.
pub(super) async fn unresolved(conn: &mut AsyncPgConnection, run: QueuedRun, ids: SendIdRange) -> DbResult<Vec<Uuid>> {
    let claimed = claimed_ids(conn, run.account_id, run.campaign_id).await?;
    if claimed.is_empty() {
        return Ok(vec![]);
    }
    let rows: Vec<IdRow> = sql(format!(
        "SELECT k.id FROM {keys} k
           CROSS JOIN LATERAL (SELECT status, started_at, unknown_at FROM campaign_sends
             WHERE account_id = $1 AND id = k.id AND id BETWEEN $3 AND $4 {FENCE}) s
         WHERE s.status = 'pending' AND s.started_at IS NOT NULL AND s.unknown_at IS NULL",
        keys = key_rows("$2", "id"),
    ))
    .bind(run.account_id)
    .bind(claimed)
    .bind(ids.first)
    .bind(ids.last)
    .load(conn)
    .await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Marks the run's sends that were started and have no recorded result as unknown.
pub(super) async fn mark_unknown(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
) -> DbResult<()> {
    let claimed = claimed_ids(conn, account, campaign).await?;
    if claimed.is_empty() {
        return Ok(());
    }
    let smallest = smallest(&claimed);
    // Locked in the order of their ids, as everywhere.
    sql(format!(
        "WITH in_flight AS MATERIALIZED (
           SELECT s.id FROM {keys} k JOIN campaign_sends s ON s.account_id = $1 AND s.id = k.id AND s.id >= $4
           WHERE {of_campaign} AND s.status = 'pending' AND s.started_at IS NOT NULL
             AND s.unknown_at IS NULL
           ORDER BY s.id FOR UPDATE OF s
         )
         UPDATE campaign_sends s SET unknown_at = now()
         FROM (SELECT id FROM in_flight {limit}) i
         WHERE s.account_id = $1 AND s.id = i.id AND s.id >= $4",
        keys = key_rows("$2", "id"),
        of_campaign = equals_without_index!("s.campaign_id", "$3"),
        limit = unknown_limit("cardinality($2)"),
    ))
    .bind(account)
    .bind(claimed)
    .bind(campaign)
    .bind(smallest)
    .execute(conn)
    .await?;
    Ok(())
}

pub(super) async fn delete_claim(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
) -> DbResult<()> {
    sql("DELETE FROM campaign_claims WHERE account_id = $1 AND campaign_id = $2")
        .bind(account)
        .bind(campaign)
        .execute(conn)
        .await?;
    Ok(())
}

/// What is left of a campaign.
#[derive(QueryableByName)]
pub(super) struct Remaining {
    /// Sends that are pending and not started, with those that have no row yet.
    #[diesel(sql_type = BigInt)]
    pub(super) untried: i64,
    /// Those of them whose retry time has not come.
    #[diesel(sql_type = BigInt)]
    pub(super) waiting: i64,
    /// The time until the first of these, in microseconds.
    #[diesel(sql_type = Nullable<BigInt>)]
    pub(super) next: Option<i64>,
    /// Those of the waiting ones that are held.
    #[diesel(sql_type = BigInt)]
    held: i64,
    #[diesel(sql_type = Timestamptz)]
    held_until: OffsetDateTime,
}

impl Remaining {
    /// The held sends, if all untried ones are held.
    pub(super) fn all_held(&self) -> Option<HeldSends> {
        let all_held = self.held > 0 && self.waiting == self.held && self.untried <= self.held;
        all_held.then_some(HeldSends {
            count: self.held,
            until: self.held_until,
        })
    }
}

/// The shortest wait of a run for held sends.
const MIN_HELD_WAIT: Duration = Duration::seconds(3);

/// The query of [`untried`].
fn untried_query() -> String {
    format!(
        include_str!("untried.sql"),
        ids = id_of_campaign!("campaign_sends.id"),
        fence = FENCE,
    )
}

/// Counts the pending sends of a campaign without the started ones, which are in flight or unknown. Reads the claimed
/// and the unknown sends. Sends without counters, as another tool inserts them, are counted.
pub(super) async fn untried(conn: &mut AsyncPgConnection, account: AccountId, campaign: CampaignId) -> DbResult<i64> {
    let row: NumberRow = sql(untried_query())
        .bind(account)
        .bind(campaign)
        .get_result(conn)
        .await?;
    Ok(row.n)
}

/// Counts what is left of a run. One statement, so that counters and sends are of one snapshot. Also reads the waiting
/// sends.
pub(super) async fn remaining(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
) -> DbResult<Remaining> {
    let row = sql(format!(
        include_str!("remaining.sql"),
        ids = id_of_campaign!("campaign_sends.id"),
        untried = untried_query(),
    ))
    .bind(account)
    .bind(campaign)
    .bind(MIN_HELD_WAIT)
    .get_result(conn)
    .await?;
    Ok(row)
}
