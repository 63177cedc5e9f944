//! WhatsApp, its status updates, and the send slots of numbers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use time::{Duration, OffsetDateTime};

use super::bugs::SimulationBug;
use super::executor::{OTHER_SYSTEMS, START, TaskId, Wait};
use super::ledger::SendRequest;
use super::stores::{OPTED_OUT, Stores, Written};
use crate::callbacks::{StatusUpdate, StatusUpdateStore};
use crate::campaigns::{Burst, LOWEST_RATE, QueuedRun, SendRateLimiter, SlotTime, ThrottledRate, TimeSlices};
use crate::media::MediaFile;
use crate::messaging::{
    BlockCause, ErrorClass, OutboundMessage, OutboundTemplate, RemotePage, SendOutcome, SendStatus, SubmittedTemplate,
    TemplateSubmission, ThrottleScope, UploadFile, WhatsappCredentials, WhatsappGateway,
};
use crate::shared::{AccountId, Clock, GatewayError, Ids, MessageId, SendId, StoreError};

/// The longest time of a call, before and after WhatsApp acts, in milliseconds.
const LATENCY: usize = 400;

/// The messages that each number may send in a second.
pub(super) const RATE: u16 = 5;

/// A stalled task may send late for this long after its stall.
const LATE_AFTER_STALL: Duration = Duration::seconds(2);

/// Accepts messages, and posts status updates about most of them.
pub(super) struct SimulatedWhatsapp(pub(super) Arc<Stores>);

impl SimulatedWhatsapp {
    fn outcome(&self, account: AccountId, send: SendId) -> SendOutcome {
        let scheduler = &self.0.scheduler;
        let accepted = || {
            let message_id = format!("wamid.{}", scheduler.next());
            self.post_status_updates(account, send, &message_id);
            SendOutcome::Accepted {
                message_id,
                wa_id: None,
            }
        };
        if !scheduler.percent(self.0.failure_rates().whatsapp) {
            return accepted();
        }
        let text = || "injected".to_owned();
        let throttled = |scope| SendOutcome::Throttled {
            code: Some(130_429),
            scope: Some(scope),
            message: text(),
            retry_after: None,
        };
        let failed = |code, class| SendOutcome::Failed {
            code,
            class,
            message: text(),
        };
        match scheduler.below(16) {
            0..3 => failed(131_026, ErrorClass::RecipientUnreachable),
            3 => failed(OPTED_OUT, ErrorClass::OptedOut),
            4..7 => throttled(ThrottleScope::Account),
            7..9 => throttled(ThrottleScope::PhoneNumber),
            9 => SendOutcome::RunBlocked {
                code: 190,
                cause: BlockCause::Token,
                message: text(),
            },
            10 => SendOutcome::OpaqueRejection { detail: text() },
            11..13 => SendOutcome::Unknown { detail: text() },
            _ => {
                // WhatsApp accepts the message, and its response is lost.
                accepted();
                SendOutcome::Unknown { detail: text() }
            }
        }
    }

    async fn send_direct(&self, credentials: &WhatsappCredentials, id: MessageId) -> SendOutcome {
        let (stores, scheduler) = (&self.0, &self.0.scheduler);
        let account = stores.messages().messages.get(&id).map(|row| row.account_id);
        let (task, is_late) = (scheduler.running(), scheduler.is_late(LATE_AFTER_STALL));
        {
            let mut ledger = stores.ledger();
            ledger.message_called(id, task);
            if !is_late {
                ledger.check_rate(&credentials.phone_number_id, scheduler.now());
            }
        }
        scheduler.latency("WhatsApp gets the direct message", LATENCY).await;
        let outcome = match account {
            Some(account) => self.outcome(account, SendId(id.0)),
            None => SendOutcome::Unknown {
                detail: "no row".to_owned(),
            },
        };
        if !may_have_arrived(&outcome) {
            stores.ledger().message_rejected(id);
        }
        scheduler.latency("WhatsApp responds", LATENCY).await;
        outcome
    }

    /// Posts status updates in any order, some of them twice, some of them without Recado's id of the send.
    fn post_status_updates(&self, account: AccountId, send: SendId, message_id: &str) {
        let scheduler = &self.0.scheduler;
        let statuses: &[SendStatus] = match scheduler.below(10) {
            0..3 => &[],
            3 => &[SendStatus::Sent, SendStatus::Failed],
            4..7 => &[SendStatus::Sent, SendStatus::Delivered, SendStatus::Sent],
            _ => &[SendStatus::Delivered, SendStatus::Read],
        };
        for status in statuses {
            let update = StatusUpdate {
                send_id: scheduler.percent(80).then_some(send),
                message_id: message_id.to_owned(),
                status: *status,
                at: scheduler.now(),
                error_code: None,
                error_message: None,
                pricing: None,
            };
            let (stores, delay) = (self.0.clone(), scheduler.below(60));
            let delay = Duration::seconds(i64::try_from(delay).unwrap());
            scheduler.spawn("status update", OTHER_SYSTEMS, async move {
                stores.scheduler.sleep_for(delay, Wait::Busy).await;
                apply_status_update(&stores, account, update, send).await;
            });
        }
    }
}

fn may_have_arrived(outcome: &SendOutcome) -> bool {
    match outcome {
        SendOutcome::Accepted { .. } | SendOutcome::Unknown { .. } | SendOutcome::OpaqueRejection { .. } => true,
        SendOutcome::Failed { .. } | SendOutcome::Throttled { .. } | SendOutcome::RunBlocked { .. } => false,
    }
}

/// Applies a status update, also if the store fails now and then. An update that matches no message is tried again, as
/// WhatsApp's callbacks are.
async fn apply_status_update(stores: &Stores, account: AccountId, mut update: StatusUpdate, send: SendId) {
    loop {
        let apply = async {
            let updates = [update.clone()];
            let unmatched = stores.runs.apply(account, &updates).await?;
            Ok(unmatched.is_empty() || stores.apply_to_message(account, &update))
        };
        match stores.write("apply status update", Written::Runs(account), apply).await {
            Ok(is_matched) if is_matched || update.send_id.is_some() => return,
            Ok(_) => update.send_id = Some(send),
            Err(_) => {}
        }
        stores.scheduler.sleep_for(Duration::SECOND, Wait::Busy).await;
    }
}

#[async_trait]
impl WhatsappGateway for SimulatedWhatsapp {
    async fn send_template(&self, credentials: &WhatsappCredentials, message: &OutboundTemplate) -> SendOutcome {
        let stores = &self.0;
        let (task, account): (TaskId, AccountId);
        let key = stores.runs.tables().key_of(message.send_id);
        let Some((campaign_id, _)) = key else {
            return self.send_direct(credentials, MessageId(message.send_id.0)).await;
        };
        let request = {
            let tables = stores.runs.tables();
            account = tables.campaigns[&campaign_id].campaign.account_id;
            task = stores.scheduler.running();
            let request = SendRequest {
                run: QueuedRun {
                    account_id: account,
                    campaign_id,
                },
                send: message.send_id,
                to: message.to.value(),
                number: &credentials.phone_number_id,
                at: stores.scheduler.now(),
                is_late: stores.scheduler.is_late(LATE_AFTER_STALL),
                task,
            };
            stores.ledger().send_requested(&request);
            request
        };
        stores.scheduler.latency("WhatsApp gets the message", LATENCY).await;
        let outcome = self.outcome(account, message.send_id);
        if !may_have_arrived(&outcome) {
            stores.ledger().send_rejected(&request);
        }
        stores.scheduler.latency("WhatsApp responds", LATENCY).await;
        if !matches!(
            outcome,
            SendOutcome::Unknown { .. } | SendOutcome::OpaqueRejection { .. }
        ) {
            let mut ledger = stores.ledger();
            ledger.responses.entry(task).or_default().insert(message.send_id);
        }
        outcome
    }

    async fn send_message(&self, credentials: &WhatsappCredentials, message: &OutboundMessage) -> SendOutcome {
        self.send_direct(credentials, message.message_id).await
    }

    async fn submit_template<'a>(
        &self,
        _: &WhatsappCredentials,
        _: &TemplateSubmission,
        _: Option<&'a str>,
    ) -> Result<SubmittedTemplate, GatewayError> {
        unreachable!("a simulation submits no template")
    }

    async fn upload_header(&self, _: &WhatsappCredentials, _: &MediaFile) -> Result<String, GatewayError> {
        unreachable!("a simulation has no files")
    }

    async fn upload_file(&self, _: &WhatsappCredentials, _: &UploadFile) -> Result<String, GatewayError> {
        unreachable!("a simulation has no files")
    }

    async fn list_templates<'a>(
        &self,
        _: &WhatsappCredentials,
        _: Option<&'a str>,
    ) -> Result<RemotePage, GatewayError> {
        unreachable!("a simulation lists no templates")
    }
}

#[derive(Clone, Copy, Default)]
struct Slots {
    next: Option<OffsetDateTime>,
    /// The lowered rate, and since when.
    throttled: Option<(f64, OffsetDateTime)>,
}

/// The send slots of all numbers (GCRA), which all servers share.
pub(super) struct SimulatedLimiter {
    stores: Arc<Stores>,
    slots: Mutex<BTreeMap<String, Slots>>,
}

impl SimulatedLimiter {
    pub(super) fn new(stores: Arc<Stores>) -> Self {
        let slots = Mutex::default();
        Self { stores, slots }
    }

    fn key(&self, number: &str) -> String {
        match self.stores.has_bug(SimulationBug::SendSlotsNotShared) {
            true => format!("{number} of task {}", self.stores.scheduler.running()),
            false => number.to_owned(),
        }
    }

    fn limit_of(&self, slots: Slots) -> Option<f64> {
        let (rate, at) = slots.throttled?;
        let age = self.stores.scheduler.now() - at;
        ThrottledRate { rate, age }.limit()
    }
}

#[async_trait]
impl SendRateLimiter for SimulatedLimiter {
    async fn reserve(&self, phone_number_id: &str, burst: Burst) -> Result<SlotTime, StoreError> {
        let reserve = async {
            let now = self.stores.scheduler.now();
            let mut slots = self.slots.lock().unwrap();
            let row = slots.entry(self.key(phone_number_id)).or_default();
            let slot = row.next.unwrap_or(now).max(now);
            let limit = self.limit_of(*row).unwrap_or(f64::MAX);
            let throttled = Duration::SECOND * f64::from(burst.messages) / limit;
            row.next = Some(slot + burst.time.max(throttled));
            Ok(slot - now)
        };
        let wait = self.stores.call("reserve send slot", reserve).await?;
        // The wait counts from the response, so that a slow response never makes the slot early.
        Ok(SlotTime(self.stores.scheduler.now() - START + wait))
    }

    fn limit(&self, phone_number_id: &str) -> Option<f64> {
        let slots = self.slots.lock().unwrap();
        self.limit_of(*slots.get(&self.key(phone_number_id))?)
    }

    async fn slow_down(&self, phone_number_id: &str, rate: f64) -> Result<(), StoreError> {
        let slow_down = async {
            let now = self.stores.scheduler.now();
            let mut slots = self.slots.lock().unwrap();
            let row = slots.entry(self.key(phone_number_id)).or_default();
            let halved = self.limit_of(*row).unwrap_or(rate).min(rate) / 2.0;
            row.throttled = Some((halved.max(LOWEST_RATE.min(rate)), now));
            Ok(())
        };
        self.stores.call("slow down", slow_down).await
    }

    async fn until(&self, slot_time: SlotTime, lead: Duration) {
        let wait = slot_time.0 - lead - (self.stores.scheduler.now() - START);
        if wait.is_positive() {
            self.stores.scheduler.sleep_for(wait, Wait::Busy).await;
        }
    }

    fn since(&self, slot_time: SlotTime) -> Duration {
        self.stores.scheduler.now() - START - slot_time.0
    }
}

impl TimeSlices for SimulatedLimiter {
    fn should_yield(&self) -> bool {
        self.stores.scheduler.percent(1)
    }
}
