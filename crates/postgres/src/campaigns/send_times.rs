//! The order of a campaign's list of sends: the sends that got one `sent_at` together, in rows that are never searched
//! through. `sent_at` itself has no index, because its updates would not be HOT updates.

use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::shared::AccountId;
use time::OffsetDateTime;
use uuid::Uuid;

use crate::errors::DbResult;
use crate::sql::sql;

/// Lists sends that got their `sent_at`: their campaign, this time, and their id. The sends are locked.
///
/// A row may exist already: status updates carry seconds, and a retried send can get the same time again.
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
