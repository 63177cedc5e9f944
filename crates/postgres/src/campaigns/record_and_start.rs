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

use crate::errors::DbResult;
use crate::sql::{sql, uuids};

/// `held` keeps a cancel from giving back the quota of sends that leave: it waits until they are started.
///
/// `recorded` is the one move of a send that needs no look at it before: accepted, and nothing else is known of it. The
/// platform's own news may have been faster; then there is nothing left to write. `used` reads `counted` so that both
/// rows are locked in the order in which everybody does. Either writes the slot of the moment (see the view
/// `campaign_counters`).
///
/// `rivals` are the other runs that leave from the same number: mostly none.
///
/// Sends are looked up by their key, each for itself. Whether one is the campaign's is asked in words that no index can
/// answer: planned before anything is known of a new campaign, that index would seem to lead to a few sends, and leads to
/// all of them. And so would the account, of which the planner may not know yet: as the result of a query it is any
/// account's, which has as many sends as they have on the average. The arrays, too, are results of queries,
/// behind a limit that is one: the planner expects one key of them (see `sql::key_rows`).
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

/// What a turn can write by itself; everything else needs a look at the send before.
pub(super) fn is_plain(result: &SendResult) -> bool {
    matches!(result, SendResult::Sent { wa_id: None, .. })
}

/// Writes plain results, and starts the next sends.
pub(super) async fn record_and_start(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    plain: &[&(SendId, SendResult)],
    next: &[SendId],
) -> DbResult<Started> {
    // Sorted: sends are locked in the order of their ids.
    let mut plain: Vec<(Uuid, Option<String>)> = plain.iter().map(|(id, result)| (id.0, message_id(result))).collect();
    plain.sort_unstable();
    let (sent, messages): (Vec<Uuid>, Vec<Option<String>>) = plain.into_iter().unzip();
    let row: StartedRow = sql(RECORD_AND_START)
        .bind(run.account_id)
        .bind(run.campaign_id)
        .bind(worker)
        .bind(uuids(next))
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
