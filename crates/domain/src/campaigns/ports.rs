//! What campaigns need from the outside. Every method sees the one account alone; deleted campaigns are not there.

use async_trait::async_trait;
use time::{Date, Duration};
use uuid::Uuid;

use super::{
    Burst, Campaign, CampaignQuery, CampaignSend, CampaignStatus, DueRetry, EnqueueStart, PreviewFacts, QueuedStart,
    Recipient, ResumeFacts, RetryOutcome, RetryReport, RetrySchedule, RunFacts, RunInputs, RunReport, RunRetry,
    RunStart, SendCounts, SendResult, StartOutcome, TestSendFacts,
};
use crate::contacts::Phone;
use crate::shared::{
    AccountId, CampaignId, ContactId, Event, Page, PageQuery, SendId, StoreError, TemplateId, WriteOutcome,
    redacted_debug,
};

/// Campaigns and their figures.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait CampaignStore: Send + Sync {
    /// The field paths (`template_id`, `segment_id`, `folder_id`, `segment_config.tag_ids[1]`) of references that name
    /// nothing in the account; deleted rows count as nothing.
    async fn unknown_references(&self, account: AccountId, campaign: &Campaign) -> Result<Vec<String>, StoreError>;

    /// Inserts and commits the events with it.
    async fn insert(&self, campaign: &Campaign, events: &[Event]) -> Result<(), StoreError>;

    /// One campaign.
    async fn find(&self, account: AccountId, id: CampaignId) -> Result<Option<Campaign>, StoreError>;

    /// One page, with the exact total.
    async fn list(&self, account: AccountId, query: &CampaignQuery) -> Result<Page<Campaign>, StoreError>;

    /// Replaces the campaign's content and status, provided that the stored campaign still has the version and the status
    /// of `expected`; commits the events with it. Entering `cancelled` also ends the run: its queue entry is deleted,
    /// and the quota that its unsent sends had reserved is released.
    /// Without a `retry_scheduled_at` a scheduled retry ends.
    async fn update(
        &self,
        campaign: &Campaign,
        expected: &Campaign,
        events: &[Event],
    ) -> Result<WriteOutcome<CampaignStatus>, StoreError>;

    /// Soft-deletes, provided the stored status still is `expected`; commits the events with it. A scheduled retry ends.
    async fn delete(
        &self,
        campaign: &Campaign,
        expected: CampaignStatus,
        events: &[Event],
    ) -> Result<WriteOutcome<CampaignStatus>, StoreError>;

    /// What a preview is made of, all of one moment: the facts; how many contacts a run would freeze now; the `first` of
    /// them, by id; and which placeholders stay empty for somebody. None when there is no such campaign. Changes
    /// nothing.
    async fn preview_facts(
        &self,
        account: AccountId,
        id: CampaignId,
        first: i64,
    ) -> Result<Option<PreviewFacts>, StoreError>;

    /// The counters of a campaign; none when there is no such campaign.
    async fn stats(&self, account: AccountId, id: CampaignId) -> Result<Option<SendCounts>, StoreError>;

    /// One page of sends, newest `sent_at` first, those without one last; only sends whose contact is there. None when
    /// there is no such campaign.
    async fn sends(
        &self,
        account: AccountId,
        id: CampaignId,
        page: PageQuery,
    ) -> Result<Option<Page<CampaignSend>>, StoreError>;
}

/// A claimed part of a run.
#[derive(Clone, PartialEq)]
pub struct ClaimedSend {
    /// The send.
    pub id: SendId,
    /// Whom it is for. Claims go by the order of these.
    pub contact_id: ContactId,
    /// How often it was tried before.
    pub attempts: u32,
    /// What is known of them; none when the contact was deleted, lost its phone or opted out since the audience was
    /// frozen.
    pub recipient: Option<Recipient>,
    /// Their id with the platform, as far as it is known.
    pub wa_id: Option<String>,
}

redacted_debug!(ClaimedSend {});

/// What a worker may do next in a run.
#[derive(Clone, Debug, PartialEq)]
pub enum Claim {
    /// These sends are the worker's now, none of them started.
    Sends(Vec<ClaimedSend>),
    /// Every remaining send waits for a retry: look again after this.
    Wait(Duration),
    /// Nothing is left to try.
    Exhausted,
    /// The run is not going on: cancelled, paused or suspended.
    Stopped,
    /// Another worker holds the run.
    Lost,
}

/// What came of asking to start sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// False: the worker lost the run, or it was cancelled, paused or suspended.
    pub goes_on: bool,
    /// Those that are started now: only these may be sent.
    pub sends: Vec<SendId>,
    /// Those of them whose contact was deleted, lost its phone or opted out since the claim: they must not be.
    pub unreachable: Vec<SendId>,
}

/// A run that waits for a worker, or whose worker is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedRun {
    /// Whose.
    pub account_id: AccountId,
    /// Which.
    pub campaign_id: CampaignId,
}

/// Runs. One worker at a time holds a run, by a lease that the database's clock judges; a worker whose lease ran out
/// finds every guarded write refused.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait RunStore: Send + Sync {
    /// Everything that decides whether a run may begin, in one read; none when there is no such campaign.
    async fn facts(&self, account: AccountId, id: CampaignId) -> Result<Option<RunFacts>, StoreError>;

    /// Everything that decides whether a paused run may go on, in one read; none when there is no such campaign.
    async fn resume_facts(&self, account: AccountId, id: CampaignId) -> Result<Option<ResumeFacts>, StoreError>;

    /// Begins a run in one transaction: the guarded move to `sending`, the frozen content
    /// ([`RunContent`](super::RunContent)) and audience (one pending send a contact,
    /// of which those of a large audience may be made later), its counters, the month's quota, the queue entry
    /// (leased to `worker` for `lease`, if given). On any outcome but `Started` nothing of it is left. A campaign that is
    /// `sending` already is refused unless its run was announced and is not prepared yet.
    async fn start(&self, start: &RunStart, worker: Option<Uuid>, lease: Duration) -> Result<StartOutcome, StoreError>;

    /// The guarded move to `sending` and a queue entry, in one transaction with the events; nothing is prepared.
    async fn enqueue_start(&self, start_request: &EnqueueStart) -> Result<WriteOutcome<CampaignStatus>, StoreError>;

    /// How a run began that was announced and is not prepared yet; none for every other one.
    async fn queued_start(&self, run: QueuedRun) -> Result<Option<QueuedStart>, StoreError>;

    /// Gives a queued start up: the campaign, unless it left `sending` meanwhile, gets this status, its queue
    /// entry goes, the events are committed with it.
    async fn abort_start(&self, run: QueuedRun, status: CampaignStatus, events: &[Event]) -> Result<(), StoreError>;

    /// Begins a run of the campaign's failed sends, in one transaction like `start`, and ends its scheduled retry. The
    /// sends are chosen by [`RETRY_RULES`](super::RETRY_RULES) at the store's time, or at the request's `not_before` if
    /// that is later; each is as if it had never been tried, and has the content of the first start (if none was frozen
    /// then, the content of now, frozen with it). With them go those that an early end left untried. MUST be refused where
    /// the campaign was changed since `expected_version`.
    async fn retry(&self, retry: &RunRetry) -> Result<RetryOutcome, StoreError>;

    /// Stores the time and the request of a retry, instead of an earlier one, in one transaction with the events; only
    /// where the campaign was not changed since `expected_version`. Returns what it would take at that time, as far as
    /// is known now.
    async fn schedule_retry(
        &self,
        schedule: &RetrySchedule,
    ) -> Result<(WriteOutcome<CampaignStatus>, RetryReport), StoreError>;

    /// Up to `limit` scheduled retries of accounts that may work whose time has come by the store's clock, across
    /// tenants, the longest due first.
    async fn due_retries(&self, limit: i64) -> Result<Vec<DueRetry>, StoreError>;

    /// Up to `limit` scheduled campaigns of accounts that may work whose time has come by the store's clock, across
    /// tenants, the longest due first.
    async fn due(&self, limit: i64) -> Result<Vec<QueuedRun>, StoreError>;

    /// Leases a run that nobody holds and that is not postponed, the one that has waited longest. Runs whose lease ran out are nobody's from then
    /// on, as by `abandon`.
    async fn take(&self, worker: Uuid, lease: Duration) -> Result<Option<QueuedRun>, StoreError>;

    /// Deletes up to `limit` queue rows of campaigns that are not sending, across tenants, and returns how many. A row of
    /// a campaign that starts at the same time MUST stay.
    async fn sweep_queue(&self, limit: i64) -> Result<u64, StoreError>;

    /// Whether a run waits for a worker.
    async fn waiting(&self) -> Result<bool, StoreError>;

    /// What a run is made of: the content of its start. Freezes the content of a run that started before contents were
    /// frozen. None when its campaign is gone.
    async fn inputs(&self, run: QueuedRun) -> Result<Option<RunInputs>, StoreError>;

    /// Renews the lease, once a tenth of it is gone, and names up to `size` sends that are due: those whose retry time
    /// has come, then those of contacts after this one. Due is every pending send that is not started. Where none is left
    /// after that contact, the search begins anew with the first one, so that `Wait` and `Exhausted` speak of the whole
    /// run.
    async fn claim(
        &self,
        run: QueuedRun,
        worker: Uuid,
        after: Option<ContactId>,
        size: i64,
        lease: Duration,
    ) -> Result<Claim, StoreError>;

    /// Writes what came of sends, as `record` does, and marks the next ones as started, just before their requests leave.
    /// None is started once another worker holds the run or it does not go on, and a send that is started already never
    /// is. One whose contact had a message of another run from the same number within
    /// [`PAIR_INTERVAL`](super::PAIR_INTERVAL) is not either: it is due again when that time is over.
    ///
    /// After an error any part of it may have been done. `Sent`, `Failed` and `Unknown` may then be recorded again; the
    /// other results must not be.
    async fn record_and_start(
        &self,
        run: QueuedRun,
        worker: Uuid,
        results: &[(SendId, SendResult)],
        next: &[SendId],
    ) -> Result<Started, StoreError>;

    /// Writes what came of sends, with the counters and the quota (an accepted send uses its place, a failed one gives
    /// it back), in one transaction, each by `SendStatus::advance`. The results are of sends that the caller had started;
    /// it may have lost the run since, and they are true all the same. Once the run was finished, `Deferred` and
    /// `Released` change nothing: nobody would send again, so the send stays unknown until time settles it.
    async fn record(&self, run: QueuedRun, results: &[(SendId, SendResult)]) -> Result<(), StoreError>;

    /// Sets `paused_at` and the reason, and commits the events with it; changes nothing unless the run is going on.
    async fn pause(&self, run: QueuedRun, reason: &str, events: &[Event]) -> Result<(), StoreError>;

    /// Pauses every campaign that is sending this template, as `pause` does, and tells of each by `pause_notification`;
    /// changes nothing of those that are not going on.
    async fn pause_template(&self, account: AccountId, template: TemplateId, reason: &str) -> Result<(), StoreError>;

    /// Ends the run by `finish`, in one transaction with its events, and takes it from the queue; only where the
    /// campaign still is sending and not paused. Places of the month that were kept for what never left are given back.
    /// Returns how the campaign stands then.
    async fn finish(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError>;

    /// How the campaign stands now; none when it is gone.
    async fn report(&self, run: QueuedRun) -> Result<Option<RunReport>, StoreError>;

    /// Gives the lease back, so that another worker can take the run at once; it waits behind every other one then. Only
    /// for who has recorded all that it had started.
    async fn release(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError>;

    /// How often in a row the run was postponed.
    async fn postponed(&self, run: QueuedRun) -> Result<u32, StoreError>;

    /// Gives the lease back, so that any worker can take the run after `delay`, and counts it as postponed once more. The
    /// row holds the time, so that a crash loses nothing. `release` and a resume end the delay and the count. Only for a
    /// caller that has started nothing.
    async fn postpone(&self, run: QueuedRun, worker: Uuid, delay: Duration) -> Result<(), StoreError>;

    /// Gives the lease back after an error: sends that were started and not recorded become unknown.
    async fn abandon(&self, run: QueuedRun, worker: Uuid) -> Result<(), StoreError>;

    /// Makes some of the sends that a freeze left to be made, across tenants, whatever became of their campaigns since.
    /// False: all are made. A claim does the same for its own run.
    async fn materialize_sends(&self) -> Result<bool, StoreError>;

    /// Fails sends that have been unknown for longer than `ttl`, with a message that says so; at most `limit` of them.
    /// Returns how many.
    async fn fail_unknown(&self, ttl: Duration, limit: i64) -> Result<u64, StoreError>;
}

/// Tests of campaigns, and what they cost.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait TestSendStore: Send + Sync {
    /// Everything that decides whether a test may leave, in one read; none when there is no such campaign.
    async fn facts(
        &self,
        account: AccountId,
        id: CampaignId,
        phone: &Phone,
    ) -> Result<Option<TestSendFacts>, StoreError>;

    /// Takes one of the month's messages, unless `limit` of them are taken, and commits the events with it. The month;
    /// none, and nothing written, when none is left.
    async fn reserve_message(
        &self,
        account: AccountId,
        limit: i64,
        events: &[Event],
    ) -> Result<Option<Date>, StoreError>;

    /// Gives back what was taken of the month.
    async fn release_message(&self, account: AccountId, month: Date) -> Result<(), StoreError>;
}

/// The time of a send slot, on the clock of a [`SendRateLimiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlotTime(pub Duration);

/// Keeps a number's send rate, and knows when the server is about to stop.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SendRateLimiter: Send + Sync {
    /// Reserves the slot of a burst, and says when it may leave. All servers share the number's slots, and a rate
    /// to which it was throttled.
    async fn reserve(&self, phone_number_id: &str, burst: Burst) -> Result<SlotTime, StoreError>;

    /// The rate to which the number was throttled, in messages per second, as far as this process knows.
    fn limit(&self, phone_number_id: &str) -> Option<f64>;

    /// Halves the rate of a number that was throttled while it had this one, in messages per second.
    async fn slow_down(&self, phone_number_id: &str, rate: f64) -> Result<(), StoreError>;

    /// Waits until so long before the slot. False: the server stops, nothing may leave.
    async fn until(&self, slot_time: SlotTime, lead: Duration) -> bool;

    /// How long ago the slot was; negative: so long it is until then.
    fn since(&self, slot_time: SlotTime) -> Duration;

    /// Waits. False: the server stops.
    async fn rest(&self, time: Duration) -> bool;

    /// Whether the server stops.
    fn stopping(&self) -> bool;

    /// Whether a run waits that this server has no permit for. Says so once for each time that one was found waiting:
    /// whoever hears it makes room.
    fn should_yield(&self) -> bool;
}

/// A send slot of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SendSlot {
    /// How long it is until the slot: zero where it is past.
    pub wait: Duration,
    /// The rate to which the number was throttled, recovered since, in messages per second; none if it never was.
    pub limit: Option<f64>,
}

/// The send slots of numbers, which all servers share.
#[cfg_attr(any(test, feature = "mocks"), mockall::automock)]
#[async_trait]
pub trait SendSlotStore: Send + Sync {
    /// Moves the number's next free slot on by the time of the burst, or by the longer time that its messages take at
    /// the number's throttled rate, and returns the slot that was free before.
    async fn reserve(&self, phone_number_id: &str, burst: Burst) -> Result<SendSlot, StoreError>;

    /// Halves the lower one of `rate` and the number's throttled rate, both in messages per second, unless that happened
    /// within [`RATE_HALVING_INTERVAL`](super::RATE_HALVING_INTERVAL). It stays at least at
    /// [`LOWEST_RATE`](super::LOWEST_RATE), or at `rate` where that is lower. Returns the throttled rate.
    async fn slow_down(&self, phone_number_id: &str, rate: f64) -> Result<f64, StoreError>;
}
