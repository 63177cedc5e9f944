//! Carrying a run out: claim, start, call, record; again and again until nothing is left, and then conclude.
//!
//! The order of writes is what makes a crash harmless. A send is *claimed* before anything else, marked *started* just
//! before its request leaves, and *recorded* after. Claimed and not started: nobody was called, another worker sends
//! it. Started and not recorded: somebody may have been called, nobody sends it again.
//!
//! Only a send that this worker started has a result. The others of a claim need none: they are due for whoever claims
//! next, and may be another worker's already, when this one lost the run without noticing.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use time::Duration;
use uuid::Uuid;

use super::launch::START_ATTEMPTS;
use super::run::abort_notification;
use super::script::{Script, file_addresses};
use super::{
    Announced, Claim, ClaimedSend, Command, Pace, Pacer, QueuedRun, RunMaterial, RunReport, RunStore, SendOutcome,
    SendResult, StartOutcome, pause_notification, prepare, settle, transition,
};
use crate::shared::{Cipher, Event, GatewayError, SendId, StoreError};
use crate::whatsapp::{FileFault, FileSource, Line, MessageFiles, WhatsappGateway};

/// How many sends are claimed, and their results written, together. A crash leaves at most so many unknown.
const BATCH: i64 = 10;

/// The same where no platform is called, so that nothing is waited for.
const SIMULATED_BATCH: i64 = 500;

/// How long a run may go, or rest, before it looks again whether it was cancelled, and shows that its worker lives.
const LOOK_AGAIN: Duration = Duration::seconds(10);

/// How a worker's part in a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The run is over, or waits for somebody; this is how it stands.
    Over(RunReport),
    /// The campaign is gone.
    Gone,
    /// The server stops, or another worker holds the run: it goes on elsewhere.
    HandedOver,
}

/// Carries runs out.
pub struct Dispatcher {
    runs: Arc<dyn RunStore>,
    gateway: Arc<dyn WhatsappGateway>,
    files: MessageFiles,
    cipher: Arc<dyn Cipher>,
    pacer: Arc<dyn Pacer>,
    worker: Uuid,
    delay: Duration,
    lease: Duration,
}

/// How often a file is offered to the platform before the run waits for somebody.
const FILE_ATTEMPTS: i32 = 3;

impl Dispatcher {
    /// `worker` names this process among all; `delay` is the pace of numbers without one of their own.
    pub fn new(
        runs: Arc<dyn RunStore>,
        gateway: Arc<dyn WhatsappGateway>,
        files: MessageFiles,
        cipher: Arc<dyn Cipher>,
        pacer: Arc<dyn Pacer>,
        worker: Uuid,
        delay: Duration,
    ) -> Self {
        Self {
            runs,
            gateway,
            files,
            cipher,
            pacer,
            worker,
            delay,
            lease: super::service::RUN_LEASE,
        }
    }

    /// The name under which this process holds runs.
    pub fn worker(&self) -> Uuid {
        self.worker
    }

    /// Takes a run that nobody holds, if there is one.
    pub async fn take(&self) -> Result<Option<QueuedRun>, StoreError> {
        self.runs.take(self.worker, self.lease).await
    }

    /// Carries out a run that this worker holds. After an error it may be called again, while the worker holds the run;
    /// else the lease runs out, and another worker goes on.
    pub async fn carry_out(&self, run: QueuedRun) -> Result<RunEnd, StoreError> {
        if let Some(announced) = self.runs.announced(run).await?
            && !self.prepare(run, announced).await?
        {
            return self.standing(run).await;
        }
        let Some(material) = self.runs.material(run).await? else {
            return Ok(RunEnd::Gone);
        };
        let Some(script) = self.script(run, material).await? else {
            return self.standing(run).await;
        };
        loop {
            if self.pacer.stopping() {
                self.runs.release(run, self.worker).await?;
                return Ok(RunEnd::HandedOver);
            }
            match self.runs.claim(run, self.worker, script.batch(), self.lease).await? {
                Claim::Sends(sends) => self.send_batch(run, &script, sends).await?,
                Claim::Wait(time) => {
                    self.pacer.rest(time.min(LOOK_AGAIN)).await;
                }
                Claim::Exhausted => {
                    self.runs.finish(run).await?;
                    return self.standing(run).await;
                }
                Claim::Stopped => {
                    // Whoever lets it go on finds it free.
                    self.runs.release(run, self.worker).await?;
                    return self.standing(run).await;
                }
                Claim::Lost => return Ok(RunEnd::HandedOver),
            }
        }
    }

    /// Prepares an announced run. False: it does not take place, or not now; the campaign may be a draft again.
    async fn prepare(&self, run: QueuedRun, announced: Announced) -> Result<bool, StoreError> {
        for _ in 0..START_ATTEMPTS {
            let Some(facts) = self.runs.facts(run.account_id, run.campaign_id).await? else {
                return Ok(false);
            };
            let campaign = facts.campaign.clone();
            if campaign.paused_at.is_some() {
                break;
            }
            let outcome = match prepare(facts, Command::Prepare, announced.clone()) {
                Ok(start) => self.runs.start(&start, Some(self.worker), self.lease).await?,
                Err(refusal) => StartOutcome::Refused(refusal),
            };
            match outcome {
                StartOutcome::Started { .. } => return Ok(true),
                StartOutcome::Missing => return Ok(false),
                StartOutcome::Changed => {}
                StartOutcome::Refused(refusal) => {
                    // Cancelled meanwhile: nothing is left to give up.
                    let Ok(status) = transition(campaign.status, Command::Abort) else {
                        return Ok(false);
                    };
                    let told = Event::Notification(abort_notification(&campaign, &refusal));
                    self.runs.give_up(run, status, &[told]).await?;
                    return Ok(false);
                }
            }
        }
        // Paused, or changing all the time: whoever takes it next will find a better moment.
        self.runs.release(run, self.worker).await?;
        Ok(false)
    }

    /// None: the number is gone or its token cannot be read, so the run waits for somebody.
    async fn script(&self, run: QueuedRun, material: RunMaterial) -> Result<Option<Script>, StoreError> {
        if material.campaign.simulated {
            return Ok(Some(Script {
                material,
                line: None,
                pace: Pace::Delay(Duration::ZERO),
                files: HashMap::new(),
            }));
        }
        let line = material
            .profile
            .as_ref()
            .and_then(|profile| profile.line(self.cipher.as_ref()));
        let Some(line) = line else {
            self.pause(run, &material, "the WhatsApp number is not connected any more")
                .await?;
            return Ok(None);
        };
        let rate = material
            .profile
            .as_ref()
            .and_then(|stored| stored.profile.messages_per_second);
        let pace = match rate.and_then(|rate| u32::try_from(rate).ok()) {
            Some(rate) => Pace::PerSecond(rate),
            None => Pace::Delay(self.delay),
        };
        let files = match self.files(run, &material, &line).await {
            Ok(files) => files,
            Err(FileFault::Store(error)) => return Err(error),
            Err(fault @ (FileFault::Unusable(_) | FileFault::Platform(_))) => {
                self.pause(run, &material, &fault.to_string()).await?;
                return Ok(None);
            }
        };
        Ok(Some(Script {
            material,
            line: Some(line),
            pace,
            files,
        }))
    }

    /// Sees to it that the platform has every file of the template.
    async fn files(
        &self,
        run: QueuedRun,
        material: &RunMaterial,
        line: &Line,
    ) -> Result<HashMap<String, FileSource>, FileFault> {
        let mut files = HashMap::new();
        for url in file_addresses(&material.template) {
            let source = self.file(run, line, &url).await?;
            files.insert(url, source);
        }
        Ok(files)
    }

    async fn file(&self, run: QueuedRun, line: &Line, url: &str) -> Result<FileSource, FileFault> {
        let mut attempt = 1;
        loop {
            let found = self
                .files
                .source(self.gateway.as_ref(), run.account_id, line, url)
                .await;
            match found {
                Err(FileFault::Platform(GatewayError::Unavailable(_))) if attempt < FILE_ATTEMPTS => {
                    self.pacer.rest(Duration::SECOND * attempt).await;
                    attempt += 1;
                }
                found => return found,
            }
        }
    }

    /// Sends what was claimed, part by part, until the run has to stop; what left is recorded in any case.
    async fn send_batch(&self, run: QueuedRun, script: &Script, sends: Vec<ClaimedSend>) -> Result<(), StoreError> {
        let mut results = Vec::with_capacity(sends.len());
        let mut pause = None;
        let mut fault = None;
        for part in sends.chunks(script.in_flight()) {
            match self.send_part(run, script, part).await {
                Ok(Some(settled)) => {
                    for (send, result, reason) in settled {
                        results.push((send, result));
                        pause = pause.or(reason);
                    }
                }
                Ok(None) => break,
                Err(error) => fault = Some(error),
            }
            if pause.is_some() || fault.is_some() {
                break;
            }
        }
        if !results.is_empty() {
            self.runs.record(run, &results).await?;
        }
        match (fault, pause) {
            (Some(error), _) => Err(error),
            (None, Some(reason)) => self.pause(run, &script.material, &reason).await,
            (None, None) => Ok(()),
        }
    }

    /// Starts some sends together and waits for all of them. None: the server stops, nothing left.
    async fn send_part(
        &self,
        run: QueuedRun,
        script: &Script,
        part: &[ClaimedSend],
    ) -> Result<Option<Vec<(SendId, SendResult, Option<String>)>>, StoreError> {
        if let Some(line) = &script.line {
            let messages = u32::try_from(part.len()).unwrap_or(u32::MAX);
            if !self.pacer.places(&line.phone_number_id, script.pace, messages).await {
                return Ok(None);
            }
        }
        let ids: Vec<SendId> = part.iter().map(|send| send.id).collect();
        let started = self.runs.mark_started(run, self.worker, &ids).await?;
        let calls = part
            .iter()
            .filter(|send| started.contains(&send.id))
            .map(|send| self.send_one(script, send));
        Ok(Some(join_all(calls).await))
    }

    async fn send_one(&self, script: &Script, send: &ClaimedSend) -> (SendId, SendResult, Option<String>) {
        let failed = |message: &str| {
            (
                send.id,
                SendResult::Failed {
                    code: None,
                    message: message.to_owned(),
                },
                None,
            )
        };
        let Some(recipient) = &send.recipient else {
            return failed("the contact was deleted, or opted out, before the message left");
        };
        let values = script.values(recipient);
        if values.iter().any(|value| value.trim().is_empty()) {
            return failed("a placeholder is empty for this contact");
        }
        match &script.line {
            None => (
                send.id,
                SendResult::Sent {
                    message_id: None,
                    wa_id: None,
                },
                None,
            ),
            Some(line) => {
                let message = script.message(send.id, recipient, &values);
                let outcome: SendOutcome = self.gateway.send_template(line, &message).await;
                settle(send.id, send.attempts, outcome)
            }
        }
    }

    async fn pause(&self, run: QueuedRun, material: &RunMaterial, reason: &str) -> Result<(), StoreError> {
        let notification = pause_notification(material.campaign.id, &material.campaign.name, reason);
        self.runs.pause(run, reason, &[Event::Notification(notification)]).await
    }

    async fn standing(&self, run: QueuedRun) -> Result<RunEnd, StoreError> {
        Ok(self.runs.report(run).await?.map_or(RunEnd::Gone, RunEnd::Over))
    }
}

impl Script {
    /// How many sends to claim: no more than leave before it is time to look again.
    fn batch(&self) -> i64 {
        if self.line.is_none() {
            return SIMULATED_BATCH;
        }
        let interval = self.pace.interval().whole_microseconds().max(1);
        let leave = LOOK_AGAIN.whole_microseconds() / interval;
        i64::try_from(leave).unwrap_or(BATCH).clamp(1, BATCH)
    }

    /// How many of them to start together.
    fn in_flight(&self) -> usize {
        match self.line {
            Some(_) => self.pace.in_flight(),
            None => usize::MAX,
        }
    }
}
