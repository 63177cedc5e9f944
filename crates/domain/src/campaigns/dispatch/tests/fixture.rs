//! The fixture of a dispatcher under test: a run and a fake WhatsApp that records calls.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use serde_json::Map;
use time::Duration;
use uuid::Uuid;

use super::fake_time::FakeTime;
use super::faults::FaultInjector;
use super::runs::FaultyRuns;
use crate::campaigns::in_memory::InMemorySend;
use crate::campaigns::service::tests::{NOW, campaign};
use crate::campaigns::{
    Burst, Campaign, CampaignStatus, Dispatcher, QueuedRun, Recipient, RunEnd, RunInputs, SendRate, Worker,
};
use crate::media::MediaFile;
use crate::media::tests::{FakeMediaStore, media};
use crate::messaging::{
    BlockCause, ErrorClass, OutboundMessage, OutboundTemplate, RemotePage, SendOutcome, SendStatus, SubmittedTemplate,
    TemplateSubmission, ThrottleScope, UploadFile, WhatsappCredentials as Credentials, WhatsappGateway,
};
use crate::shared::{AccountId, CampaignId, GatewayError, MockCipher, MockClock, ProfileId};
use crate::templates::tests::approved_template;
use crate::templates::{MockTemplateStore, TemplateStore};
use crate::whatsapp::{FileIdStore, MessageFiles, MockFileIdStore, StoredProfile};

pub(super) const RUN: QueuedRun = QueuedRun {
    account_id: AccountId(Uuid::from_u128(9)),
    campaign_id: CampaignId(Uuid::from_u128(1)),
};

/// The worker that holds the run at the start of a test.
pub(super) const FIRST: Uuid = Uuid::from_u128(71);
pub(super) const SECOND: Uuid = Uuid::from_u128(72);
pub(super) const THIRD: Uuid = Uuid::from_u128(73);

/// The outcome of a call, by recipient and the number of earlier calls for that recipient.
type OutcomeFn = Box<dyn Fn(&str, usize) -> SendOutcome + Send + Sync>;

type Hook = Box<dyn FnOnce() + Send>;

/// Returns the outcomes of a test, and records every call.
pub(super) struct FakeWhatsapp {
    outcome: OutcomeFn,
    calls: Mutex<Vec<(OutboundTemplate, SendOutcome)>>,
    /// Runs during the call with this number (from 0).
    hook: Mutex<Option<(usize, Hook)>>,
    /// The number of uploads so far, and the number of uploads that fail first.
    pub(super) uploads: Mutex<(usize, usize)>,
    injector: Arc<FaultInjector>,
}

impl FakeWhatsapp {
    fn record_call(&self, message: &OutboundTemplate) -> SendOutcome {
        let mut calls = self.calls.lock().unwrap();
        let before = calls.iter().filter(|(earlier, _)| earlier.to == message.to).count();
        let outcome = (self.outcome)(message.to.value(), before);
        calls.push((message.clone(), outcome.clone()));
        outcome
    }

    /// Takes the hook if the current call has its number.
    fn take_due_hook(&self) -> Option<Hook> {
        let calls = self.calls.lock().unwrap().len();
        let mut hook = self.hook.lock().unwrap();
        let is_due = hook.as_ref().is_some_and(|(call, _)| *call + 1 == calls);
        hook.take_if(|_| is_due).map(|(_, hook)| hook)
    }
}

#[async_trait]
impl WhatsappGateway for FakeWhatsapp {
    async fn send_template(&self, _: &Credentials, message: &OutboundTemplate) -> SendOutcome {
        let outcome = self.injector.gateway_call(|| self.record_call(message)).await;
        if let Some(hook) = self.take_due_hook() {
            hook();
        }
        outcome
    }

    async fn send_message(&self, _: &Credentials, _: &OutboundMessage) -> SendOutcome {
        unreachable!("runs send templates")
    }

    async fn submit_template<'a>(
        &self,
        _: &Credentials,
        _: &TemplateSubmission,
        _: Option<&'a str>,
    ) -> Result<SubmittedTemplate, GatewayError> {
        Err(GatewayError::NotConfigured("submission"))
    }

    async fn upload_header(&self, _: &Credentials, _: &MediaFile) -> Result<String, GatewayError> {
        Err(GatewayError::NotConfigured("submission"))
    }

    /// Fails the first uploads, then returns `media-<number of uploads>`.
    async fn upload_file(&self, _: &Credentials, _: &UploadFile) -> Result<String, GatewayError> {
        let mut uploads = self.uploads.lock().unwrap();
        uploads.0 += 1;
        if uploads.0 <= uploads.1 {
            return Err(GatewayError::Unavailable("down".into()));
        }
        Ok(format!("media-{}", uploads.0))
    }

    async fn list_templates<'a>(&self, _: &Credentials, _: Option<&'a str>) -> Result<RemotePage, GatewayError> {
        Err(GatewayError::NotConfigured("lists"))
    }
}

/// One run with its fakes.
#[derive(Clone)]
pub(super) struct Fixture {
    pub(super) runs: Arc<FaultyRuns>,
    pub(super) injector: Arc<FaultInjector>,
    pub(super) whatsapp: Arc<FakeWhatsapp>,
    pub(super) templates: Arc<dyn TemplateStore>,
    /// The files that the account uploaded.
    pub(super) media_store: Arc<FakeMediaStore>,
    ids: Arc<dyn FileIdStore>,
    time: Arc<FakeTime>,
    pub(super) delay: Duration,
}

/// A store that never has a media id of an earlier run.
pub(super) fn empty_file_ids() -> Arc<dyn FileIdStore> {
    let mut ids = MockFileIdStore::new();
    ids.expect_find().returning(|_, _, _| Ok(None));
    ids.expect_store().returning(|_, _, _, _, _| Ok(()));
    Arc::new(ids)
}

pub(super) fn phone(at: usize) -> String {
    format!("+55119{at:08}")
}

pub(super) fn recipient(at: usize) -> Recipient {
    Recipient {
        name: format!("Ana {at}"),
        phone: phone(at),
        user_id: None,
        email: None,
        attributes: Map::new(),
    }
}

fn number() -> StoredProfile {
    StoredProfile::for_tests(ProfileId(Uuid::from_u128(4)), NOW)
}

impl Fixture {
    /// A run with `contacts` reachable contacts, at the default send rate of one message per 200 ms.
    pub(super) fn new(contacts: usize, outcome: impl Fn(&str, usize) -> SendOutcome + Send + Sync + 'static) -> Self {
        let inputs = RunInputs {
            campaign: Campaign {
                total_recipients: i64::try_from(contacts).unwrap(),
                ..campaign(CampaignStatus::Sending)
            },
            template: approved_template("Oi {{1}}, use {{2}}.", &["Bia", "PROMO10"]),
            profile: Some(number()),
        };
        let injector = Arc::new(FaultInjector::default());
        let recipients = (0..contacts).map(recipient).collect();
        let runs = Arc::new(FaultyRuns::new(inputs, recipients, FIRST, injector.clone()));
        let whatsapp = Arc::new(FakeWhatsapp {
            outcome: Box::new(outcome),
            calls: Mutex::default(),
            hook: Mutex::default(),
            uploads: Mutex::default(),
            injector: injector.clone(),
        });
        let time = Arc::new(FakeTime {
            runs: runs.clone(),
            reserved: Mutex::default(),
            waited: Mutex::default(),
            missed: Mutex::default(),
            slowed: Mutex::default(),
            rests: Mutex::default(),
            granted: Mutex::default(),
            departures: Mutex::default(),
            stopping: AtomicBool::new(false),
            should_yield: AtomicBool::new(false),
        });
        Self {
            runs,
            injector,
            whatsapp,
            templates: Arc::new(MockTemplateStore::new()),
            media_store: Arc::default(),
            ids: empty_file_ids(),
            time,
            delay: Duration::milliseconds(200),
        }
    }

    /// Gives the number its own send rate.
    pub(super) fn per_second(self, rate: i32) -> Self {
        let mut state = self.runs.tables();
        let profile = state.number_mut().unwrap();
        profile.profile.messages_per_second = Some(rate);
        drop(state);
        self
    }

    pub(super) fn simulated(self) -> Self {
        let mut state = self.runs.tables();
        state.run_mut().campaign.simulated = true;
        drop(state);
        self
    }

    /// Stops the server after this many reserved slots. None: the server does not stop.
    pub(super) fn stop_after(&self, granted: Option<usize>) {
        *self.time.granted.lock().unwrap() = granted;
        self.time.stopping.store(granted == Some(0), Ordering::Relaxed);
    }

    /// Stops the server after sends are started, just before the burst with this number (from 1) leaves.
    pub(super) fn stop_before_departure(&self, departure: usize) {
        *self.time.departures.lock().unwrap() = Some(departure);
    }

    /// Restarts a stopped server.
    pub(super) fn restart(&self) {
        self.stop_after(None);
        *self.time.departures.lock().unwrap() = None;
    }

    /// Every burst misses its first `first` slots by `late`. `next_fails`: the store fails to reserve another slot.
    pub(super) fn miss_slots(&self, first: i64, late: Duration, next_fails: bool) {
        *self.time.missed.lock().unwrap() = (first, late, next_fails);
    }

    /// Lets another run wait for a permit.
    pub(super) fn request_yield(&self) {
        self.time.should_yield.store(true, Ordering::Relaxed);
    }

    pub(super) fn burst_size(&self) -> usize {
        let mut state = self.runs.tables();
        let number = state.number_mut();
        let rate = number.and_then(|number| number.profile.messages_per_second);
        let send_rate = rate.map_or(SendRate::Delay(self.delay), |n| SendRate::PerSecond(n.unsigned_abs()));
        usize::try_from(send_rate.burst().messages).unwrap()
    }

    /// Runs `hook` during the call with this number (from 0).
    pub(super) fn during_call(&self, call: usize, hook: impl FnOnce() + Send + 'static) {
        *self.whatsapp.hook.lock().unwrap() = Some((call, Box::new(hook)));
    }

    pub(super) fn dispatcher(&self, worker: Uuid) -> Dispatcher {
        self.dispatcher_with(worker, true)
    }

    /// `token_is_readable`: whether the cipher can open the sealed access token.
    pub(super) fn dispatcher_with(&self, worker: Uuid, token_is_readable: bool) -> Dispatcher {
        let mut cipher = MockCipher::new();
        cipher
            .expect_open()
            .returning(move |_, _| token_is_readable.then(|| "token".into()));
        let mut clock = MockClock::new();
        clock.expect_now().return_const(NOW);
        Dispatcher {
            starts: self.runs.store.clone(),
            queue: self.runs.clone(),
            runs: self.runs.clone(),
            sends: self.runs.clone(),
            templates: self.templates.clone(),
            gateway: self.whatsapp.clone(),
            files: MessageFiles::new(media(&self.media_store), self.ids.clone()),
            cipher: Arc::new(cipher),
            limiter: self.time.clone(),
            time_slices: self.time.clone(),
            timer: self.time.clone(),
            clock: Arc::new(clock),
            shutdown: self.time.clone(),
            worker: Worker {
                id: worker,
                delay: self.delay,
            },
        }
    }

    /// Executes the run as the first worker.
    pub(super) async fn run(&self) -> RunEnd {
        self.dispatcher(FIRST).run(RUN).await.unwrap()
    }

    /// Claims and executes the run as another worker. None: the run cannot be claimed.
    pub(super) async fn take_over(&self, worker: Uuid) -> Option<RunEnd> {
        let dispatcher = self.dispatcher(worker);
        let run = dispatcher.take().await.unwrap()?;
        Some(dispatcher.run(run).await.unwrap())
    }

    /// The recipient of every call, in order.
    pub(super) fn called_phones(&self) -> Vec<String> {
        let calls = self.whatsapp.calls.lock().unwrap();
        calls.iter().map(|(message, _)| message.to.value().to_owned()).collect()
    }

    pub(super) fn messages(&self) -> Vec<OutboundTemplate> {
        let calls = self.whatsapp.calls.lock().unwrap();
        calls.iter().map(|(message, _)| message.clone()).collect()
    }

    /// The outcomes of the calls for each recipient, in order.
    pub(super) fn outcomes_by_phone(&self) -> HashMap<String, Vec<SendOutcome>> {
        let mut outcomes: HashMap<String, Vec<SendOutcome>> = HashMap::new();
        for (message, outcome) in self.whatsapp.calls.lock().unwrap().iter() {
            outcomes
                .entry(message.to.value().to_owned())
                .or_default()
                .push(outcome.clone());
        }
        outcomes
    }

    /// The numbers (from 1) of the send slots for which bursts waited.
    pub(super) fn waited_slots(&self) -> Vec<i64> {
        self.time.waited.lock().unwrap().clone()
    }

    /// The phone number and burst of every reserved slot.
    pub(super) fn reserved_bursts(&self) -> Vec<(String, Burst)> {
        self.time.reserved.lock().unwrap().clone()
    }

    /// The rate at each throttling.
    pub(super) fn slowed(&self) -> Vec<f64> {
        self.time.slowed.lock().unwrap().clone()
    }

    pub(super) fn rests(&self) -> Vec<i64> {
        let rests = self.time.rests.lock().unwrap();
        rests.iter().map(|rest| rest.whole_seconds()).collect()
    }

    pub(super) fn row(&self, at: usize) -> InMemorySend {
        self.runs.tables().row(at).clone()
    }

    /// The number of sends with this status.
    pub(super) fn count(&self, status: SendStatus) -> usize {
        self.runs.tables().rows().filter(|row| row.status == status).count()
    }
}

pub(super) fn accepted(phone: &str) -> SendOutcome {
    SendOutcome::Accepted {
        message_id: format!("wamid.{phone}"),
        wa_id: None,
    }
}

pub(super) fn failed() -> SendOutcome {
    SendOutcome::Failed {
        code: 131_026,
        class: ErrorClass::RecipientUnreachable,
        message: "undeliverable".into(),
    }
}

/// The phone number exceeds its throughput limit.
pub(super) fn too_fast() -> SendOutcome {
    SendOutcome::Throttled {
        code: Some(130_429),
        scope: Some(ThrottleScope::PhoneNumber),
        message: "slow down".into(),
        retry_after: None,
    }
}

/// The WhatsApp business account exceeds its limit of API calls.
pub(super) fn throttled() -> SendOutcome {
    SendOutcome::Throttled {
        code: Some(80_007),
        scope: Some(ThrottleScope::Account),
        message: "slow down".into(),
        retry_after: None,
    }
}

pub(super) fn run_blocked() -> SendOutcome {
    SendOutcome::RunBlocked {
        code: 190,
        cause: BlockCause::Token,
        message: "token expired".into(),
    }
}

/// WhatsApp has paused the template.
pub(super) fn template_paused() -> SendOutcome {
    SendOutcome::RunBlocked {
        code: 132_015,
        cause: BlockCause::TemplatePaused,
        message: "Template is paused".into(),
    }
}

pub(super) fn opaque_rejection() -> SendOutcome {
    SendOutcome::OpaqueRejection {
        detail: "HTTP 403 without a readable body".into(),
    }
}

pub(super) fn unknown() -> SendOutcome {
    SendOutcome::Unknown {
        detail: "time-out".into(),
    }
}
