//! Records the results of earlier sends and starts the next ones in one statement. At full speed this statement is most
//! of the database's load and limits the speed of a run.
//!
//! The statement runs on the owner pool in its own implicit transaction: opening and ending a tenant transaction would
//! triple the number of statements. Row-level security does not apply there, so every condition names the account.
//!
//! If an endpoint subscribes to `message.sent`, the events must commit with the results. Then the statement changes
//! nothing, and runs again in a transaction that appends the events.
//!
//! If the campaign has a budget, or the account's settings may hold messages, the statement starts nothing. The sends are
//! then started in a transaction that decides which of them are held, and how many of the others the budget admits.

use std::collections::{HashMap, HashSet};

use diesel::prelude::QueryableByName;
use diesel::sql_types::{Array, Bool, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::campaigns::{MessageStatusEvent, PAIR_INTERVAL, QueuedRun, SendResult, StartedSends};
use recado_domain::messaging::{AddressKind, SendStatus};
use recado_domain::shared::{SendId, StoreError};
use uuid::Uuid;

use super::send_ids::smallest;
use super::{budgets, holds, rows};
use crate::errors::DbResult;
use crate::holds::Purpose;
use crate::outbox;
use crate::pool::OwnerPool;
use crate::sql::{sql, uuids};
use crate::transactions::{in_owner, on_owner};

/// `held` locks the queue entry. A cancel waits for it, so it never releases the reservation of a send that this
/// statement starts.
///
/// `recorded` writes plain results (see [`is_plain`]), also if the run has ended meanwhile. If a status update was faster,
/// the send is no longer pending and nothing is written. `used` reads `counted`, so that the campaign's counters are
/// locked before the month's usage, as everywhere. `counter_slot()` selects the counter slot of each (see the view
/// `campaign_counters`).
///
/// `due` are the recorded sends whose events are due. An erased contact has none.
///
/// `concurrent_runs` are the other runs that send from the same number. Mostly there are none.
///
/// Every send is looked up by its primary key. `IS NOT DISTINCT FROM` keeps the planner from using the index on the
/// campaign: without statistics of a new campaign the planner expects a few sends there and then reads all of them. The
/// account is a sub-select for the same reason: the planner then assumes an average account. The arrays are sub-selects
/// under a limit, so the planner expects one key (see `sql::key_rows`).
///
/// Parameters: `$1` account, `$2` campaign, `$3` worker, `$4` sends to start, `$5` and `$6` accepted sends and their
/// WhatsApp message ids, `$7` [`PAIR_INTERVAL`] in microseconds, `$8` the smallest of the ids, `$9` whether the caller
/// appends the events in the same transaction, `$10` whether it made the checks of `needs_checks`. By `$8` earlier partitions are skipped when the
/// statement starts, later ones for each id.
const RECORD_AND_START: &str = include_str!("record_and_start.sql");

#[derive(QueryableByName)]
struct StartedRow {
    #[diesel(sql_type = Bool)]
    goes_on: bool,
    #[diesel(sql_type = Array<SqlUuid>)]
    started: Vec<Uuid>,
    #[diesel(sql_type = Array<SqlUuid>)]
    unreachable: Vec<Uuid>,
    /// Events are due: the statement changed nothing, and must run in a transaction that appends them.
    #[diesel(sql_type = Bool)]
    needs_transaction: bool,
    /// The campaign has a budget, or the account's settings may hold messages, so that no send was started.
    #[diesel(sql_type = Bool)]
    needs_checks: bool,
    /// The recorded sends whose events are due, and the contact of each.
    #[diesel(sql_type = Array<SqlUuid>)]
    event_sends: Vec<Uuid>,
    #[diesel(sql_type = Array<SqlUuid>)]
    event_contacts: Vec<Uuid>,
    /// Whether each was addressed by user id.
    #[diesel(sql_type = Array<Bool>)]
    event_addresses: Vec<bool>,
}

impl StartedRow {
    fn into_started(self, next: &[SendId]) -> StartedSends {
        let started: HashSet<Uuid> = self.started.into_iter().collect();
        StartedSends {
            goes_on: self.goes_on,
            sends: next.iter().copied().filter(|send| started.contains(&send.0)).collect(),
            unreachable: self.unreachable.into_iter().map(SendId).collect(),
            is_over_budget: false,
        }
    }
}

/// Whether [`record_and_start`] can write the result itself. Every other result depends on the send's current state.
pub(super) fn is_plain(result: &SendResult) -> bool {
    matches!(result, SendResult::Sent { wa_id: None, .. })
}

/// Records plain results and starts the next sends.
pub(super) async fn record_and_start(
    owner: &OwnerPool,
    run: QueuedRun,
    worker: Uuid,
    plain: &[&(SendId, SendResult)],
    next: &[SendId],
) -> Result<StartedSends, StoreError> {
    let mut sent: Vec<(Uuid, Option<String>)> = plain.iter().map(|(id, result)| (id.0, message_id(result))).collect();
    // Results are locked in the order of their ids.
    sent.sort_unstable();
    let batch = Batch {
        run,
        worker,
        sent,
        next,
    };
    let mut row = on_owner!(owner, |conn| batch.write(conn, false))?;
    if row.needs_transaction {
        row = in_owner!(owner, |conn| batch.write_with_events(conn))?;
    }
    if row.needs_checks {
        return in_owner!(owner, |conn| start_checked(conn, run, worker, next));
    }
    Ok(row.into_started(next))
}

/// Starts those of the next sends that are not held and that the campaign's budget admits, and reserves their rates.
async fn start_checked(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    next: &[SendId],
) -> DbResult<StartedSends> {
    rows::share_lock(conn, run).await?;
    let checked = holds::decide(conn, run, next, Purpose::Start).await?;
    let next = checked.free.as_slice();
    let admitted = budgets::admit(conn, run, next).await?;
    let is_over_budget = admitted.as_ref().is_some_and(|admitted| admitted.is_over_budget);
    let ids: Option<Vec<SendId>> = admitted
        .as_ref()
        .map(|admitted| admitted.sends.iter().map(|(send, _)| *send).collect());
    let next = ids.as_deref().unwrap_or(next);
    let batch = Batch {
        run,
        worker,
        sent: vec![],
        next,
    };
    let mut started = batch.start_checked(conn).await?.into_started(next);
    let unreachable = admitted.iter().flat_map(|admitted| &admitted.unreachable);
    for send in unreachable.filter(|send| started.sends.contains(send)) {
        if !started.unreachable.contains(send) {
            started.unreachable.push(*send);
        }
    }
    let reserved = admitted.map(|admitted| admitted.sends).unwrap_or_default();
    let reserved = reserved.into_iter().filter(|(send, _)| started.sends.contains(send));
    budgets::reserve(conn, run, reserved.collect()).await?;
    if started.goes_on {
        holds::hold(conn, run, &checked).await?;
        holds::fail(conn, run, &checked.too_long).await?;
    }
    Ok(StartedSends {
        is_over_budget: is_over_budget && started.goes_on,
        ..started
    })
}

/// The parameters of the statement.
struct Batch<'a> {
    run: QueuedRun,
    worker: Uuid,
    /// The accepted sends and their WhatsApp message ids.
    sent: Vec<(Uuid, Option<String>)>,
    next: &'a [SendId],
}

impl Batch<'_> {
    async fn write(&self, conn: &mut AsyncPgConnection, appends_events: bool) -> DbResult<StartedRow> {
        self.execute(conn, appends_events, false).await
    }

    /// Starts sends that passed the checks.
    async fn start_checked(&self, conn: &mut AsyncPgConnection) -> DbResult<StartedRow> {
        self.execute(conn, true, true).await
    }

    async fn execute(
        &self,
        conn: &mut AsyncPgConnection,
        appends_events: bool,
        is_checked: bool,
    ) -> DbResult<StartedRow> {
        let (sent, messages): (Vec<Uuid>, Vec<Option<String>>) = self.sent.iter().cloned().unzip();
        let smallest = smallest(sent.iter().chain(self.next.iter().map(|send| &send.0)));
        let row = sql(RECORD_AND_START)
            .bind(self.run.account_id)
            .bind(self.run.campaign_id)
            .bind(self.worker)
            .bind(uuids(self.next))
            .bind(sent)
            .bind(messages)
            .bind(PAIR_INTERVAL)
            .bind(smallest)
            .bind(appends_events)
            .bind(is_checked)
            .get_result(conn)
            .await?;
        Ok(row)
    }

    async fn write_with_events(&self, conn: &mut AsyncPgConnection) -> DbResult<StartedRow> {
        let row = self.write(conn, true).await?;
        let messages: HashMap<Uuid, Option<String>> = self.sent.iter().cloned().collect();
        let event = |((&id, &contact), &by_user_id): ((&Uuid, &Uuid), &bool)| MessageStatusEvent {
            id,
            campaign_id: Some(self.run.campaign_id),
            conversation_id: None,
            contact_id: contact.into(),
            wa_message_id: messages.get(&id).cloned().flatten(),
            status: SendStatus::Sent,
            error_code: None,
            error_message: None,
            address: Some(AddressKind::of(by_user_id)),
            client_reference: None,
        };
        let sent: Vec<_> = row
            .event_sends
            .iter()
            .zip(&row.event_contacts)
            .zip(&row.event_addresses)
            .map(event)
            .collect();
        outbox::append(conn, self.run.account_id, &MessageStatusEvent::events(&sent)).await?;
        Ok(row)
    }
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
