//! The store of runs. Only the search for work reads across accounts (owner pool).

use std::collections::BTreeMap;

use async_trait::async_trait;
use diesel::prelude::{ExpressionMethods, QueryDsl, QueryableByName};
use diesel::sql_types::Uuid as SqlUuid;
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use recado_domain::accounts::AccountStatus;
use recado_domain::campaigns::{
    Campaign, CampaignStatus, ClaimOutcome, ClaimPosition, DueRetry, EnqueueStart, HeldSends, NEVER_CONFIRMED,
    QueuedRun, QueuedStart, RemainingCosts, ResumeFacts, RetryOutcome, RetryReport, RetrySchedule, RunFacts, RunInputs,
    RunQueue, RunReport, RunRetry, RunRetryStore, RunStart, RunStartStore, RunStore, RunSweepStore, SendResult,
    SendStore, StartOutcome, StartedSends,
};
use recado_domain::messaging::{ErrorClass, ErrorCodes};
use recado_domain::shared::{
    AccountId, CampaignId, Event, ProfileId, SendId, StoreError, TemplateId, WorkOutcome, WriteOutcome,
};
use time::Duration;
use uuid::Uuid;

use super::record_and_start::is_plain;
use super::sends::{SendChanges, lock_sends};
use super::{
    audience, claims, contents, end, facts, holds, queue, record_and_start, remaining_costs, retries, retry_batches,
    rows, start,
};
use crate::contacts::{opt_out, set_wa_ids};
use crate::errors::DbResult;
use crate::pool::{OwnerPool, TenantPool};
use crate::schema::accounts;
use crate::sql::{sql, uuids};
use crate::transactions::{in_owner, in_tenant, on_owner};
use crate::{templates, whatsapp};

#[derive(Clone, Debug)]
pub struct PgRuns {
    tenants: TenantPool,
    /// For the next sends of a run, which are read in index order.
    claims: TenantPool,
    owner: OwnerPool,
    codes: ErrorCodes,
}

impl PgRuns {
    pub fn new(tenants: TenantPool, owner: OwnerPool, codes: ErrorCodes) -> Self {
        Self {
            claims: tenants.in_index_order(),
            tenants,
            owner,
            codes,
        }
    }
}

#[async_trait]
impl RunStartStore for PgRuns {
    async fn facts(&self, account: AccountId, id: CampaignId) -> Result<Option<RunFacts>, StoreError> {
        in_tenant!(self.tenants, account, |conn| facts::facts(conn, account, id))
    }

    async fn resume_facts(&self, account: AccountId, id: CampaignId) -> Result<Option<ResumeFacts>, StoreError> {
        in_tenant!(self.tenants, account, |conn| facts::resume_facts(conn, account, id))
    }

    async fn remaining_costs(&self, account: AccountId, id: CampaignId) -> Result<Option<RemainingCosts>, StoreError> {
        let run = QueuedRun {
            account_id: account,
            campaign_id: id,
        };
        in_tenant!(self.tenants, account, |conn| remaining_costs::remaining_costs(
            conn, run
        ))
    }

    async fn start(&self, start: &RunStart, worker: Option<Uuid>, lease: Duration) -> Result<StartOutcome, StoreError> {
        in_tenant!(self.tenants, start.campaign.account_id, |conn| start::start(conn, start, worker, lease),
            unless StartOutcome::Refused(_) | StartOutcome::Changed | StartOutcome::Missing)
    }

    async fn enqueue_start(&self, start_request: &EnqueueStart) -> Result<WriteOutcome<CampaignStatus>, StoreError> {
        let account = start_request.campaign.account_id;
        in_tenant!(self.tenants, account, |conn| start::enqueue_start(conn, start_request))
    }

    async fn queued_start(&self, run: QueuedRun) -> Result<Option<QueuedStart>, StoreError> {
        let query = start::queued_start(run);
        let row: Option<rows::QueueEntryRow> = self.tenants.read_row_if_any(run.account_id, query).await?;
        row.map(QueuedStart::try_from).transpose()
    }

    async fn abort_start(&self, run: QueuedRun, status: CampaignStatus, events: &[Event]) -> Result<(), StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| end::abort_start(
            conn, run, status, false, events
        ))
    }

    async fn skip_start(&self, run: QueuedRun, status: CampaignStatus, events: &[Event]) -> Result<(), StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| end::abort_start(
            conn, run, status, true, events
        ))
    }

    async fn due(&self, limit: i64) -> Result<Vec<QueuedRun>, StoreError> {
        let query = sql(
            "SELECT c.account_id, c.id FROM campaigns c JOIN accounts a ON a.id = c.account_id
             WHERE c.status = 'scheduled' AND c.deleted_at IS NULL AND c.scheduled_at <= now() AND a.status = 'active'
             ORDER BY c.scheduled_at LIMIT $1",
        )
        .bind(limit);
        let runs = self.owner.rows::<KeyRow>(query).await?.into_iter();
        let runs = runs.map(|row| QueuedRun {
            account_id: row.account_id.into(),
            campaign_id: row.id.into(),
        });
        Ok(runs.collect())
    }
}

#[async_trait]
impl RunRetryStore for PgRuns {
    async fn retry(&self, run_retry: &RunRetry) -> Result<RetryOutcome, StoreError> {
        in_tenant!(self.tenants, run_retry.campaign.account_id, |conn| start::retry(conn, run_retry, &self.codes),
            unless RetryOutcome::Refused(_) | RetryOutcome::Missing)
    }

    async fn schedule_retry(
        &self,
        schedule: &RetrySchedule,
    ) -> Result<(WriteOutcome<CampaignStatus>, RetryReport), StoreError> {
        let (account, codes) = (schedule.campaign.account_id, &self.codes);
        in_tenant!(self.tenants, account, |conn| retries::schedule(conn, schedule, codes))
    }

    async fn due_retries(&self, limit: i64) -> Result<Vec<DueRetry>, StoreError> {
        let rows = self.owner.rows::<retries::DueRow>(retries::due(limit)).await?;
        Ok(rows.into_iter().map(DueRetry::from).collect())
    }
}

#[async_trait]
impl RunQueue for PgRuns {
    async fn take(&self, worker: Uuid, lease: Duration) -> Result<Option<QueuedRun>, StoreError> {
        let expired = on_owner!(self.owner, |conn| queue::expired_leases(conn))?;
        for (run, expired_worker) in expired {
            in_tenant!(self.tenants, run.account_id, |conn| queue::abandon(
                conn,
                run,
                expired_worker,
                true
            ))?;
        }
        in_owner!(self.owner, |conn| queue::claim_run(conn, worker, lease))
    }

    async fn has_waiting(&self) -> Result<bool, StoreError> {
        on_owner!(self.owner, |conn| queue::has_waiting_run(conn))
    }

    async fn release(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| queue::release(conn, run, worker))
    }

    async fn postponements(&self, run: QueuedRun) -> Result<u32, StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| queue::postponements(conn, run))
    }

    async fn postpone(&self, run: QueuedRun, worker: Uuid, delay: Duration) -> Result<(), StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| queue::postpone(
            conn, run, worker, delay
        ))
    }

    async fn wait(&self, run: QueuedRun, worker: Uuid, held: HeldSends) -> Result<(), StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| queue::wait(
            conn, run, worker, held
        ))
    }

    async fn abandon(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| queue::abandon(
            conn, run, worker, false
        ))
    }
}

#[async_trait]
impl RunStore for PgRuns {
    async fn inputs(&self, run: QueuedRun) -> Result<Option<RunInputs>, StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| inputs(conn, run))
    }

    async fn pause(&self, run: QueuedRun, reason: &str, events: &[Event]) -> Result<(), StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| end::pause(
            conn, run, reason, events
        ))
    }

    async fn pause_template(&self, account: AccountId, template: TemplateId, reason: &str) -> Result<(), StoreError> {
        in_tenant!(self.tenants, account, |conn| templates::pause_template(
            conn, account, template, reason
        ))
    }

    async fn finish(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| end::finish(conn, run))
    }

    async fn report(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError> {
        in_tenant!(self.tenants, run.account_id, |conn| report(conn, run))
    }
}

#[async_trait]
impl SendStore for PgRuns {
    async fn claim(
        &self,
        run: QueuedRun,
        worker: Uuid,
        position: Option<ClaimPosition>,
        size: i64,
        lease: Duration,
    ) -> Result<ClaimOutcome, StoreError> {
        let position = position.as_ref();
        let claim = in_tenant!(self.claims, run.account_id, |conn| claims::claim_sends(
            conn, run, worker, position, size, lease
        ))?;
        if !claim.too_long.is_empty() {
            in_tenant!(self.tenants, run.account_id, |conn| holds::fail_claimed(
                conn,
                run,
                worker,
                &claim.too_long
            ))?;
        }
        Ok(claim.outcome)
    }

    async fn record_and_start(
        &self,
        run: QueuedRun,
        worker: Uuid,
        results: &[(SendId, SendResult)],
        next: &[SendId],
    ) -> Result<StartedSends, StoreError> {
        let (plain, stateful): (Vec<_>, Vec<_>) = results.iter().partition(|(_, result)| is_plain(result));
        if !stateful.is_empty() {
            let stateful: Vec<(SendId, SendResult)> = stateful.into_iter().cloned().collect();
            self.record(run, &stateful).await?;
        }
        record_and_start::record_and_start(&self.owner, run, worker, &plain, next).await
    }

    async fn record(&self, run: QueuedRun, results: &[(SendId, SendResult)]) -> Result<(), StoreError> {
        if results.is_empty() {
            return Ok(());
        }
        let codes = &self.codes;
        in_tenant!(self.tenants, run.account_id, |conn| record(conn, run, results, codes))
    }
}

#[async_trait]
impl RunSweepStore for PgRuns {
    async fn sweep_queue(&self, limit: i64) -> Result<u64, StoreError> {
        let mut deleted = 0;
        for run in on_owner!(self.owner, |conn| queue::obsolete_entries(conn, limit))? {
            deleted += in_tenant!(self.tenants, run.account_id, |conn| queue::delete_obsolete_entry(
                conn, run
            ))?;
        }
        Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
    }

    async fn fold_counters(&self, limit: i64) -> Result<u64, StoreError> {
        let mut folded = 0;
        for run in on_owner!(self.owner, |conn| end::unfolded(conn, limit))? {
            folded += in_tenant!(self.tenants, run.account_id, |conn| end::fold_counters(conn, run))?;
        }
        Ok(u64::try_from(folded).unwrap_or(u64::MAX))
    }

    async fn materialize_sends(&self) -> Result<WorkOutcome, StoreError> {
        if let Some(run) = on_owner!(self.owner, |conn| audience::run_with_recipient_batches(conn))? {
            let (account, campaign) = (run.account_id, run.campaign_id);
            return in_tenant!(self.tenants, account, |conn| audience::materialize_sends(
                conn, account, campaign
            ))
            .map(WorkOutcome::of);
        }
        match on_owner!(self.owner, |conn| retry_batches::run_with_retry_batches(conn))? {
            Some(run) => in_tenant!(self.tenants, run.account_id, |conn| retry_batches::next_step(conn, run))
                .map(WorkOutcome::of),
            None => Ok(WorkOutcome::Done),
        }
    }

    async fn fail_unknown(&self, ttl: Duration, limit: i64) -> Result<u64, StoreError> {
        let mut failed = 0;
        for (account, sends) in self.unknown_sends(ttl, limit).await? {
            failed += in_tenant!(self.tenants, account, |conn| fail_unknown_sends(
                conn, account, &sends, ttl
            ))?;
        }
        Ok(failed)
    }
}

#[derive(QueryableByName)]
struct KeyRow {
    #[diesel(sql_type = SqlUuid)]
    account_id: Uuid,
    #[diesel(sql_type = SqlUuid)]
    id: Uuid,
}

impl PgRuns {
    /// Finds sends whose outcome is unknown for longer than `ttl`, across all accounts, oldest first. It reads
    /// `unknown_at` only: the transaction that ends a run or takes it from a worker also marks its unresolved sends as
    /// unknown.
    async fn unknown_sends(&self, ttl: Duration, limit: i64) -> Result<BTreeMap<AccountId, Vec<Uuid>>, StoreError> {
        let query = sql("SELECT account_id, id FROM campaign_sends
             WHERE unknown_at <= now() - $1 * interval '1 microsecond' AND status = 'pending'
             ORDER BY unknown_at LIMIT $2")
        .bind(ttl)
        .bind(limit);
        let mut sends: BTreeMap<AccountId, Vec<Uuid>> = BTreeMap::new();
        for row in self.owner.rows::<KeyRow>(query).await? {
            sends.entry(row.account_id.into()).or_default().push(row.id);
        }
        Ok(sends)
    }
}

async fn fail_unknown_sends(
    conn: &mut AsyncPgConnection,
    account: AccountId,
    ids: &[Uuid],
    ttl: Duration,
) -> DbResult<u64> {
    let mut sends = lock_sends(conn, account, ids.to_vec(), vec![]).await?;
    let mut failed = 0;
    for send in sends.iter_mut() {
        // A status update may have resolved the send since it was found.
        let Some(since) = send.unknown_since() else { continue };
        if since.checked_add(ttl).is_some_and(|end| end <= send.now()) {
            send.fail_unconfirmed(NEVER_CONFIRMED);
            failed += 1;
        }
    }
    SendChanges::of(sends).write(conn, account).await?;
    Ok(failed)
}

async fn record(
    conn: &mut AsyncPgConnection,
    run: QueuedRun,
    results: &[(SendId, SendResult)],
    codes: &ErrorCodes,
) -> DbResult<()> {
    let ids: Vec<SendId> = results.iter().map(|(id, _)| *id).collect();
    let mut sends = lock_sends(conn, run.account_id, uuids(&ids), vec![]).await?;
    let (mut contacts, mut wa_ids, mut opt_outs) = (Vec::new(), Vec::new(), Vec::new());
    for (id, result) in results {
        let Some(send) = sends.by_id(*id).filter(|send| send.campaign() == run.campaign_id) else {
            continue;
        };
        send.apply_result(result);
        if let SendResult::Sent { wa_id: Some(wa_id), .. } = result {
            contacts.push(send.contact());
            wa_ids.push(wa_id.clone());
        }
        let opted_out = |code: i64| codes.class(code) == ErrorClass::OptedOut;
        if matches!(result, SendResult::Failed { code: Some(code), .. } if opted_out(*code)) {
            opt_outs.push((send.contact(), send.now()));
        }
    }
    set_wa_ids(conn, run.account_id, contacts, wa_ids).await?;
    opt_out(conn, run.account_id, &opt_outs).await?;
    SendChanges::of(sends).write(conn, run.account_id).await?;
    Ok(())
}

async fn report(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<Option<RunReport>> {
    let Some(row) = rows::find(conn, run.account_id, run.campaign_id).await? else {
        return Ok(None);
    };
    let stats = rows::stats(conn, run.account_id, run.campaign_id)
        .await?
        .unwrap_or_default();
    let campaign = Campaign {
        held: stats.held,
        waiting_until: stats.waiting_until,
        ..Campaign::try_from(row)?
    };
    let is_suspended: bool = accounts::table
        .find(run.account_id.0)
        .select(accounts::status.eq(AccountStatus::Suspended.as_str()))
        .get_result(conn)
        .await?;
    let mut report = RunReport::of(&campaign, &stats.counts);
    // A suspended account pauses its runs until it is active again.
    if is_suspended && campaign.status == CampaignStatus::Sending {
        report.paused = true;
        (report.waiting, report.waiting_until) = (0, None);
    }
    Ok(Some(report))
}

async fn inputs(conn: &mut AsyncPgConnection, run: QueuedRun) -> DbResult<Option<RunInputs>> {
    let account = run.account_id;
    let Some(row) = rows::find(conn, account, run.campaign_id).await? else {
        return Ok(None);
    };
    let profile_id = row.profile_id.map(ProfileId::from);
    let campaign = Campaign::try_from(row)?;
    let (campaign, template) = contents::read_or_freeze(conn, campaign).await?;
    let profile = match profile_id.filter(|_| !campaign.simulated) {
        Some(profile) => whatsapp::find_profile(conn, account, profile).await?,
        None => None,
    };
    Ok(Some(RunInputs {
        campaign,
        template,
        profile,
    }))
}
