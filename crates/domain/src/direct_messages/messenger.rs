//! Sends the direct messages of a number's queue: starts, calls and records them, at the send rate of the number.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::select;
use time::Duration;

use super::{
    DirectMessageQueue, HoldReason, LeavingContent, LeavingMessage, NumberChoice, NumberQueue, QueueInputs,
    TemplateFileError, TemplateFiles,
};
use crate::campaigns::{
    Burst, CompletedCall, InFlightSends, SendRate, SendRateLimiter, SendResult, SlotTime, Worker, to_result,
};
use crate::messaging::{
    Addressee, BlockCause, ErrorClass, MessageContent, OutboundMessage, SendOutcome, ThrottleScope,
    WhatsappCredentials, WhatsappGateway,
};
use crate::shared::{Cipher, MessageId, SendId, Shutdown, StoreError, Timer};
use crate::whatsapp::{ContentFileError, ContentFiles, MessageFileError, MessageFiles, StoredProfile};

/// The lease of a queue. Every start renews it.
const LEASE: Duration = Duration::seconds(30);

/// How soon a queue is looked at again while its number is not verified, WhatsApp refuses it, or its account is
/// suspended.
const UNVERIFIED_DELAY: Duration = Duration::seconds(5);
const REFUSED_DELAY: Duration = Duration::seconds(15);
const SUSPENDED_DELAY: Duration = Duration::seconds(10);

/// The most messages in flight of one queue.
const MAX_IN_FLIGHT: usize = 100;

/// The most messages of a simulated queue that are recorded together.
const SIMULATED_BATCH: u32 = 100;

/// How soon new messages are looked for while calls are running.
const POLL_INTERVAL: Duration = Duration::milliseconds(50);

/// A worker releases the queue after so many batches, so that other queues get a time slice.
const MAX_BATCHES_PER_SLICE: u32 = 100;

/// The most bursts that one reservation takes.
const MAX_BURSTS_PER_RESERVATION: u32 = 10;

/// How the work on a queue ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEnd {
    /// No message is due.
    Empty,
    /// All messages of the number are held.
    Held(HoldReason),
    /// The server stops, or the queue gives way to others.
    HandedOver,
    /// Another worker has leased the queue.
    Lost,
    /// The account does not exist any more.
    Gone,
}

/// Sends the messages of one queue at a time.
#[derive(Clone)]
pub struct Messenger {
    pub queue: Arc<dyn DirectMessageQueue>,
    pub gateway: Arc<dyn WhatsappGateway>,
    pub files: MessageFiles,
    pub content_files: ContentFiles,
    pub cipher: Arc<dyn Cipher>,
    pub limiter: Arc<dyn SendRateLimiter>,
    pub timer: Arc<dyn Timer>,
    pub shutdown: Arc<dyn Shutdown>,
    pub worker: Worker,
}

/// The number that sends the messages of a queue, and at which rate.
struct QueueSender {
    credentials: Option<WhatsappCredentials>,
    send_rate: SendRate,
    is_number_removed: bool,
}

impl Messenger {
    /// Takes the queue that has waited longest, if a message is due.
    pub async fn take(&self) -> Result<Option<NumberQueue>, StoreError> {
        self.queue.take(self.worker.id, LEASE).await
    }

    /// Sends the due messages of a queue that this worker has leased.
    pub async fn run(&self, queue: NumberQueue) -> Result<QueueEnd, StoreError> {
        let Some(inputs) = self.queue.inputs(queue).await? else {
            return Ok(QueueEnd::Gone);
        };
        if let Some((reason, left)) = inputs.held {
            // The queue is due because a message expired.
            return self.hold(queue, reason, left).await;
        }
        if let Some(number) = inputs.successor {
            return self.hand_over(queue, number).await;
        }
        let sender = match self.sender(queue, &inputs) {
            Ok(sender) => sender,
            Err((reason, delay)) => return self.hold(queue, reason, delay).await,
        };
        let mut in_flight = InFlightSends::default();
        let sent = self.send_due(queue, &sender, &mut in_flight).await;
        // Messages that left are recorded also after an error.
        let results = in_flight.drain().await;
        // Only a rejection that applies to every message of the number holds the queue. The circuit breaker of runs is
        // not used: messages of a queue are independent of each other.
        let is_refused = in_flight.refused_call().is_some();
        self.record(queue, results).await?;
        match sent? {
            QueueEnd::Lost => Ok(QueueEnd::Lost),
            _ if is_refused => self.hold(queue, HoldReason::Number, REFUSED_DELAY).await,
            end => {
                self.queue.release(queue, self.worker.id).await?;
                Ok(end)
            }
        }
    }

    pub async fn abandon(&self, queue: NumberQueue) -> Result<(), StoreError> {
        self.queue.abandon(queue, self.worker.id).await
    }

    /// An account that had no number when the messages were made has one now: nothing of it is simulated any more.
    async fn hand_over(&self, queue: NumberQueue, number: NumberChoice) -> Result<QueueEnd, StoreError> {
        if !number.is_verified {
            return self.hold(queue, HoldReason::Number, UNVERIFIED_DELAY).await;
        }
        self.queue.hand_over(queue, self.worker.id, number.id).await?;
        Ok(QueueEnd::HandedOver)
    }

    async fn hold(&self, queue: NumberQueue, reason: HoldReason, delay: Duration) -> Result<QueueEnd, StoreError> {
        self.queue.hold(queue, self.worker.id, reason, delay).await?;
        Ok(QueueEnd::Held(reason))
    }

    /// The sender of a queue, or why and how long it is held.
    fn sender(&self, queue: NumberQueue, inputs: &QueueInputs) -> Result<QueueSender, (HoldReason, Duration)> {
        if !inputs.is_active {
            return Err((HoldReason::Suspended, SUSPENDED_DELAY));
        }
        let Some(profile) = &inputs.profile else {
            return Ok(QueueSender {
                credentials: None,
                send_rate: SendRate::Delay(Duration::ZERO),
                is_number_removed: queue.profile_id.is_some(),
            });
        };
        let credentials = profile.credentials(queue.account_id, self.cipher.as_ref());
        match credentials.filter(|_| profile.is_verified()) {
            None => Err((HoldReason::Number, UNVERIFIED_DELAY)),
            credentials => Ok(QueueSender {
                credentials,
                send_rate: self.send_rate(profile),
                is_number_removed: false,
            }),
        }
    }

    fn send_rate(&self, profile: &StoredProfile) -> SendRate {
        let rate = profile
            .profile
            .messages_per_second
            .and_then(|rate| u32::try_from(rate).ok());
        let rate = rate.map_or(SendRate::Delay(self.worker.delay), SendRate::PerSecond);
        rate.limited(self.limiter.limit(&profile.profile.phone_number_id))
    }

    async fn send_due<'a>(
        &'a self,
        queue: NumberQueue,
        sender: &'a QueueSender,
        in_flight: &mut InFlightSends<'a>,
    ) -> Result<QueueEnd, StoreError> {
        let burst = sender.send_rate.burst();
        let mut batches_left = MAX_BATCHES_PER_SLICE;
        // Fair share: a reservation takes as many bursts as other senders took while this queue waited for its slot. So
        // direct messages get half of a busy number.
        let mut bursts = 1;
        while batches_left > 0 && !self.shutdown.is_stopping() && in_flight.refused_call().is_none() {
            self.record_completed(queue, in_flight).await?;
            self.slow_down(sender, in_flight).await?;
            let limit = sender.batch_size(burst, bursts);
            let due = in_flight.drive_during(self.queue.due(queue, limit)).await?;
            if due == 0 {
                if !in_flight.has_unrecorded() {
                    return Ok(QueueEnd::Empty);
                }
                in_flight.drive_during(self.timer.sleep(POLL_INTERVAL)).await;
                continue;
            }
            if in_flight.calls() >= MAX_IN_FLIGHT {
                in_flight.wait_for_one_call().await;
                continue;
            }
            batches_left -= 1;
            let slot = self.reserve(sender, burst, due, in_flight).await?;
            bursts = bursts_after(slot.map_or(Duration::ZERO, |slot| -self.limiter.since(slot)), burst);
            if !self.start(queue, sender, burst, due, slot, in_flight).await? {
                return Ok(QueueEnd::Lost);
            }
        }
        Ok(QueueEnd::HandedOver)
    }

    /// Reserves the send slots of `due` messages. None: they may leave at once.
    async fn reserve(
        &self,
        sender: &QueueSender,
        burst: Burst,
        due: u32,
        in_flight: &mut InFlightSends<'_>,
    ) -> Result<Option<SlotTime>, StoreError> {
        let Some(credentials) = sender.credentials.as_ref().filter(|_| burst.time.is_positive()) else {
            return Ok(None);
        };
        let reservation = Burst {
            messages: due,
            time: burst.time * due.div_ceil(burst.messages),
        };
        let reserving = self.limiter.reserve(&credentials.phone_number_id, reservation);
        in_flight.drive_during(reserving).await.map(Some)
    }

    /// Starts and calls `due` messages, burst by burst from the slot on. False: another worker has leased the queue.
    async fn start<'a>(
        &'a self,
        queue: NumberQueue,
        sender: &'a QueueSender,
        burst: Burst,
        due: u32,
        slot: Option<SlotTime>,
        in_flight: &mut InFlightSends<'a>,
    ) -> Result<bool, StoreError> {
        let size = if slot.is_some() { burst.messages } else { due };
        for index in 0..due.div_ceil(size) {
            if let Some(SlotTime(first)) = slot {
                let slot_time = SlotTime(first + burst.time * index);
                if !in_flight.drive_during(self.wait_until(slot_time)).await {
                    return Ok(true);
                }
            }
            let starting = self
                .queue
                .start(queue, self.worker.id, size, LEASE, sender.is_number_removed);
            let Some(started) = in_flight.drive_during(starting).await? else {
                return Ok(false);
            };
            let calls = started.into_iter().map(|message| {
                let id = SendId(message.id.0);
                (id, self.call(queue, sender, message).boxed())
            });
            in_flight.start_calls(calls).await;
        }
        Ok(true)
    }

    /// Waits for a slot. False: the server stops, and no message may leave.
    async fn wait_until(&self, slot_time: SlotTime) -> bool {
        let waiting = self.limiter.until(slot_time, Duration::ZERO);
        select(self.shutdown.stopped(), waiting).await;
        !self.shutdown.is_stopping()
    }

    async fn slow_down(&self, sender: &QueueSender, in_flight: &mut InFlightSends<'_>) -> Result<(), StoreError> {
        match &sender.credentials {
            Some(credentials) if in_flight.take_throttled() => {
                let slowing = self
                    .limiter
                    .slow_down(&credentials.phone_number_id, sender.send_rate.rate());
                in_flight.drive_during(slowing).await
            }
            _ => Ok(()),
        }
    }

    async fn record_completed(&self, queue: NumberQueue, in_flight: &mut InFlightSends<'_>) -> Result<(), StoreError> {
        let results = in_flight.take_results();
        in_flight.drive_during(self.record(queue, results)).await
    }

    async fn record(&self, queue: NumberQueue, results: Vec<(SendId, SendResult)>) -> Result<(), StoreError> {
        if results.is_empty() {
            return Ok(());
        }
        let results: Vec<_> = results
            .into_iter()
            .map(|(id, result)| (MessageId(id.0), result))
            .collect();
        self.queue.record(queue, &results).await
    }

    async fn call(&self, queue: NumberQueue, sender: &QueueSender, message: LeavingMessage) -> CompletedCall {
        let send = SendId(message.id.0);
        let Some(credentials) = &sender.credentials else {
            let (message_id, wa_id) = (None, None);
            return CompletedCall::of(send, SendResult::Sent { message_id, wa_id });
        };
        let attempts = message.attempts;
        let known = message.wa_id.clone();
        let mut outcome = match self.outcome(queue, credentials, message).await {
            Ok(outcome) => outcome,
            Err(message) => return CompletedCall::of(send, SendResult::Failed { code: None, message }),
        };
        if let SendOutcome::Accepted { wa_id, .. } = &mut outcome {
            wa_id.take_if(|id| known.as_ref() == Some(id));
        }
        let error = outcome.class();
        let slows_down = matches!(
            outcome,
            SendOutcome::Throttled {
                scope: Some(ThrottleScope::PhoneNumber),
                ..
            }
        );
        let (send, result, block) = to_result(send, attempts, one_message(outcome));
        let result = match result {
            SendResult::Deferred { delay } if slows_down => SendResult::Throttled { delay },
            result => result,
        };
        CompletedCall {
            send,
            result,
            error,
            block,
        }
    }

    /// The outcome of the call, or why the message cannot have its file.
    async fn outcome(
        &self,
        queue: NumberQueue,
        credentials: &WhatsappCredentials,
        message: LeavingMessage,
    ) -> Result<SendOutcome, String> {
        let (template, values, header_media) = match message.content {
            LeavingContent::Template {
                template,
                values,
                header_media,
            } => (template, values, header_media),
            LeavingContent::FreeForm(content) => {
                let (id, to) = (message.id, message.to);
                return self.free_form(queue, credentials, id, to, content).await;
            }
        };
        let gateway = self.gateway.as_ref();
        let files = TemplateFiles {
            files: &self.files,
            content_files: &self.content_files,
            gateway,
        };
        let sources = files.sources(queue.account_id, credentials, &template, header_media);
        match sources.await {
            Ok(files) => {
                let message = template.outbound(SendId(message.id.0), message.to, &values, &files);
                Ok(gateway.send_template(credentials, &message).await)
            }
            Err(TemplateFileError::Header(error)) => without_content_file(&error),
            Err(TemplateFileError::Message(error)) => without_file(&error),
        }
    }

    /// The outcome of the call for a free-form message.
    async fn free_form(
        &self,
        queue: NumberQueue,
        credentials: &WhatsappCredentials,
        message_id: MessageId,
        to: Addressee,
        content: MessageContent,
    ) -> Result<SendOutcome, String> {
        let found = match self.content_files.find(queue.account_id, &content).await {
            Ok(file) => file,
            Err(error) => return without_content_file(&error),
        };
        let gateway = self.gateway.as_ref();
        let source = self
            .content_files
            .source(gateway, queue.account_id, credentials, &found);
        let file = match source.await {
            Ok(file) => file,
            Err(error) => return without_file(&error),
        };
        let message = OutboundMessage {
            message_id,
            to,
            reply_to: None,
            content,
            file,
        };
        Ok(gateway.send_message(credentials, &message).await)
    }
}

impl QueueSender {
    /// How many messages to start together.
    fn batch_size(&self, burst: Burst, bursts: u32) -> u32 {
        match self.credentials {
            Some(_) => burst.messages * bursts,
            None => SIMULATED_BATCH,
        }
    }
}

/// The bursts of a reservation after a wait: as many as others took during the wait, at least one.
fn bursts_after(waited: Duration, burst: Burst) -> u32 {
    let burst_time = burst.time.whole_microseconds().max(1);
    let others = waited.whole_microseconds() / burst_time;
    u32::try_from(others.max(0))
        .unwrap_or(MAX_BURSTS_PER_RESERVATION)
        .clamp(1, MAX_BURSTS_PER_RESERVATION)
}

/// A rejection of the template concerns this message only: other messages of the number have other templates. And
/// unlike a send of a run, a message has no more attempts if WhatsApp throttles its number than if it throttles others.
fn one_message(outcome: SendOutcome) -> SendOutcome {
    match outcome {
        SendOutcome::RunBlocked {
            code,
            cause: BlockCause::Template | BlockCause::TemplatePaused | BlockCause::TemplateDisabled,
            message,
        } => SendOutcome::Failed {
            code,
            class: ErrorClass::Other,
            message,
        },
        SendOutcome::Throttled {
            code,
            scope: Some(ThrottleScope::PhoneNumber),
            message,
            retry_after,
        } => SendOutcome::Throttled {
            code,
            scope: None,
            message,
            retry_after,
        },
        outcome => outcome,
    }
}

/// The outcome of a message without its file: tried again later, or the reason why that would not help.
fn without_file(error: &MessageFileError) -> Result<SendOutcome, String> {
    match error.is_temporary() || matches!(error, MessageFileError::Store(_)) {
        true => Ok(not_connected(error.to_string())),
        false => Err(error.to_string()),
    }
}

/// The same for a file of the account.
fn without_content_file(error: &ContentFileError) -> Result<SendOutcome, String> {
    match error {
        ContentFileError::Store(error) => Ok(not_connected(error.to_string())),
        ContentFileError::Invalid(_) => Err("the file of the message is not available".to_owned()),
    }
}

/// The outcome of a message for which WhatsApp could not be called.
fn not_connected(message: String) -> SendOutcome {
    SendOutcome::Throttled {
        code: None,
        scope: None,
        message,
        retry_after: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_gives_as_many_bursts_as_others_had() {
        let burst = SendRate::PerSecond(80).burst();
        let after = |bursts: f64| bursts_after(burst.time * bursts, burst);
        assert_eq!(
            [after(0.0), after(1.0), after(3.9), after(500.0)],
            [1, 1, 3, MAX_BURSTS_PER_RESERVATION]
        );
        assert_eq!(bursts_after(Duration::seconds(-3), burst), 1);
    }
}
