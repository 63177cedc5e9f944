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

use futures_util::FutureExt;
use time::Duration;
use uuid::Uuid;

use super::deciding::ATTEMPTS;
use super::flights::{Flights, Part, Settled};
use super::postponement::next_delay;
use super::run::abort_notification;
use super::script::{Script, file_sources};
use super::{
    Announced, Claim, ClaimedSend, Command, Halt, Moment, Pace, Pacer, Portion, QueuedRun, RunMaterial, RunReport,
    RunStore, SendOutcome, SendResult, StartOutcome, pause_notification, prepare, settle, transition,
};
use crate::shared::{Cipher, Event, SendId, StoreError, TemplateId, Write};
use crate::templates::{MetaStatus, TemplateStore, verdict_events, with_verdict};
use crate::whatsapp::{FileFault, MessageFiles, WhatsappGateway};

/// How many sends are claimed together.
const CLAIM: i64 = 1000;

/// Sends are marked as started so long before they may leave, so that none is late because of that.
const START_LEAD: Duration = Duration::milliseconds(100);

/// A place may be missed by a little ([`Pace::portion`]): so much of that may be ours, the rest is the network's.
const MISSED: Duration = Duration::milliseconds(10);

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
    /// Something outside is not available: a worker takes the run again after the delay.
    Postponed {
        /// How long.
        delay: Duration,
        /// What is not available.
        reason: String,
    },
}

/// Who carries runs out.
#[derive(Clone, Copy, Debug)]
pub struct Worker {
    /// Names it among all. A process is another worker for every run that it takes: under one name, a process that stood
    /// still for longer than its lease and takes its own run again would pass for the one whose calls are under way.
    pub id: Uuid,
    /// The pace of numbers without one of their own.
    pub delay: Duration,
}

/// Carries runs out.
#[derive(Clone)]
pub struct Dispatcher {
    runs: Arc<dyn RunStore>,
    templates: Arc<dyn TemplateStore>,
    gateway: Arc<dyn WhatsappGateway>,
    files: MessageFiles,
    cipher: Arc<dyn Cipher>,
    pacer: Arc<dyn Pacer>,
    worker: Uuid,
    delay: Duration,
    lease: Duration,
}

impl Dispatcher {
    pub fn new(
        runs: Arc<dyn RunStore>,
        templates: Arc<dyn TemplateStore>,
        gateway: Arc<dyn WhatsappGateway>,
        files: MessageFiles,
        cipher: Arc<dyn Cipher>,
        pacer: Arc<dyn Pacer>,
        worker: Worker,
    ) -> Self {
        Self {
            runs,
            templates,
            gateway,
            files,
            cipher,
            pacer,
            worker: worker.id,
            delay: worker.delay,
            lease: super::service::RUN_LEASE,
        }
    }

    /// The same as another worker.
    #[must_use]
    pub fn named(&self, worker: Uuid) -> Self {
        Self { worker, ..self.clone() }
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
        let script = match self.script(run, material).await? {
            Ok(script) => script,
            Err(end) => return Ok(end),
        };
        let mut flights = Flights::default();
        loop {
            match self.step(run, &script, &mut flights).await {
                Ok(None) => {}
                Ok(Some(end)) => return Ok(end),
                Err(error) => {
                    // What left is recorded if it can be, whatever went wrong.
                    let results = flights.land().await;
                    self.record(run, &results).await?;
                    return Err(error);
                }
            }
        }
    }

    /// Gives a run up after an error, for whoever takes it next.
    pub async fn abandon(&self, run: QueuedRun) -> Result<(), StoreError> {
        self.runs.abandon(run, self.worker).await
    }

    /// One step of a run: claims, starts, or waits. The end, if this was the last one.
    async fn step<'a>(
        &'a self,
        run: QueuedRun,
        script: &'a Script,
        flights: &mut Flights<'a>,
    ) -> Result<Option<RunEnd>, StoreError> {
        if self.pacer.stopping() || self.pacer.crowded() {
            return self.hand_over(run, flights).await.map(Some);
        }
        if let Some(halt) = flights.halt() {
            self.land(run, flights).await?;
            self.halt(run, &script.material, &halt).await?;
            return self.leave(run).await.map(Some);
        }
        if flights.take_throttled()
            && let Some(line) = &script.line
        {
            let slowing = self.pacer.slow_down(&line.phone_number_id, script.pace.rate());
            flights.meanwhile(slowing).await?;
        }
        if !flights.is_empty() {
            self.start_part(run, script, flights).await?;
            return Ok(None);
        }
        let size = self.pace(script).portion().claim(LOOK_AGAIN, CLAIM);
        let (worker, lease) = (self.worker, self.lease);
        let claim = self.runs.claim(run, worker, flights.after(), size, lease);
        match flights.meanwhile(claim).await? {
            Claim::Sends(sends) => flights.line_up(sends),
            // What is under way may make some due again; and it is recorded in any case.
            _ if flights.are_open() => self.land(run, flights).await?,
            Claim::Wait(time) => {
                self.pacer.rest(time.min(LOOK_AGAIN)).await;
            }
            Claim::Exhausted => {
                self.runs.finish(run).await?;
                return self.standing(run).await.map(Some);
            }
            // Whoever lets it go on finds it free.
            Claim::Stopped => return self.leave(run).await.map(Some),
            Claim::Lost => return Ok(Some(RunEnd::HandedOver)),
        }
        Ok(None)
    }

    async fn hand_over(&self, run: QueuedRun, flights: &mut Flights<'_>) -> Result<RunEnd, StoreError> {
        self.land(run, flights).await?;
        self.runs.release(run, self.worker).await?;
        Ok(RunEnd::HandedOver)
    }

    async fn leave(&self, run: QueuedRun) -> Result<RunEnd, StoreError> {
        self.runs.release(run, self.worker).await?;
        self.standing(run).await
    }

    /// Prepares an announced run. False: it does not take place, or not now; the campaign may be a draft again.
    async fn prepare(&self, run: QueuedRun, announced: Announced) -> Result<bool, StoreError> {
        for _ in 0..ATTEMPTS {
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

    /// What the run sends; or how this worker's part in it ends, if it cannot begin.
    async fn script(&self, run: QueuedRun, material: RunMaterial) -> Result<Result<Script, RunEnd>, StoreError> {
        if material.campaign.simulated {
            return Ok(Ok(Script {
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
            return self.leave(run).await.map(Err);
        };
        let rate = material
            .profile
            .as_ref()
            .and_then(|stored| stored.profile.messages_per_second);
        let pace = match rate.and_then(|rate| u32::try_from(rate).ok()) {
            Some(rate) => Pace::PerSecond(rate),
            None => Pace::Delay(self.delay),
        };
        let gateway = self.gateway.as_ref();
        match file_sources(&self.files, gateway, run.account_id, &line, &material.template).await {
            Ok(files) => Ok(Ok(Script {
                material,
                line: Some(line),
                pace,
                files,
            })),
            Err(FileFault::Store(error)) => Err(error),
            Err(fault) => self.without_files(run, &material, &fault).await.map(Err),
        }
    }

    /// Exponential backoff: postpones a run whose files are not available. A file that is missing or refused, or not
    /// available for hours, pauses the run.
    async fn without_files(
        &self,
        run: QueuedRun,
        material: &RunMaterial,
        fault: &FileFault,
    ) -> Result<RunEnd, StoreError> {
        let reason = fault.to_string();
        let delay = match fault.is_temporary() {
            true => next_delay(self.runs.postponed(run).await?),
            false => None,
        };
        let Some(delay) = delay else {
            self.pause(run, material, &reason).await?;
            return self.leave(run).await;
        };
        self.runs.postpone(run, self.worker, delay).await?;
        Ok(RunEnd::Postponed { delay, reason })
    }

    /// Starts the next sends, and lets their requests leave when the number has places for them.
    async fn start_part<'a>(
        &'a self,
        run: QueuedRun,
        script: &'a Script,
        flights: &mut Flights<'a>,
    ) -> Result<(), StoreError> {
        let portion = self.pace(script).portion();
        let Some(Part { sends, results }) = flights.next_part(script.together(portion)) else {
            flights.one().await;
            return Ok(());
        };
        let moment = match self.moment(script, portion, flights).await {
            Ok(moment) => moment,
            Err(error) => {
                flights.settle(results);
                return Err(error);
            }
        };
        if let Some(moment) = moment
            && !flights.meanwhile(self.pacer.until(moment, START_LEAD)).await
        {
            flights.settle(results);
            return Ok(());
        }
        let ids: Vec<SendId> = sends.iter().map(|send| send.id).collect();
        let starting = self.runs.record_and_start(run, self.worker, &results, &ids);
        let started = match flights.meanwhile(starting).await {
            Ok(started) => started,
            Err(error) => {
                use SendResult::{Failed, Sent, Unknown};
                let lasting = |result: &SendResult| matches!(result, Sent { .. } | Failed { .. } | Unknown);
                flights.settle(results.into_iter().filter(|(_, result)| lasting(result)));
                return Err(error);
            }
        };
        if !started.goes_on {
            // The next claim says why.
            flights.forget_waiting();
        }
        if let Some(moment) = moment
            && !self.departs(moment, script, portion, flights).await
        {
            flights.settle(started.sends.into_iter().map(|send| (send, SendResult::Released)));
            return Ok(());
        }
        let leaving = sends.into_iter().filter(|send| started.sends.contains(&send.id));
        let calls = leaving.map(|mut send| {
            send.recipient.take_if(|_| started.unreachable.contains(&send.id));
            self.send_one(script, send).boxed()
        });
        flights.launch(calls).await;
        Ok(())
    }

    /// The pace of the run's number, which throttling may have slowed down.
    fn pace(&self, script: &Script) -> Pace {
        let limit = script
            .line
            .as_ref()
            .and_then(|line| self.pacer.limit(&line.phone_number_id));
        script.pace.limited(limit)
    }

    /// When the next portion may leave; none: at once.
    async fn moment(
        &self,
        script: &Script,
        portion: Portion,
        flights: &mut Flights<'_>,
    ) -> Result<Option<Moment>, StoreError> {
        let Some(line) = script.line.as_ref().filter(|_| portion.time.is_positive()) else {
            return Ok(None);
        };
        let reserving = self.pacer.reserve(&line.phone_number_id, portion);
        flights.meanwhile(reserving).await.map(Some)
    }

    /// Waits for the moment, or another one where a slow start or a busy machine missed it: two portions close together
    /// are too many for their second. Not where places are far apart: what was started would wait beyond lease and cancel.
    /// False: the server stops, nothing may leave.
    async fn departs(&self, mut moment: Moment, script: &Script, portion: Portion, flights: &mut Flights<'_>) -> bool {
        let far = portion.time > START_LEAD + MISSED;
        let mut others = if far { 0 } else { 2 };
        while flights.meanwhile(self.pacer.until(moment, Duration::ZERO)).await {
            // What was started leaves in the end, even if the store fails now.
            if others == 0 || self.pacer.since(moment) <= MISSED {
                return true;
            }
            let Ok(Some(another)) = self.moment(script, portion, flights).await else {
                return true;
            };
            (moment, others) = (another, others - 1);
        }
        false
    }

    /// Waits for all calls, and writes what came of them.
    async fn land(&self, run: QueuedRun, flights: &mut Flights<'_>) -> Result<(), StoreError> {
        let results = flights.land().await;
        self.record(run, &results).await
    }

    async fn record(&self, run: QueuedRun, results: &[(SendId, SendResult)]) -> Result<(), StoreError> {
        if results.is_empty() {
            return Ok(());
        }
        self.runs.record(run, results).await
    }

    async fn send_one(&self, script: &Script, send: ClaimedSend) -> Settled {
        let failed = |message: &str| {
            let message = message.to_owned();
            (send.id, SendResult::Failed { code: None, message }, None)
        };
        let Some(recipient) = &send.recipient else {
            return failed("the contact was deleted, or opted out, before the message left");
        };
        let values = script.values(recipient);
        if values.iter().any(String::is_empty) {
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
                let mut outcome = self.gateway.send_template(line, &message).await;
                if let SendOutcome::Accepted { wa_id, .. } = &mut outcome {
                    // Only what is new: most recipients' id is their number.
                    wa_id
                        .take_if(|id| send.wa_id.as_ref() == Some(id) || recipient.phone.strip_prefix('+') == Some(id));
                }
                settle(send.id, send.attempts, outcome)
            }
        }
    }

    async fn pause(&self, run: QueuedRun, material: &RunMaterial, reason: &str) -> Result<(), StoreError> {
        let notification = pause_notification(material.campaign.id, &material.campaign.name, reason);
        self.runs.pause(run, reason, &[Event::Notification(notification)]).await
    }

    /// Lets a run wait that the platform has stopped, and where that is because of its template, whoever else sends it.
    async fn halt(&self, run: QueuedRun, material: &RunMaterial, halt: &Halt) -> Result<(), StoreError> {
        if let Some(verdict) = halt.verdict {
            self.judge(run, material.template.id, verdict).await?;
        }
        self.pause(run, material, &halt.reason).await?;
        if let Some(reason) = halt.verdict.and_then(MetaStatus::stops) {
            let template = material.template.id;
            self.runs.pause_template(run.account_id, template, reason).await?;
        }
        Ok(())
    }

    /// Takes over what a refusal says of the run's template, unless that was changed since.
    async fn judge(&self, run: QueuedRun, template: TemplateId, verdict: MetaStatus) -> Result<(), StoreError> {
        let Some(facts) = self.runs.facts(run.account_id, run.campaign_id).await? else {
            return Ok(());
        };
        for _ in 0..ATTEMPTS {
            // As stored, and not with the run's content: it is written.
            let Some(template) = self.templates.find(run.account_id, template).await? else {
                break;
            };
            let Some(judged) = with_verdict(&template, verdict, None, facts.now) else {
                break;
            };
            let events = verdict_events(&template, &judged);
            match self.templates.update(&judged, &template, &events).await? {
                Write::Stale(_) => {}
                Write::Done | Write::Missing => break,
            }
        }
        Ok(())
    }

    async fn standing(&self, run: QueuedRun) -> Result<RunEnd, StoreError> {
        Ok(self.runs.report(run).await?.map_or(RunEnd::Gone, RunEnd::Over))
    }
}
