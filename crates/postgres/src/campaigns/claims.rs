//! Claims of sends: the renewal of the run's lease, fencing by worker id, and the next due sends.

use std::collections::HashSet;

use diesel::OptionalExtension;
use diesel::prelude::QueryableByName;
use diesel::sql_types::{Bool, Integer, Jsonb, Nullable, Text, Timestamptz, Uuid as SqlUuid};
use diesel_async::{AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use recado_domain::campaigns::{ClaimOutcome, ClaimPosition, ClaimedSend, QueuedRun, Recipient};
use recado_domain::holds::HoldCause;
use recado_domain::shared::{ContactId, SendId, StoreError};
use serde_json::Value;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::send_ids::{AFTER_CONTACT, SendIdRange};
use super::{audience, holds, in_flight, retry_batches};
use crate::errors::{DbResult, corrupt};
use crate::filters::HAS_OPTED_OUT;
use crate::holds::Purpose;
use crate::sql::{FENCE, FlagRow, sql, uuids};
use crate::whatsapp::USER_ID_SCOPE;

/// Minimum wait before a run looks for due sends again, so that it does not poll in a busy loop.
const MIN_WAIT: Duration = Duration::milliseconds(50);

/// Raises the statement timeout for statements that may read every send of a run, or every failed one. A very large
/// run needs longer than the default allows.
pub(super) const WHOLE_RUN_TIMEOUT: &str = "SET LOCAL statement_timeout = '60s'";

#[derive(QueryableByName)]
struct ClaimedRow {
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    contact_id: Uuid,
    #[diesel(sql_type = Integer)]
    attempts: i32,
    #[diesel(sql_type = Nullable<Text>)]
    name: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    phone: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    email: Option<String>,
    #[diesel(sql_type = Nullable<Jsonb>)]
    attributes: Option<Value>,
    #[diesel(sql_type = Nullable<Text>)]
    wa_id: Option<String>,
    #[diesel(sql_type = Nullable<Text>)]
    user_id: Option<String>,
}

impl TryFrom<ClaimedRow> for ClaimedSend {
    type Error = StoreError;

    fn try_from(row: ClaimedRow) -> Result<Self, StoreError> {
        let recipient = match (row.name, row.attributes) {
            (Some(name), Some(attributes)) => {
                let attributes = serde_json::from_value(attributes).map_err(corrupt)?;
                Some(Recipient {
                    name,
                    phone: row.phone.unwrap_or_default(),
                    user_id: row.user_id,
                    email: row.email,
                    attributes,
                })
            }
            _ => None,
        };
        Ok(Self {
            id: row.id.into(),
            contact_id: row.contact_id.into(),
            attempts: row.attempts.unsigned_abs(),
            recipient,
            wa_id: row.wa_id,
        })
    }
}

/// A claim, and the sends that the caller MUST fail with [`holds::fail_claimed`].
pub(super) struct Claim {
    pub(super) outcome: ClaimOutcome,
    pub(super) too_long: Vec<(SendId, HoldCause)>,
}

impl From<ClaimOutcome> for Claim {
    fn from(outcome: ClaimOutcome) -> Self {
        Self {
            outcome,
            too_long: vec![],
        }
    }
}

/// Renews the run's lease and returns its next due sends.
pub(super) async fn claim_sends(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    position: Option<&ClaimPosition>,
    size: i64,
    lease: Duration,
) -> DbResult<Claim> {
    let (account, campaign) = (run.account_id, run.campaign_id);
    let Some(held) = renew_lease(conn, run, worker, lease).await? else {
        let queued: FlagRow =
            sql("SELECT EXISTS (SELECT 1 FROM campaign_queue WHERE account_id = $1 AND campaign_id = $2) AS yes")
                .bind(account)
                .bind(campaign)
                .get_result(conn)
                .await?;
        let outcome = if queued.yes {
            ClaimOutcome::Lost
        } else {
            ClaimOutcome::Stopped
        };
        return Ok(outcome.into());
    };
    if !held.may_continue {
        return Ok(ClaimOutcome::Stopped.into());
    }
    // A retry sends nothing before it has moved the untried sends of the earlier run to its own month.
    if held.is_retry && retry_batches::search_untried(conn, account, campaign).await? {
        return Ok(ClaimOutcome::Wait(MIN_WAIT).into());
    }
    if held.settings_changed && !holds::release(conn, run, held.settings_at).await? {
        return Ok(ClaimOutcome::Wait(MIN_WAIT).into());
    }
    let ids = held.ids();
    let (search, in_flight) = match position {
        Some(ClaimPosition { after, in_flight }) => {
            let own = uuids(in_flight);
            (DueSearch::next(*after, held.is_retry), InFlight { own, earlier: None })
        }
        None => {
            let earlier = Some(in_flight::unresolved(conn, run, ids).await?);
            (DueSearch::first(held.is_retry), InFlight { own: vec![], earlier })
        }
    };
    let mut rows = claim_due(conn, run, &held, &search, &in_flight, size).await?;
    // Batches come after the sends that are ready. Another worker mostly prepares them in time.
    while rows.is_empty() && prepare_batch(conn, run, held.is_retry).await? {
        rows = claim_due(conn, run, &held, &search, &in_flight, size).await?;
    }
    if rows.is_empty() {
        rows = match search_whole_run(conn, run, &held, &in_flight, size).await? {
            Ok(rows) => rows,
            Err(outcome) => return Ok(outcome.into()),
        };
    }
    check_claimed(conn, run, &held, rows).await
}

/// Holds the claimed sends that the account's settings hold, so that they take no send slot. The others are checked again
/// when they start.
async fn check_claimed(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    held: &HeldRow,
    rows: Vec<ClaimedRow>,
) -> DbResult<Claim> {
    let last = rows.iter().map(|row| row.contact_id).max();
    let mut sends = rows
        .into_iter()
        .map(ClaimedSend::try_from)
        .collect::<Result<Vec<_>, StoreError>>()?;
    let mut too_long = vec![];
    if held.may_hold {
        let ids: Vec<SendId> = sends.iter().map(|send| send.id).collect();
        let checked = holds::decide(conn, run, &ids, Purpose::Precheck).await?;
        holds::hold(conn, run, &checked).await?;
        let free: HashSet<SendId> = checked.free.into_iter().collect();
        sends.retain(|send| free.contains(&send.id));
        too_long = checked.too_long;
    }
    if held.is_waiting && !sends.is_empty() {
        holds::end_wait(conn, run).await?;
    }
    let outcome = match last.filter(|_| sends.is_empty()) {
        Some(last) => ClaimOutcome::Skipped(last.into()),
        None => ClaimOutcome::Sends(sends),
    };
    Ok(Claim { outcome, too_long })
}

/// Creates or resets the sends of the run's next batch. False: no batch is left.
async fn prepare_batch(conn: &mut AsyncPgConnection, run: QueuedRun, is_retry: bool) -> DbResult<bool> {
    if is_retry {
        retry_batches::reset_next_batch(conn, run.account_id, run.campaign_id).await
    } else {
        audience::materialize_sends(conn, run.account_id, run.campaign_id).await
    }
}

/// Searches the whole run if sends are left that are due: an earlier worker may have skipped sends, sends may have been
/// released, or another worker may have prepared the last batch while this one waited. The counters show that none is
/// left, so a run mostly ends without the search.
async fn search_whole_run(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    held: &HeldRow,
    in_flight: &InFlight,
    size: i64,
) -> DbResult<Result<Vec<ClaimedRow>, ClaimOutcome>> {
    if held.may_hold {
        // Counts all held sends.
        conn.batch_execute(WHOLE_RUN_TIMEOUT).await?;
    }
    let remaining = in_flight::remaining(conn, run.account_id, run.campaign_id).await?;
    if remaining.untried > remaining.waiting {
        conn.batch_execute(WHOLE_RUN_TIMEOUT).await?;
        for search in DueSearch::whole_run(held.is_retry) {
            let rows = claim_due(conn, run, held, search, in_flight, size).await?;
            if !rows.is_empty() {
                return Ok(Ok(rows));
            }
        }
    }
    Ok(Err(match (remaining.all_held(), remaining.next) {
        (Some(held), _) => ClaimOutcome::Held(held),
        (None, None) => ClaimOutcome::Exhausted,
        (None, Some(microseconds)) => ClaimOutcome::Wait(Duration::microseconds(microseconds).max(MIN_WAIT)),
    }))
}

/// The sends that were started and have no recorded result.
struct InFlight {
    /// Those of the worker since its first claim.
    own: Vec<Uuid>,
    /// Those from before its first claim. `None`: as stored by that claim.
    earlier: Option<Vec<Uuid>>,
}

/// Where a claim searches due sends.
struct DueSearch {
    /// Goes on at the `retry_at` up to which earlier claims came.
    goes_on: bool,
    /// Also searches sends without a `retry_at`, in the order of their contacts.
    fresh: bool,
    after: ContactId,
}

impl DueSearch {
    /// A retry gives each of its sends a `retry_at`. To search its campaign by contact would read all sends that were
    /// not retried.
    fn first(is_retry: bool) -> Self {
        Self {
            goes_on: false,
            fresh: !is_retry,
            after: ContactId(Uuid::nil()),
        }
    }

    fn next(after: ContactId, is_retry: bool) -> Self {
        Self {
            goes_on: true,
            after,
            ..Self::first(is_retry)
        }
    }

    fn whole_run(is_retry: bool) -> &'static [Self] {
        const RETRIED: DueSearch = DueSearch {
            goes_on: false,
            fresh: false,
            after: ContactId(Uuid::nil()),
        };
        const ALL: DueSearch = DueSearch { fresh: true, ..RETRIED };
        if is_retry { &[RETRIED, ALL] } else { &[ALL] }
    }
}

/// Reads the next due sends: first the retries by time, then the untried sends by contact (keyset pagination). Each
/// contact is looked up by its key, as in a list of sends. No send is written: a run has one holder, and the start of a
/// send requires that it is still unstarted. The run's claim (see [`in_flight`]) becomes these sends and `in_flight`.
///
/// A retried send stays in the index of retries after its start, because its removal would end HOT updates. So a claim
/// begins at the `retry_at` of the claim before it.
///
/// The range of ids skips other partitions. It MUST be executed in index order: without statistics of a new partition
/// the planner would expect few ids in the range, and read and sort all sends of the campaign.
async fn claim_due(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    held: &HeldRow,
    search: &DueSearch,
    in_flight: &InFlight,
    size: i64,
) -> DbResult<Vec<ClaimedRow>> {
    let ids = held.ids();
    let rows = sql(format!(
        include_str!("claim_due.sql"),
        after_contact = AFTER_CONTACT,
        has_opted_out = HAS_OPTED_OUT,
        fence = FENCE
    ))
    .bind(run.account_id)
    .bind(run.campaign_id)
    .bind(search.after)
    .bind(size)
    .bind(search.goes_on)
    .bind(search.fresh)
    .bind(in_flight.own.clone())
    .bind(in_flight.earlier.clone())
    .bind(ids.first)
    .bind(ids.last)
    .bind(held.by_user_id)
    .bind(held.scope.clone())
    .load(conn)
    .await?;
    Ok(rows)
}

#[derive(QueryableByName)]
struct HeldRow {
    #[diesel(sql_type = Bool)]
    may_continue: bool,
    #[diesel(sql_type = Bool)]
    is_retry: bool,
    #[diesel(sql_type = Nullable<Timestamptz>)]
    frozen_at: Option<OffsetDateTime>,
    /// Whether the run waits for held sends.
    #[diesel(sql_type = Bool)]
    is_waiting: bool,
    /// The last change of the account's settings.
    #[diesel(sql_type = Nullable<Timestamptz>)]
    settings_at: Option<OffsetDateTime>,
    #[diesel(sql_type = Bool)]
    settings_changed: bool,
    #[diesel(sql_type = Bool)]
    may_hold: bool,
    /// Whether contacts without a phone are written to by user id.
    #[diesel(sql_type = Bool)]
    by_user_id: bool,
    /// The scope of these ids.
    #[diesel(sql_type = Nullable<Text>)]
    scope: Option<String>,
}

impl HeldRow {
    fn ids(&self) -> SendIdRange {
        SendIdRange::of_campaign(self.frozen_at)
    }
}

/// Renews the lease and returns whether the run may continue, or `None` if `worker` does not hold it. The row is always
/// locked, but written only after a tenth of the lease has passed: more writes would leave dead row versions that
/// every claim has to scan until vacuum can remove them.
async fn renew_lease(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    worker: Uuid,
    lease: Duration,
) -> DbResult<Option<HeldRow>> {
    let held: Option<HeldRow> = sql(format!(include_str!("renew_lease.sql"), scope = USER_ID_SCOPE))
        .bind(run.account_id)
        .bind(run.campaign_id)
        .bind(worker)
        .bind(lease)
        .get_result(conn)
        .await
        .optional()?;
    Ok(held)
}
