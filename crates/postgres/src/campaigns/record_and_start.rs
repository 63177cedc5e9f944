//! Records the results of earlier sends and starts the next ones in one statement. At full speed this statement is most
//! of the database's load and limits the speed of a run.
//!
//! The statement runs on the owner pool in its own implicit transaction: opening and ending a tenant transaction would
//! triple the number of statements. Row-level security does not apply there, so every condition names the account.

use std::collections::HashSet;

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Bool, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{PAIR_INTERVAL, QueuedRun, SendResult, StartedSends};
use recado_domain::shared::SendId;
use uuid::Uuid;

use super::send_ids::smallest;
use crate::errors::DbResult;
use crate::sql::{sql, uuids};

/// `held` locks the queue entry. A cancel waits for it, so it never releases the reservation of a send that this
/// statement starts.
///
/// `recorded` writes the one result that does not depend on the send's state: accepted, with no other detail. If a
/// status update was faster, the send is no longer pending and nothing is written. `used` reads `counted` so that both
/// rows are locked in the common order. Both write the counter slot that `counter_slot()` selects (see the view
/// `campaign_counters`).
///
/// `concurrent_runs` are the other runs that send from the same number. Mostly there are none.
///
/// Every send is looked up by its primary key. `IS NOT DISTINCT FROM` keeps the planner from using the index on the
/// campaign: without statistics of a new campaign the planner expects a few sends there and then reads all of them. The
/// account is a sub-select for the same reason: the planner then assumes an average account. The arrays are sub-selects
/// under a limit, so the planner expects one key (see `sql::key_rows`).
///
/// `$8` is the smallest of the ids: earlier partitions are skipped when the statement starts, later ones for each id.
const RECORD_AND_START: &str = include_str!("record_and_start.sql");

#[derive(QueryableByName)]
struct StartedRow {
    #[diesel(sql_type = Bool)]
    goes_on: bool,
    #[diesel(sql_type = Array<SqlUuid>)]
    started: Vec<Uuid>,
    #[diesel(sql_type = Array<SqlUuid>)]
    unreachable: Vec<Uuid>,
}

/// Whether [`record_and_start`] can write the result itself. Every other result depends on the send's current state.
pub(super) fn is_plain(result: &SendResult) -> bool {
    matches!(result, SendResult::Sent { wa_id: None, .. })
}

/// Records plain results and starts the next sends.
pub(super) async fn record_and_start(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    plain: &[&(SendId, SendResult)],
    next: &[SendId],
) -> DbResult<StartedSends> {
    // Sorted: sends are locked in the order of their ids.
    let mut plain: Vec<(Uuid, Option<String>)> = plain.iter().map(|(id, result)| (id.0, message_id(result))).collect();
    plain.sort_unstable();
    let (sent, messages): (Vec<Uuid>, Vec<Option<String>>) = plain.into_iter().unzip();
    let smallest = smallest(sent.iter().chain(next.iter().map(|send| &send.0)));
    let row: StartedRow = sql(RECORD_AND_START)
        .bind(run.account_id)
        .bind(run.campaign_id)
        .bind(worker)
        .bind(uuids(next))
        .bind(sent)
        .bind(messages)
        .bind(PAIR_INTERVAL)
        .bind(smallest)
        .get_result(conn)
        .await?;
    let started: HashSet<Uuid> = row.started.into_iter().collect();
    Ok(StartedSends {
        goes_on: row.goes_on,
        sends: next.iter().copied().filter(|send| started.contains(&send.0)).collect(),
        unreachable: row.unreachable.into_iter().map(SendId).collect(),
    })
}

fn message_id(result: &SendResult) -> Option<String> {
    match result {
        SendResult::Sent { message_id, .. } => message_id.clone(),
        SendResult::Failed { .. }
        | SendResult::Unknown
        | SendResult::Deferred { .. }
        | SendResult::Throttled { .. }
        | SendResult::Released => None,
    }
}
