//! Retry batches: the sends that a retry chose, until they are reset to untried. The counters and the quota count all
//! of them from the start of the retry on.
//!
//! A failed send never changes its status, so a batch needs no lock on its sends and loses none. Deleting a batch and
//! resetting its sends is one transaction: after a crash, a batch is there with failed sends, or gone with pending
//! ones.
//!
//! Sends are locked in the order of their ids: the ids are sorted before, and each is looked up. No statement sorts
//! its rows, because claims and searches are executed in index order.

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, BigInt, Nullable, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::campaigns::QueuedRun;
use recado_domain::shared::{AccountId, CampaignId};
use time::OffsetDateTime;
use uuid::Uuid;

use super::audience;
use super::rows::RunRow;
use super::send_ids::{AFTER_CONTACT, SendIdRange, smallest};
use crate::errors::DbResult;
use crate::pool::INDEX_ORDER;
use crate::sql::{equals_without_index, key_rows, sql, unknown_limit};

/// The most sends in a batch, and the most sends that one step of a search reads.
pub(super) const RETRY_BATCH_SIZE: i32 = 2000;

#[derive(QueryableByName)]
struct BatchRow {
    #[diesel(sql_type = Array<SqlUuid>)]
    send_ids: Vec<Uuid>,
}

/// Deletes a campaign's first batch and resets its sends to untried. Returns false if no batch is left. The row lock
/// waits for another worker that resets the same batch. Each send keeps its number of failures and the id of its
/// earlier message.
pub(super) async fn reset_next_batch(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
) -> DbResult<bool> {
    let batch: Option<BatchRow> = sql(
        "DELETE FROM campaign_retry_batches WHERE account_id = $1 AND campaign_id = $2
           AND batch_no = (SELECT batch_no FROM campaign_retry_batches
             WHERE account_id = $1 AND campaign_id = $2 AND batch_no > 0 ORDER BY batch_no LIMIT 1 FOR UPDATE)
         RETURNING send_ids",
    )
    .bind(account)
    .bind(campaign)
    .get_result(&mut *conn)
    .await
    .optional()?;
    let Some(BatchRow { send_ids: mut ids }) = batch else {
        return Ok(false);
    };
    ids.sort_unstable();
    let smallest = smallest(&ids);
    let campaign_ids = SendIdRange::around(smallest);
    sql(format!(
        include_str!("reset_retry_batch.sql"),
        keys = key_rows("$2", "id"),
        of_campaign = equals_without_index!("s.campaign_id", "$3"),
        limit = unknown_limit("cardinality($2)"),
    ))
    .bind(account)
    .bind(ids)
    .bind(campaign)
    .bind(smallest)
    .bind(campaign_ids.first)
    .bind(campaign_ids.last)
    .execute(conn)
    .await?;
    Ok(true)
}

/// Queues the search for the sends that an early end left untried.
pub(super) async fn queue_search(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
) -> DbResult<()> {
    sql(
        "INSERT INTO campaign_retry_batches (account_id, campaign_id, batch_no, send_ids, searched_until)
         VALUES ($1, $2, 0, '{}', $3)
         ON CONFLICT (account_id, campaign_id, batch_no) DO UPDATE SET searched_until = excluded.searched_until",
    )
    .bind(account)
    .bind(campaign)
    .bind(Uuid::nil())
    .execute(conn)
    .await?;
    Ok(())
}

#[derive(QueryableByName)]
struct SearchRow {
    #[diesel(sql_type = Nullable<SqlUuid>)]
    searched_until: Option<Uuid>,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    frozen_at: Option<OffsetDateTime>,
}

#[derive(QueryableByName)]
struct SearchedRow {
    #[diesel(sql_type = BigInt)]
    searched: i64,
    #[diesel(sql_type = Nullable<SqlUuid>)]
    until: Option<Uuid>,
}

/// One step of the search: creates the sends of one recipient batch, or reads the next sends by contact and makes the
/// untried ones due. Returns false if no search is left.
pub(super) async fn search_untried(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    campaign: CampaignId,
) -> DbResult<bool> {
    let search: Option<SearchRow> = sql("SELECT searched_until,
           (SELECT frozen_at FROM campaigns WHERE account_id = $1 AND id = $2) AS frozen_at
         FROM campaign_retry_batches WHERE account_id = $1 AND campaign_id = $2 AND batch_no = 0 FOR UPDATE")
    .bind(account)
    .bind(campaign)
    .get_result(&mut *conn)
    .await
    .optional()?;
    let Some(SearchRow {
        searched_until,
        frozen_at,
    }) = search
    else {
        return Ok(false);
    };
    if audience::materialize_sends(conn, account, campaign).await? {
        return Ok(true);
    }
    // Without statistics of the partition the planner would expect few ids in the range, and sort all sends.
    conn.batch_execute(INDEX_ORDER).await?;
    let ids = SendIdRange::of_campaign(frozen_at);
    let found: SearchedRow = sql(format!(
        include_str!("search_untried.sql"),
        after_contact = AFTER_CONTACT,
        limit = unknown_limit("count(*) FROM next"),
    ))
    .bind(account)
    .bind(campaign)
    .bind(searched_until.unwrap_or_default())
    .bind(i64::from(RETRY_BATCH_SIZE))
    .bind(ids.first)
    .bind(ids.last)
    .get_result(&mut *conn)
    .await?;
    if found.searched < i64::from(RETRY_BATCH_SIZE) {
        sql("DELETE FROM campaign_retry_batches WHERE account_id = $1 AND campaign_id = $2 AND batch_no = 0")
            .bind(account)
            .bind(campaign)
            .execute(conn)
            .await?;
        return Ok(false);
    }
    sql("UPDATE campaign_retry_batches SET searched_until = $3
         WHERE account_id = $1 AND campaign_id = $2 AND batch_no = 0")
    .bind(account)
    .bind(campaign)
    .bind(found.until)
    .execute(conn)
    .await?;
    Ok(true)
}

/// Finds one campaign with retry batches, across all accounts.
pub(super) async fn run_with_retry_batches(conn: &mut AsyncPgConnection) -> DbResult<Option<QueuedRun>> {
    let row: Option<RunRow> = sql("SELECT account_id, campaign_id FROM campaign_retry_batches
         ORDER BY account_id, campaign_id LIMIT 1")
    .get_result(conn)
    .await
    .optional()?;
    Ok(row.map(QueuedRun::from))
}

/// The next step of a campaign's retry batches, for a caller without the run's lease.
pub(super) async fn next_step(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<bool> {
    let (account, campaign) = (run.account_id, run.campaign_id);
    Ok(search_untried(conn, account, campaign).await? || reset_next_batch(conn, account, campaign).await?)
}
