//! The ports of campaigns. Unless its contract says "across tenants", a method reads and writes one account only. A
//! deleted campaign counts as missing.

use async_trait::async_trait;
use time::{Date, Duration, OffsetDateTime};
use uuid::Uuid;

use super::{
    Burst, Campaign, CampaignQuery, CampaignStats, CampaignStatus, DueRetry, EnqueueStart, PreviewFacts, QueuedRun,
    QueuedStart, Recipient, RemainingCosts, ResumeFacts, RetryOutcome, RetryReport, RetrySchedule, RunFacts, RunInputs,
    RunReport, RunRetry, RunStart, SendResult, SendsPage, StartOutcome, TestRecipient, TestSendFacts,
};
use crate::shared::{
    AccountId, CampaignId, ContactId, Event, Page, PageQuery, SendId, StoreError, TemplateId, WorkOutcome,
    WriteOutcome, redacted_debug,
};

/// Campaigns and their counters.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait CampaignStore: Send + Sync {
    /// The field paths (`template_id`, `segment_id`, `folder_id`, `segment_config.tag_ids[1]`) of references to rows
    /// that do not exist in the account. A deleted row does not exist.
    async fn unknown_references(&self, account: AccountId, campaign: &Campaign) -> Result<Vec<String>, StoreError>;

    /// Commits the events with the insert.
    async fn insert(&self, campaign: &Campaign, events: &[Event]) -> Result<(), StoreError>;

    async fn find(&self, account: AccountId, id: CampaignId) -> Result<Option<Campaign>, StoreError>;

    /// One page, with the exact total.
    async fn list(&self, account: AccountId, query: &CampaignQuery) -> Result<Page<Campaign>, StoreError>;

    /// Optimistic locking: replaces the campaign's content and status if the stored campaign still has the version and
    /// status of `expected`. Commits the events with the update. Entering `cancelled` also ends the run: the store
    /// deletes its queue entry and releases the quota of its unsent sends. Without a `retry_scheduled_at`, a scheduled
    /// retry ends.
    async fn update(
        &self,
        campaign: &Campaign,
        expected: &Campaign,
        events: &[Event],
    ) -> Result<WriteOutcome<CampaignStatus>, StoreError>;

    /// Soft-deletes if the stored status still is `expected`, and ends a scheduled retry. Commits the events with the
    /// delete.
    async fn delete(
        &self,
        campaign: &Campaign,
        expected: CampaignStatus,
        events: &[Event],
    ) -> Result<WriteOutcome<CampaignStatus>, StoreError>;

    /// The facts of a preview, from one snapshot of the database, with the first `first` recipients by id. None if the
    /// campaign does not exist. Changes nothing.
    async fn preview_facts(
        &self,
        account: AccountId,
        id: CampaignId,
        first: i64,
    ) -> Result<Option<PreviewFacts>, StoreError>;

    /// The counters of a campaign, and what its run waits for. None if the campaign does not exist.
    async fn stats(&self, account: AccountId, id: CampaignId) -> Result<Option<CampaignStats>, StoreError>;

    /// One page of sends, latest `sent_at` first and nulls last. Omits sends whose contact was deleted. None if the
    /// campaign does not exist.
    async fn sends(&self, account: AccountId, id: CampaignId, page: PageQuery)
    -> Result<Option<SendsPage>, StoreError>;
}

/// A send that a worker has claimed.
#[derive(Clone, PartialEq)]
pub struct ClaimedSend {
    pub id: SendId,
    /// Claims follow the order of contact ids.
    pub contact_id: ContactId,
    /// The number of earlier attempts.
    pub attempts: u32,
    /// None if the contact was deleted, lost its phone number or opted out after the audience was frozen.
    pub recipient: Option<Recipient>,
    /// WhatsApp's id of the contact, if known.
    pub wa_id: Option<String>,
}

redacted_debug!(ClaimedSend {});

/// Where a worker goes on with its claims of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimPosition {
    /// The contact after which the next claim begins: the largest contact id of the claimed sends.
    pub after: ContactId,
    /// The sends that the worker started and whose results it has not recorded.
    pub in_flight: Vec<SendId>,
}

/// The result of a claim: what a worker does next in a run.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimOutcome {
    /// The worker now holds these sends. None of them is started.
    Sends(Vec<ClaimedSend>),
    /// All sends of this claim are held now. Others may be due: claim again after this contact.
    Skipped(ContactId),
    /// Every remaining send waits, not all of them because they are held: claim again after this time.
    Wait(Duration),
    /// Every remaining send is held: the run waits.
    Held(HeldSends),
    /// No send is left to try.
    Exhausted,
    /// The run was cancelled, paused or suspended, or its number is not verified any more.
    Stopped,
    /// Another worker holds the run.
    Lost,
}

/// The held sends of a waiting run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldSends {
    pub count: i64,
    /// When the first of them is checked again, by the store's clock.
    pub until: OffsetDateTime,
}

/// The result of [`SendStore::record_and_start`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedSends {
    /// False if the worker lost the run, or the run was cancelled, paused or suspended.
    pub goes_on: bool,
    /// The sends that are started now. The worker MUST NOT send any other.
    pub sends: Vec<SendId>,
    /// Those of `sends` whose contact was deleted, lost its phone number or opted out since the claim. The worker MUST
    /// NOT send them.
    pub unreachable: Vec<SendId>,
    /// A send was not started because it would exceed the budget or has no rate: the worker MUST pause the run.
    pub is_over_budget: bool,
}

/// Starts of runs: immediate, queued and scheduled.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RunStartStore: Send + Sync {
    /// The facts that decide whether a run may start, in one read. None if the campaign does not exist.
    async fn facts(&self, account: AccountId, id: CampaignId) -> Result<Option<RunFacts>, StoreError>;

    /// The facts that decide whether a paused run may resume, in one read. None if the campaign does not exist.
    async fn resume_facts(&self, account: AccountId, id: CampaignId) -> Result<Option<ResumeFacts>, StoreError>;

    /// The recipients to whom a run of the campaign still has to start messages and may start them now, by country. None
    /// if the campaign does not exist, or has no template.
    async fn remaining_costs(&self, account: AccountId, id: CampaignId) -> Result<Option<RemainingCosts>, StoreError>;

    /// Starts a run in one transaction:
    /// - the guarded transition to `sending`,
    /// - the frozen content ([`RunContent`](super::RunContent)) and audience: one pending send per contact, of which a
    ///   large audience may get some later (`materialize_sends`),
    /// - the counters, the reservation of the month's quota, and the queue entry, leased to `worker` if given.
    ///
    /// Any outcome but `Started` rolls everything back. A campaign that already is `sending` is refused, unless it has
    /// a queued start that is not prepared yet.
    async fn start(&self, start: &RunStart, worker: Option<Uuid>, lease: Duration) -> Result<StartOutcome, StoreError>;

    /// The guarded transition to `sending` and a queue entry, in one transaction with the events. Prepares nothing.
    async fn enqueue_start(&self, start_request: &EnqueueStart) -> Result<WriteOutcome<CampaignStatus>, StoreError>;

    /// The queued start of a run that is not prepared yet. None for every other run.
    async fn queued_start(&self, run: QueuedRun) -> Result<Option<QueuedStart>, StoreError>;

    /// Aborts a queued start in one transaction with the events: sets `status` unless the campaign has left `sending`,
    /// and deletes the queue entry.
    async fn abort_start(&self, run: QueuedRun, status: CampaignStatus, events: &[Event]) -> Result<(), StoreError>;

    /// Like `abort_start`, and records that the campaign was skipped, at the store's time.
    async fn skip_start(&self, run: QueuedRun, status: CampaignStatus, events: &[Event]) -> Result<(), StoreError>;

    /// Up to `limit` scheduled campaigns that are due by the store's clock, longest due first. Across tenants, active
    /// accounts only.
    async fn due(&self, limit: i64) -> Result<Vec<QueuedRun>, StoreError>;
}

/// Retries of failed sends.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RunRetryStore: Send + Sync {
    /// Starts a run of the campaign's failed sends in one transaction, like `start`, and ends its scheduled retry.
    /// [`retry_rules`](super::retry_rules) select the sends, at the later of the store's time and the request's
    /// `not_before`. Sends that an early end left untried are included. Each send is reset as if never tried. It has
    /// the content of the first start; if that start froze none, the retry freezes the current content. MUST refuse if
    /// the campaign was changed since `expected_version`.
    async fn retry(&self, retry: &RunRetry) -> Result<RetryOutcome, StoreError>;

    /// Stores the time and request of a retry in one transaction with the events, and replaces an earlier one. Only if
    /// the campaign was not changed since `expected_version`. Returns the expected report of the retry at that time.
    async fn schedule_retry(
        &self,
        schedule: &RetrySchedule,
    ) -> Result<(WriteOutcome<CampaignStatus>, RetryReport), StoreError>;

    /// Up to `limit` scheduled retries that are due by the store's clock, longest due first. Across tenants, active
    /// accounts only.
    async fn due_retries(&self, limit: i64) -> Result<Vec<DueRetry>, StoreError>;
}

/// The run queue. One worker at a time holds a run by a lease; the database's clock decides when it expires. The worker
/// id is the fencing token: after the lease has expired, every guarded write of the worker fails.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RunQueue: Send + Sync {
    /// Leases the run that has waited longest, across tenants. Skips leased and postponed runs, and waiting runs whose
    /// account has not changed its settings since. A run whose lease has expired is treated as by `abandon` first.
    async fn take(&self, worker: Uuid, lease: Duration) -> Result<Option<QueuedRun>, StoreError>;

    /// Whether a run waits for a worker.
    async fn has_waiting(&self) -> Result<bool, StoreError>;

    /// Releases the lease and puts the run at the end of the queue, where another worker can take it at once. The
    /// caller MUST have recorded every send that it started.
    async fn release(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError>;

    /// The number of `postpone` calls since the run was last released or resumed. It determines the next delay.
    async fn postponements(&self, run: QueuedRun) -> Result<u32, StoreError>;

    /// Releases the lease, so that any worker can take the run after `delay`, and increments the count of
    /// postponements. The row stores the time, so a crash does not lose it. `release` and a resume reset delay and
    /// count. The caller MUST NOT have started any send.
    async fn postpone(&self, run: QueuedRun, worker: Uuid, delay: Duration) -> Result<(), StoreError>;

    /// Releases the lease of a run whose remaining sends are all held, so that any worker can take the run at
    /// `held.until`, or when the account has changed its settings. The caller MUST have recorded every send that it
    /// started.
    async fn wait(&self, run: QueuedRun, worker: Uuid, held: HeldSends) -> Result<(), StoreError>;

    /// Releases the lease after an error. Sends that were started and not recorded become unknown.
    async fn abandon(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError>;
}

/// Runs that have started.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RunStore: Send + Sync {
    /// The inputs of a run, with the content of its start. Freezes the content of a run that started before content was
    /// frozen. None if the campaign does not exist.
    async fn inputs(&self, run: QueuedRun) -> Result<Option<RunInputs>, StoreError>;

    /// Sets `paused_at` and the reason, in one transaction with the events. Changes nothing unless the campaign is
    /// sending and not paused.
    async fn pause(&self, run: QueuedRun, reason: &str, events: &[Event]) -> Result<(), StoreError>;

    /// Pauses every run of this template as `pause` does, and appends a `pause_notification` for each run that it
    /// paused.
    async fn pause_template(&self, account: AccountId, template: TemplateId, reason: &str) -> Result<(), StoreError>;

    /// Ends the run by `finish`, in one transaction with its events, if the campaign still is sending and not paused.
    /// The cost MUST NOT depend on the number of sends. Deletes the queue entry, and releases the reservations of
    /// messages that never left. Returns the report after that.
    async fn finish(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError>;

    /// The current report. None if the campaign does not exist.
    async fn report(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError>;
}

/// The sends of a run, as the worker that holds it claims, starts and records them.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SendStore: Send + Sync {
    /// Renews the lease once a tenth of it has passed, and claims up to `size` due sends. A send is due if it is
    /// pending and not started. Sends whose retry time has come are first, then sends of contacts after `position`. If
    /// none is left there, the search wraps around, so that `Wait` and `Exhausted` hold for the whole run.
    ///
    /// Due sends that the account's settings hold are not claimed: they are due again when the hold ends, or fail if they
    /// were held for too long. If the settings have changed since the run's sends were checked, all held sends are due.
    ///
    /// A worker MUST claim without a position first, also after an error. It MUST NOT start any send that it did not
    /// claim: the claim is the record from which the end of the run finds the sends in flight.
    async fn claim(
        &self,
        run: QueuedRun,
        worker: Uuid,
        position: Option<ClaimPosition>,
        size: i64,
        lease: Duration,
    ) -> Result<ClaimOutcome, StoreError>;

    /// Records results as `record` does, and marks the `next` sends as started, just before their requests leave. It
    /// starts no send if another worker holds the run or the run has stopped, and never starts a send twice. If the
    /// contact got a message of another run from the same number within [`PAIR_INTERVAL`](super::PAIR_INTERVAL), the
    /// send does not start and is due again after that interval. A send that the account's settings hold does not start
    /// either: it is checked in the transaction that starts the others, one after another with every other start for the
    /// same person.
    ///
    /// After an error, any part of it may have been committed. The caller may then record `Sent`, `Failed` and
    /// `Unknown` again, and MUST NOT record the other results again.
    async fn record_and_start(
        &self,
        run: QueuedRun,
        worker: Uuid,
        results: &[(SendId, SendResult)],
        next: &[SendId],
    ) -> Result<StartedSends, StoreError>;

    /// Records results with the counters and the quota in one transaction; `SendStatus::advance` decides each status.
    /// An accepted send uses its reservation, a failed send releases it. The caller MUST have started these sends. It
    /// may have lost the run since: the results are valid anyway. After the end of the run, `Deferred` and `Released`
    /// change nothing, since the run sends no more: such a send stays unknown until it times out.
    async fn record(&self, run: QueuedRun, results: &[(SendId, SendResult)]) -> Result<(), StoreError>;
}

/// Background work on runs and sends of all tenants.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RunSweepStore: Send + Sync {
    /// Deletes up to `limit` queue rows of campaigns that are not sending, across tenants, and returns the number. MUST
    /// NOT delete the row of a campaign that starts concurrently.
    async fn sweep_queue(&self, limit: i64) -> Result<u64, StoreError>;

    /// Adds the counter slots of up to `limit` campaigns that ended some time ago to one row each, across tenants.
    /// Returns the number of campaigns.
    async fn fold_counters(&self, limit: i64) -> Result<u64, StoreError>;

    /// Creates some of the sends of recipient batches, or resets some of the sends that a retry chose, across tenants,
    /// whatever the status of their campaigns. A claim does the same for its own run.
    async fn materialize_sends(&self) -> Result<WorkOutcome, StoreError>;

    /// Fails up to `limit` sends whose outcome has been unknown for longer than `ttl`, with the message
    /// [`NEVER_CONFIRMED`](super::NEVER_CONFIRMED). Returns the number.
    async fn fail_unknown(&self, ttl: Duration, limit: i64) -> Result<u64, StoreError>;
}

/// Test sends and their quota.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait TestSendStore: Send + Sync {
    /// The facts that decide whether a test send is allowed, in one read. None if the campaign does not exist.
    async fn facts(
        &self,
        account: AccountId,
        id: CampaignId,
        to: &TestRecipient,
    ) -> Result<Option<TestSendFacts>, StoreError>;

    /// Reserves one of the month's `limit` messages, in one transaction with the events, and returns the month. None:
    /// the quota is used up, and nothing was written.
    async fn reserve_message(
        &self,
        account: AccountId,
        limit: i64,
        events: &[Event],
    ) -> Result<Option<Date>, StoreError>;

    /// Releases the reserved message.
    async fn release_message(&self, account: AccountId, month: Date) -> Result<(), StoreError>;
}

/// The time of a send slot, on the clock of a [`SendRateLimiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotTime(pub Duration);

/// Limits the send rate of phone numbers.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SendRateLimiter: Send + Sync {
    /// Reserves a send slot for a burst and returns its time. All servers share the number's slots and its throttled
    /// rate.
    async fn reserve(&self, phone_number_id: &str, burst: Burst) -> Result<SlotTime, StoreError>;

    /// The number's throttled rate in messages per second, as far as this process knows.
    fn limit(&self, phone_number_id: &str) -> Option<f64>;

    /// Halves the rate of a number that WhatsApp throttled while it sent `rate` messages per second.
    async fn slow_down(&self, phone_number_id: &str, rate: f64) -> Result<(), StoreError>;

    /// Waits until `lead` before the slot.
    async fn until(&self, slot_time: SlotTime, lead: Duration);

    /// The time since the slot. Negative: the time until the slot.
    fn since(&self, slot_time: SlotTime) -> Duration;
}

/// The time slices by which the runs of a server share its permits.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
pub trait TimeSlices: Send + Sync {
    /// Whether a run waits for a permit. True once per waiting run: the run that gets it MUST yield its permit.
    fn should_yield(&self) -> bool;
}

/// A reserved send slot of a phone number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendSlot {
    /// The time until the slot; zero if it is past.
    pub wait: Duration,
    /// The number's throttled rate with its recovery, in messages per second. None if it was never throttled.
    pub limit: Option<f64>,
}

/// The send slots of phone numbers (GCRA). All servers share them.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SendSlotStore: Send + Sync {
    /// Reserves the number's next free slot and returns it. Moves the next free slot on by the time of the burst, or by
    /// the longer time that its messages take at the throttled rate.
    async fn reserve(&self, phone_number_id: &str, burst: Burst) -> Result<SendSlot, StoreError>;

    /// Halves the lower of `rate` and the number's throttled rate, both in messages per second, and returns the result.
    /// At most once per [`RATE_HALVING_INTERVAL`](super::RATE_HALVING_INTERVAL). The lower bound is
    /// [`LOWEST_RATE`](super::LOWEST_RATE), or `rate` if that is lower.
    async fn slow_down(&self, phone_number_id: &str, rate: f64) -> Result<f64, StoreError>;
}
