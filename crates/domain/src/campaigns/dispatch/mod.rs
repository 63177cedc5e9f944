//! Executes a claimed run: claims, starts, calls and records sends until none is left, then finishes the run.
//!
//! The order of writes makes a crash harmless. A send is *claimed* first, marked as *started* just before its request
//! leaves, and *recorded* after the call. Claimed and not started: WhatsApp was not called, so another worker sends it.
//! Started and not recorded: the message may have left, so it is never sent again.
//!
//! A worker records results only for the sends that it started. The other sends of a claim need no result: they are due
//! for the next claim. Another worker may already hold them if this one lost its lease without noticing.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::select;
use time::Duration;
use uuid::Uuid;

use super::concurrent_commands::START_ATTEMPTS;
use super::in_flight::{CompletedCall, InFlightSends, SendBatch};
use super::run::abort_notification;
use super::run_context::{RunContext, file_sources, keep_new_wa_id};
use super::scheduled_start::skip_events;
use super::service::RUN_LEASE;
use super::template_review::save_review;
use super::{
    BUDGET_REACHED, Burst, Campaign, ClaimOutcome, ClaimedSend, Command, QueuedRun, QueuedStart, RunBlock, RunInputs,
    RunQueue, RunReport, RunStartStore, RunStore, SendRate, SendRateLimiter, SendResult, SendStore, SlotTime,
    StartOutcome, TimeSlices, Trigger, pause_notification, prepare, to_result, transition,
};
use crate::messaging::{MetaStatus, WhatsappGateway};
use crate::shared::{Cipher, Clock, Event, SendId, Shutdown, StoreError, TemplateId, Timer, retry_up_to};
use crate::templates::{OFFER_ENDED, TemplateStore};
use crate::whatsapp::{MessageFileError, MessageFiles};

/// The most sends in a claim.
const MAX_CLAIM: i64 = 1000;

/// Sends are marked as started this long before their send slot, so that the write does not delay them.
const START_LEAD: Duration = Duration::milliseconds(100);

/// The delay after a send slot that this process may cause. The rest of the margin of [`SendRate::burst`] is left for
/// the network.
const SLOT_TOLERANCE: Duration = Duration::milliseconds(10);

/// The longest time between two claims. A claim checks for a cancel and renews the lease.
const CLAIM_INTERVAL: Duration = Duration::seconds(10);

/// How a worker's execution of a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The run ended, is paused, suspended or waiting, or its campaign is a draft again.
    Over(RunReport),
    /// The campaign does not exist any more.
    Gone,
    /// The server stops, the run yields its permit, or another worker holds the run. Another worker continues it.
    HandedOver,
    /// An external system is unavailable. A worker takes the run again after the delay.
    Postponed {
        delay: Duration,
        /// What is unavailable.
        reason: String,
    },
}

#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Fencing token, new for every claimed run. A process that stalls past its lease and reclaims its own run is
    /// fenced off from its earlier calls.
    pub id: Uuid,
    /// The time between two messages of a number that has no send rate of its own.
    pub delay: Duration,
}

#[derive(Clone)]
pub struct Dispatcher {
    pub starts: Arc<dyn RunStartStore>,
    pub queue: Arc<dyn RunQueue>,
    pub runs: Arc<dyn RunStore>,
    pub sends: Arc<dyn SendStore>,
    pub templates: Arc<dyn TemplateStore>,
    pub gateway: Arc<dyn WhatsappGateway>,
    pub files: MessageFiles,
    pub cipher: Arc<dyn Cipher>,
    pub limiter: Arc<dyn SendRateLimiter>,
    pub time_slices: Arc<dyn TimeSlices>,
    pub timer: Arc<dyn Timer>,
    pub clock: Arc<dyn Clock>,
    pub shutdown: Arc<dyn Shutdown>,
    pub worker: Worker,
}

impl Dispatcher {
    /// The same dispatcher with another fencing token.
    #[must_use]
    pub fn with_worker(&self, id: Uuid) -> Self {
        let worker = Worker { id, ..self.worker };
        Self { worker, ..self.clone() }
    }

    /// Claims a run that waits in the queue, if there is one.
    pub async fn take(&self) -> Result<Option<QueuedRun>, StoreError> {
        self.queue.take(self.worker.id, RUN_LEASE).await
    }

    /// Executes a run that this worker holds. After an error, the caller may call it again while the worker holds the
    /// run. Otherwise the lease expires and another worker continues.
    pub async fn run(&self, run: QueuedRun) -> Result<RunEnd, StoreError> {
        if let Some(queued_start) = self.starts.queued_start(run).await?
            && !self.prepare(run, queued_start).await?
        {
            return self.end_report(run).await;
        }
        let Some(inputs) = self.runs.inputs(run).await? else {
            return Ok(RunEnd::Gone);
        };
        let context = match self.run_context(run, inputs).await? {
            Ok(context) => context,
            Err(end) => return Ok(end),
        };
        let mut in_flight = InFlightSends::default();
        loop {
            match self.step(run, &context, &mut in_flight).await {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(end),
                Err(error) => {
                    // Record the messages that left, if the store still can.
                    let results = in_flight.drain().await;
                    self.record(run, &results).await?;
                    return Err(error);
                }
            }
        }
    }

    pub async fn abandon(&self, run: QueuedRun) -> Result<(), StoreError> {
        self.queue.abandon(run, self.worker.id).await
    }

    /// One step of a run: claims, starts or waits. Returns the end of the run if this was the last step.
    async fn step<'a>(
        &'a self,
        run: QueuedRun,
        context: &'a RunContext,
        in_flight: &mut InFlightSends<'a>,
    ) -> Result<Option<RunEnd>, StoreError> {
        if self.shutdown.is_stopping() || self.time_slices.should_yield() {
            return self.hand_over(run, in_flight).await.map(Some);
        }
        if let Some(block) = in_flight.block() {
            self.drain(run, in_flight).await?;
            self.block_run(run, &context.inputs, &block).await?;
            return self.release_and_report(run).await.map(Some);
        }
        if in_flight.take_throttled()
            && let Some(credentials) = &context.credentials
        {
            let slowing = self
                .limiter
                .slow_down(&credentials.phone_number_id, context.send_rate.rate());
            in_flight.drive_during(slowing).await?;
        }
        if in_flight.has_waiting() {
            self.start_batch(run, context, in_flight).await?;
            return Ok(None);
        }
        let size = self.send_rate(context).burst().claim_size(CLAIM_INTERVAL, MAX_CLAIM);
        let claim = (self.sends).claim(run, self.worker.id, in_flight.claim_position(), size, RUN_LEASE);
        match in_flight.drive_during(claim).await? {
            ClaimOutcome::Sends(sends) => in_flight.enqueue(sends),
            ClaimOutcome::Skipped(contact) => in_flight.skip_to(contact),
            // Record first, whatever the claim returned: a result can make a send due again.
            _ if in_flight.has_unrecorded() => self.drain(run, in_flight).await?,
            ClaimOutcome::Wait(time) => {
                self.unless_stopped(self.timer.sleep(time.min(CLAIM_INTERVAL))).await;
            }
            ClaimOutcome::Held(held) => {
                self.queue.wait(run, self.worker.id, held).await?;
                return self.end_report(run).await.map(|end| Some(end.of_waiting(held)));
            }
            ClaimOutcome::Exhausted => {
                self.runs.finish(run).await?;
                return self.end_report(run).await.map(Some);
            }
            // Release the lease, so that a resumed run starts without delay.
            ClaimOutcome::Stopped => return self.release_and_report(run).await.map(Some),
            ClaimOutcome::Lost => return Ok(Some(RunEnd::HandedOver)),
        }
        Ok(None)
    }

    async fn hand_over(&self, run: QueuedRun, in_flight: &mut InFlightSends<'_>) -> Result<RunEnd, StoreError> {
        self.drain(run, in_flight).await?;
        self.release(run).await?;
        Ok(RunEnd::HandedOver)
    }

    async fn release(&self, run: QueuedRun) -> Result<(), StoreError> {
        self.queue.release(run, self.worker.id).await
    }

    pub(super) async fn release_and_report(&self, run: QueuedRun) -> Result<RunEnd, StoreError> {
        self.release(run).await?;
        self.end_report(run).await
    }

    /// Prepares a queued start. False: the run does not start now; the campaign may be a draft again.
    async fn prepare(&self, run: QueuedRun, queued_start: QueuedStart) -> Result<bool, StoreError> {
        let prepared: Result<bool, StoreError> = retry_up_to(START_ATTEMPTS, async || {
            let Some(facts) = self.starts.facts(run.account_id, run.campaign_id).await? else {
                return Ok(Some(false));
            };
            let campaign = facts.campaign.clone();
            if campaign.paused_at.is_some() {
                return self.release(run).await.map(|()| Some(false));
            }
            if queued_start.trigger == Trigger::Schedule && facts.is_too_late() {
                return self.skip(run, &campaign, &queued_start).await.map(|()| Some(false));
            }
            let outcome = match prepare(facts, Command::Prepare, queued_start.clone()) {
                Ok(start) => self.starts.start(&start, Some(self.worker.id), RUN_LEASE).await?,
                Err(refusal) => StartOutcome::Refused(refusal),
            };
            match outcome {
                StartOutcome::Started { .. } => Ok(Some(true)),
                StartOutcome::Missing => Ok(Some(false)),
                StartOutcome::Changed => Ok(None),
                StartOutcome::Refused(refusal) => {
                    // If the campaign was cancelled, there is no start to abort.
                    if let Ok(status) = transition(campaign.status, Command::Abort) {
                        let notification = Event::Notification(abort_notification(&campaign, &refusal));
                        self.starts.abort_start(run, status, &[notification]).await?;
                    }
                    Ok(Some(false))
                }
            }
        })
        .await;
        match prepared {
            // The campaign keeps changing: another worker tries again later.
            Err(error) if error.is_conflict() => self.release(run).await.map(|()| false),
            prepared => prepared,
        }
    }

    /// Makes a campaign whose scheduled start is too late a draft again.
    async fn skip(&self, run: QueuedRun, campaign: &Campaign, queued_start: &QueuedStart) -> Result<(), StoreError> {
        let Ok(status) = transition(campaign.status, Command::Abort) else {
            return Ok(());
        };
        let events = skip_events(campaign, queued_start.actor.as_ref());
        self.starts.skip_start(run, status, &events).await
    }

    /// The context of the run, or the end of its execution if it cannot send.
    async fn run_context(&self, run: QueuedRun, inputs: RunInputs) -> Result<Result<RunContext, RunEnd>, StoreError> {
        if inputs.campaign.simulated {
            return Ok(Ok(RunContext {
                inputs,
                credentials: None,
                send_rate: SendRate::Delay(Duration::ZERO),
                files: HashMap::new(),
            }));
        }
        if let Some(end) = self.check_number(run, &inputs).await? {
            return Ok(Err(end));
        }
        let credentials = inputs
            .profile
            .as_ref()
            .and_then(|profile| profile.credentials(run.account_id, self.cipher.as_ref()));
        let Some(credentials) = credentials else {
            self.pause(run, &inputs, "the WhatsApp number is not connected any more")
                .await?;
            return self.release_and_report(run).await.map(Err);
        };
        let rate = inputs
            .profile
            .as_ref()
            .and_then(|stored| stored.profile.messages_per_second);
        let send_rate = match rate.and_then(|rate| u32::try_from(rate).ok()) {
            Some(rate) => SendRate::PerSecond(rate),
            None => SendRate::Delay(self.worker.delay),
        };
        let gateway = self.gateway.as_ref();
        match file_sources(&self.files, gateway, run.account_id, &credentials, &inputs.template).await {
            Ok(files) => Ok(Ok(RunContext {
                inputs,
                credentials: Some(credentials),
                send_rate,
                files,
            })),
            Err(MessageFileError::Store(error)) => Err(error),
            Err(error) => self.postpone_or_pause(run, &inputs, &error).await.map(Err),
        }
    }

    /// Starts the next sends, and calls WhatsApp for them at the number's next send slot.
    async fn start_batch<'a>(
        &'a self,
        run: QueuedRun,
        context: &'a RunContext,
        in_flight: &mut InFlightSends<'a>,
    ) -> Result<(), StoreError> {
        let burst = self.send_rate(context).burst();
        let Some(SendBatch { sends, results }) = in_flight.next_batch(context.batch_size(burst)) else {
            in_flight.wait_for_one_call().await;
            return Ok(());
        };
        let slot_time = match self.reserve_slot(context, burst, in_flight).await {
            Ok(slot_time) => slot_time,
            Err(error) => {
                in_flight.add_results(results);
                return Err(error);
            }
        };
        if let Some(slot_time) = slot_time
            && !in_flight.drive_during(self.wait_until(slot_time, START_LEAD)).await
        {
            in_flight.add_results(results);
            return Ok(());
        }
        let ids: Vec<SendId> = sends.iter().map(|send| send.id).collect();
        let starting = self.sends.record_and_start(run, self.worker.id, &results, &ids);
        let started = match in_flight.drive_during(starting).await {
            Ok(started) => started,
            Err(error) => {
                use SendResult::{Failed, Sent, Unknown};
                let is_repeatable = |result: &SendResult| matches!(result, Sent { .. } | Failed { .. } | Unknown);
                in_flight.add_results(results.into_iter().filter(|(_, result)| is_repeatable(result)));
                return Err(error);
            }
        };
        if !started.goes_on {
            // The next claim returns the reason.
            in_flight.clear_waiting();
        }
        if started.is_over_budget {
            in_flight.block_with(BUDGET_REACHED);
        }
        if let Some(slot_time) = slot_time
            && !self.wait_for_slot(slot_time, context, burst, in_flight).await
        {
            in_flight.add_results(started.sends.into_iter().map(|send| (send, SendResult::Released)));
            return Ok(());
        }
        let started_sends = sends.into_iter().filter(|send| started.sends.contains(&send.id));
        let calls = started_sends.map(|mut send| {
            send.recipient.take_if(|_| started.unreachable.contains(&send.id));
            (send.id, self.send_one(context, send).boxed())
        });
        in_flight.start_calls(calls).await;
        Ok(())
    }

    /// The send rate of the run's number, limited to its throttled rate.
    fn send_rate(&self, context: &RunContext) -> SendRate {
        let limit = context
            .credentials
            .as_ref()
            .and_then(|credentials| self.limiter.limit(&credentials.phone_number_id));
        context.send_rate.limited(limit)
    }

    /// Reserves the send slot of the next burst. None: the burst may leave at once.
    async fn reserve_slot(
        &self,
        context: &RunContext,
        burst: Burst,
        in_flight: &mut InFlightSends<'_>,
    ) -> Result<Option<SlotTime>, StoreError> {
        let Some(credentials) = context.credentials.as_ref().filter(|_| burst.time.is_positive()) else {
            return Ok(None);
        };
        let reserving = self.limiter.reserve(&credentials.phone_number_id, burst);
        in_flight.drive_during(reserving).await.map(Some)
    }

    /// Waits for the send slot. If a slow write or a busy machine missed it, reserves another one, because two bursts
    /// close together would exceed the rate of their second. Not if slots are far apart: started sends would then wait
    /// past the lease or a cancel. False: the server stops, and no message may leave.
    async fn wait_for_slot(
        &self,
        mut slot_time: SlotTime,
        context: &RunContext,
        burst: Burst,
        in_flight: &mut InFlightSends<'_>,
    ) -> bool {
        let slots_are_far_apart = burst.time > START_LEAD + SLOT_TOLERANCE;
        let mut reservations_left = if slots_are_far_apart { 0 } else { 2 };
        while in_flight.drive_during(self.wait_until(slot_time, Duration::ZERO)).await {
            if reservations_left == 0 || self.limiter.since(slot_time) <= SLOT_TOLERANCE {
                return true;
            }
            // Started sends leave, even if the store fails to reserve another slot.
            let Ok(Some(next_slot_time)) = self.reserve_slot(context, burst, in_flight).await else {
                return true;
            };
            (slot_time, reservations_left) = (next_slot_time, reservations_left - 1);
        }
        false
    }

    /// Waits until `lead` before the slot. False: the server stops, and no message may leave.
    async fn wait_until(&self, slot_time: SlotTime, lead: Duration) -> bool {
        self.unless_stopped(self.limiter.until(slot_time, lead)).await
    }

    /// Waits for `wait`. False: the server stops.
    async fn unless_stopped(&self, wait: impl Future<Output = ()> + Send + Unpin) -> bool {
        select(self.shutdown.stopped(), wait).await;
        !self.shutdown.is_stopping()
    }

    async fn drain(&self, run: QueuedRun, in_flight: &mut InFlightSends<'_>) -> Result<(), StoreError> {
        let results = in_flight.drain().await;
        self.record(run, &results).await
    }

    async fn record(&self, run: QueuedRun, results: &[(SendId, SendResult)]) -> Result<(), StoreError> {
        if results.is_empty() {
            return Ok(());
        }
        self.sends.record(run, results).await
    }

    async fn send_one(&self, context: &RunContext, send: ClaimedSend) -> CompletedCall {
        let failed = |message: &str| {
            let message = message.to_owned();
            CompletedCall::of(send.id, SendResult::Failed { code: None, message })
        };
        let Some(recipient) = &send.recipient else {
            return failed("the contact was deleted, or opted out, before the message left");
        };
        let Some(to) = context.address(recipient) else {
            return failed("the contact has no address that the message can leave to");
        };
        let values = context.values(recipient);
        if values.placeholders.iter().any(String::is_empty) {
            return failed("a placeholder is empty for this contact");
        }
        if values.offer_ends_too_early(&context.inputs.template, self.clock.now()) {
            return failed(OFFER_ENDED);
        }
        match &context.credentials {
            None => {
                let (message_id, wa_id) = (None, None);
                CompletedCall::of(send.id, SendResult::Sent { message_id, wa_id })
            }
            Some(credentials) => {
                let message = context.message(send.id, to, &values);
                let mut outcome = self.gateway.send_template(credentials, &message).await;
                keep_new_wa_id(&mut outcome, send.wa_id.as_ref(), recipient);
                let error = outcome.class();
                let (send, result, block) = to_result(send.id, send.attempts, outcome);
                CompletedCall {
                    send,
                    result,
                    error,
                    block,
                }
            }
        }
    }

    pub(super) async fn pause(&self, run: QueuedRun, inputs: &RunInputs, reason: &str) -> Result<(), StoreError> {
        let notification = pause_notification(inputs.campaign.id, &inputs.campaign.name, reason);
        self.runs.pause(run, reason, &[Event::Notification(notification)]).await
    }

    /// Pauses a run that WhatsApp blocks. If the template is the cause, pauses every other run of the template too.
    async fn block_run(&self, run: QueuedRun, inputs: &RunInputs, block: &RunBlock) -> Result<(), StoreError> {
        if let Some(review) = block.review {
            match self.save_review(run, inputs.template.id, review).await {
                // The run pauses in any case: the next callback or synchronization stores the review.
                Err(error) if error.is_conflict() => {}
                saved => saved?,
            }
        }
        self.pause(run, inputs, &block.reason).await?;
        if let Some(reason) = block.review.and_then(MetaStatus::pause_reason) {
            let template = inputs.template.id;
            self.runs.pause_template(run.account_id, template, reason).await?;
        }
        Ok(())
    }

    async fn save_review(&self, run: QueuedRun, template: TemplateId, review: MetaStatus) -> Result<(), StoreError> {
        match self.starts.facts(run.account_id, run.campaign_id).await? {
            Some(facts) => save_review(self.templates.as_ref(), run.account_id, template, review, facts.now).await,
            None => Ok(()),
        }
    }

    async fn end_report(&self, run: QueuedRun) -> Result<RunEnd, StoreError> {
        Ok(self.runs.report(run).await?.map_or(RunEnd::Gone, RunEnd::Over))
    }
}

#[cfg(test)]
mod tests;
