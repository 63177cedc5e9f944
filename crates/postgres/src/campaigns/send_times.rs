//! Index of a campaign's sends by `sent_at`: one row holds the sends of one statement that got the same `sent_at`. An
//! index of that column on `campaign_sends` would end the HOT updates of a run.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::AccountId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::sql;

/// Adds sends whose `sent_at` was just set; items are campaign, `sent_at` and send id. The caller must hold the locks of
/// these sends.
///
/// The key can exist: a retry takes sends out of a row but keeps the row. Status updates have whole seconds, so its first
/// send can get the same `sent_at` again.
pub(super) async fn insert(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    sends: impl Iterator<Item = (Uuid, OffsetDateTime, Uuid)>,
) -> DbResult<()> {
    let (mut campaigns, mut times, mut ids) = (vec![], vec![], vec![]);
    for (campaign, sent_at, id) in sends {
        campaigns.push(campaign);
        times.push(sent_at);
        ids.push(id);
    }
    if ids.is_empty() {
        return Ok(());
    }
    sql(
        "INSERT INTO campaign_send_times AS t (account_id, campaign_id, sent_at, first_send_id, send_ids)
         SELECT $1, campaign_id, sent_at, (array_agg(id ORDER BY id))[1], array_agg(id ORDER BY id)
         FROM unnest($2, $3, $4) AS s (campaign_id, sent_at, id) GROUP BY campaign_id, sent_at ORDER BY 2, 3, 4
         ON CONFLICT (account_id, campaign_id, sent_at, first_send_id)
           DO UPDATE SET send_ids = t.send_ids || excluded.send_ids",
    )
    .bind(account)
    .bind(campaigns)
    .bind(times)
    .bind(ids)
    .execute(conn)
    .await?;
    Ok(())
}
