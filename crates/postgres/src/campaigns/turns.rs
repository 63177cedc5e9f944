//! One turn of a run under way: what came of earlier sends is written and the next ones are started, in one statement.
//! At full speed that is most of what the database does, and it makes a run's speed.
//!
//! The statement runs on the platform's connection, outside of any transaction but its own: beginning and ending a
//! tenant's transaction would triple the number of statements. Every condition in it names the account.

use std::collections::HashSet;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Bool, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{PAIR_INTERVAL, QueuedRun, SendResult, Started};
use recado_domain::shared::SendId;
use uuid::Uuid;

use crate::errors::Attempt;
use crate::sql::{bare, sql};

/// `held` keeps a cancel from giving back the quota of sends that leave: it waits until they are started.
///
/// `recorded` is the one move of a send that needs no look at it before: accepted, and nothing else is known of it. The
/// platform's own news may have been faster; then there is nothing left to write. `used` reads `counted` so that both
/// rows are locked in the order in which everybody does.
///
/// `rivals` are the other runs that leave from the same number: mostly none.
const TURN: &str = "
WITH held AS (
  SELECT c.profile_id FROM campaign_queue q
    JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
    JOIN accounts a ON a.id = q.account_id
  WHERE q.account_id = $1 AND q.campaign_id = $2 AND q.worker = $3
    AND c.status = 'sending' AND c.paused_at IS NULL AND c.deleted_at IS NULL AND a.status = 'active'
  FOR SHARE OF q
), recorded AS (
  UPDATE campaign_sends s SET status = 'sent', sent_at = now(), unknown_at = NULL, wa_message_id = w.message_id
  FROM unnest($5, $6) AS w (id, message_id)
  WHERE s.account_id = $1 AND s.id = w.id AND s.campaign_id = $2 AND s.status = 'pending' AND s.started_at IS NOT NULL
  RETURNING s.id, s.wa_message_id, s.quota_month
), named AS (
  INSERT INTO sent_messages (account_id, wa_message_id, send_id)
  SELECT $1, wa_message_id, id FROM recorded WHERE wa_message_id IS NOT NULL ON CONFLICT DO NOTHING
), counted AS (
  UPDATE campaign_counters n SET pending = n.pending - r.n, sent = n.sent + r.n
  FROM (SELECT count(*) AS n FROM recorded) r
  WHERE n.account_id = $1 AND n.campaign_id = $2 AND r.n > 0
  RETURNING r.n
), used AS (
  UPDATE message_usage u SET sent = u.sent + m.n, reserved = u.reserved - m.n
  FROM (SELECT coalesce(r.quota_month, c.quota_month) AS month, count(*) AS n
    FROM recorded r JOIN campaigns c ON c.account_id = $1 AND c.id = $2
    WHERE EXISTS (SELECT 1 FROM counted) GROUP BY 1) m
  WHERE u.account_id = $1 AND u.month = m.month
), rivals AS MATERIALIZED (
  SELECT q.campaign_id FROM campaign_queue q JOIN campaigns c ON c.account_id = q.account_id AND c.id = q.campaign_id
  WHERE q.account_id = $1 AND q.campaign_id <> $2 AND c.profile_id = (SELECT profile_id FROM held)
), next AS (
  SELECT s.id, (SELECT max(o.started_at) FROM rivals r
      JOIN campaign_sends o ON o.account_id = $1 AND o.campaign_id = r.campaign_id AND o.contact_id = s.contact_id
    ) + $7 * interval '1 microsecond' AS free_at
  FROM campaign_sends s
  WHERE s.account_id = $1 AND s.id = ANY ($4) AND s.campaign_id = $2 AND EXISTS (SELECT 1 FROM held)
), started AS (
  UPDATE campaign_sends s SET started_at = now() FROM next n
  WHERE s.account_id = $1 AND s.id = n.id AND s.status = 'pending' AND s.started_at IS NULL
    AND (n.free_at <= now()) IS NOT FALSE
  RETURNING s.id, EXISTS (SELECT 1 FROM contacts c WHERE c.account_id = $1 AND c.id = s.contact_id
    AND c.deleted_at IS NULL AND c.opted_out_at IS NULL AND c.phone IS NOT NULL) AS reachable
), deferred AS (
  UPDATE campaign_sends s SET retry_at = n.free_at FROM next n
  WHERE s.account_id = $1 AND s.id = n.id AND s.status = 'pending' AND s.started_at IS NULL AND n.free_at > now()
)
SELECT EXISTS (SELECT 1 FROM held) AS goes_on, ARRAY (SELECT id FROM started) AS started,
  ARRAY (SELECT id FROM started WHERE NOT reachable) AS unreachable";

#[derive(QueryableByName)]
struct TurnRow {
    #[diesel(sql_type = Bool)]
    goes_on: bool,
    #[diesel(sql_type = Array<SqlUuid>)]
    started: Vec<Uuid>,
    #[diesel(sql_type = Array<SqlUuid>)]
    unreachable: Vec<Uuid>,
}

/// What a turn can write by itself; everything else needs a look at the send before.
pub(super) fn is_plain(result: &SendResult) -> bool {
    matches!(result, SendResult::Sent { wa_id: None, .. })
}

/// Writes plain results, and starts the next sends.
pub(super) async fn turn(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    plain: &[&(SendId, SendResult)],
    next: &[SendId],
) -> Attempt<Started> {
    // Locked in the order of their ids, as everybody does.
    let mut plain: Vec<(Uuid, Option<String>)> = plain.iter().map(|(id, result)| (id.0, message_of(result))).collect();
    plain.sort_unstable();
    let (sent, messages): (Vec<Uuid>, Vec<Option<String>>) = plain.into_iter().unzip();
    let row: TurnRow = sql(TURN)
        .bind(run.account_id)
        .bind(run.campaign_id)
        .bind(worker)
        .bind(bare(next))
        .bind(sent)
        .bind(messages)
        .bind(PAIR_INTERVAL)
        .get_result(conn)
        .await?;
    let started: HashSet<Uuid> = row.started.into_iter().collect();
    Ok(Started {
        goes_on: row.goes_on,
        sends: next.iter().copied().filter(|send| started.contains(&send.0)).collect(),
        unreachable: row.unreachable.into_iter().map(SendId).collect(),
    })
}

fn message_of(result: &SendResult) -> Option<String> {
    match result {
        SendResult::Sent { message_id, .. } => message_id.clone(),
        SendResult::Failed { .. } | SendResult::Unknown | SendResult::Deferred { .. } | SendResult::Released => None,
    }
}
