//! A simulation: its accounts and its steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use serde_json::Map;
use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::bugs::SimulationBug;
use super::executor::{Executor, START, Scheduler, Wait};
use super::payments::SimulatedPayments;
use super::stores::Stores;
use super::whatsapp::RATE;
use super::workers::{MESSENGERS, UseCases, WORKERS, dispatch};
use crate::billing::in_memory::{FakePaymentGateway, InMemoryBillingAccount};
use crate::billing::{
    FREE_PLAN, GatewayEvent, GatewayEventData, GatewayEventKind, GatewayPayment, PaymentSnapshot, PaymentStatus,
    PlanChangeInput, SubscribeInput, plan_limits,
};
use crate::campaigns::in_memory::{InMemoryAccount, InMemoryContact};
use crate::campaigns::{Campaign, CampaignStatus, Reach, Recipient, RetryRequest};
use crate::direct_messages::MessageInput;
use crate::shared::{AccountId, CampaignId, Clock, ContactId, ProfileId, Role, Tenant, UserId};
use crate::templates::tests::approved_template;
use crate::whatsapp::StoredProfile;

/// The most resumptions of a simulation.
const MAX_RESUMPTIONS: usize = 100_000;

/// How many steps are about direct messages, in percent.
const MESSAGE_STEPS: usize = 35;

/// The remainder of the seeds, by three, whose simulation has no direct messages. Seeds that failed before there were
/// any keep their histories.
const CAMPAIGNS_ALONE: u64 = 2;

pub(super) struct Simulation {
    pub(super) executor: Executor,
    pub(super) scheduler: Scheduler,
    pub(super) stores: Arc<Stores>,
    pub(super) gateway: Arc<FakePaymentGateway>,
    pub(super) use_cases: UseCases,
    pub(super) accounts: Vec<AccountId>,
    pub(super) campaigns: Vec<(AccountId, CampaignId)>,
    /// Events that the payment gateway posts until it gets a response.
    unacknowledged: Arc<Mutex<BTreeMap<String, GatewayEvent>>>,
    /// The keys of all events of the payment gateway.
    posted: BTreeSet<String>,
    /// Whether clients make direct messages.
    pub(super) has_messages: bool,
    /// The requests for direct messages.
    pub(super) requests: Vec<(AccountId, MessageInput)>,
    steps: Vec<String>,
}

/// Whether the simulation of a seed has direct messages.
pub(super) fn has_messages(seed: u64) -> bool {
    seed % 3 != CAMPAIGNS_ALONE
}

fn uuid(number: usize) -> Uuid {
    Uuid::from_u128(u128::try_from(number).unwrap())
}

pub(super) fn tenant(account: AccountId) -> Tenant {
    Tenant::for_tests(account, UserId(uuid(8)), Role::Owner)
}

fn draft(account: AccountId, id: CampaignId) -> Campaign {
    Campaign {
        budget: None,
        cost: crate::costs::CampaignCost::default(),
        id,
        account_id: account,
        name: format!("Campaign {id}"),
        template_id: Some(approved_template("Oi!", &[]).id),
        segment_id: None,
        segment_config: None,
        rfm_segments: vec![],
        scheduled_at: None,
        scheduled_by: None,
        variables: None,
        header_location: None,
        offer_expires_at: None,
        reach: Reach::Phone,
        newcomers_only: false,
        folder_id: None,
        status: CampaignStatus::Draft,
        total_recipients: 0,
        simulated: false,
        executed_at: None,
        completed_at: None,
        paused_at: None,
        pause_reason: None,
        late_policy: None,
        skipped_at: None,
        retry_scheduled_at: None,
        waiting_until: None,
        held: 0,
        archiving_at: None,
        archived_at: None,
        created_by: None,
        created_at: START,
        updated_at: START,
        version: 1,
    }
}

impl Simulation {
    pub(super) fn new(seed: u64, bug: Option<SimulationBug>) -> Self {
        let scheduler = Scheduler::new(seed);
        let stores = Arc::new(Stores::new(scheduler.clone(), bug));
        let gateway = Arc::new(FakePaymentGateway::default());
        let payments = SimulatedPayments {
            stores: stores.clone(),
            gateway: gateway.clone(),
        };
        let mut simulation = Self {
            executor: Executor::new(scheduler.clone()),
            use_cases: UseCases::new(&stores, &payments),
            scheduler,
            stores,
            gateway,
            accounts: vec![],
            campaigns: vec![],
            unacknowledged: Arc::default(),
            posted: BTreeSet::new(),
            has_messages: has_messages(seed),
            requests: vec![],
            steps: vec![],
        };
        (0..2 + simulation.scheduler.below(2)).for_each(|number| simulation.add_account(number));
        simulation.stores.check_runs();
        simulation
    }

    /// Adds an account with a number that it shares with the other accounts, and with campaigns to all its contacts.
    fn add_account(&mut self, number: usize) {
        let account = AccountId(uuid(100 + number));
        self.accounts.push(account);
        let contacts = 3 + self.scheduler.below(6);
        let campaigns = 2 + self.scheduler.below(2);
        let mut profile = StoredProfile::for_tests(ProfileId(uuid(200 + number)), START);
        profile.profile.messages_per_second = Some(i32::from(RATE));
        let profile_id = profile.profile.id;
        // So few messages are left that not every run may start.
        let left = i64::try_from(contacts * (1 + self.scheduler.below(4))).unwrap();
        let mut row = InMemoryAccount {
            profiles: BTreeMap::from([(profile_id, profile)]),
            test_sends: plan_limits(FREE_PLAN).unwrap().messages_per_month - left,
            ..InMemoryAccount::default()
        };
        for contact in 0..contacts {
            let recipient = Recipient {
                name: "Ana".into(),
                phone: format!("+55119{:08}", 100 * number + contact),
                user_id: None,
                email: None,
                attributes: Map::new(),
            };
            let opted_out = false;
            row.contacts
                .insert(ContactId(uuid(1 + contact)), InMemoryContact { recipient, opted_out });
        }
        let mut tables = self.stores.runs.tables();
        tables.accounts.insert(account, row);
        for campaign in 0..campaigns {
            let id = CampaignId(uuid(1000 + 10 * number + campaign));
            tables.add(draft(account, id));
            let row = tables.campaigns.get_mut(&id).unwrap();
            (row.template, row.profile_id) = (Some(approved_template("Oi!", &[])), Some(profile_id));
            self.campaigns.push((account, id));
        }
        let row = InMemoryBillingAccount {
            name: "Loja".into(),
            plan: FREE_PLAN.into(),
            has_endpoint: true,
            ..InMemoryBillingAccount::default()
        };
        self.stores.billing.tables().accounts.insert(account, row);
    }

    /// The number of resumed suspensions.
    pub(super) fn resumptions(&self) -> usize {
        self.executor.resumptions
    }

    /// Does 20 to 60 steps, then ends all failures, waits until no work is left, and checks the result.
    pub(super) fn run(&mut self) -> Result<(), String> {
        let outcome = self.run_steps().and_then(|()| self.quiesce());
        outcome.map_err(|violation| {
            let (steps, trace) = (self.steps.join("\n  "), self.scheduler.trace().join("\n  "));
            format!("{violation}\nSteps:\n  {steps}\nLast resumptions:\n  {trace}")
        })
    }

    fn run_steps(&mut self) -> Result<(), String> {
        for account in self.accounts.clone() {
            self.create_endpoint(account);
        }
        for _ in 0..20 + self.scheduler.below(41) {
            self.start_workers();
            let step = self.step()?;
            self.scheduler.note(&step);
            let at = (self.scheduler.now() - START).as_seconds_f64();
            self.steps.push(format!("{at:>12.3} s  {step}"));
            self.executor.start_spawned();
            for _ in 0..self.scheduler.below(60) {
                let end = self.scheduler.now() + Duration::seconds(20);
                self.resume_or_advance(end)?;
            }
        }
        Ok(())
    }

    /// Starts the workers that are missing on each server.
    pub(super) fn start_workers(&mut self) {
        let running = self.executor.tasks();
        for server in 1..=2 {
            let messengers = MESSENGERS.iter().filter(|_| self.has_messages);
            for name in WORKERS.iter().chain(messengers).copied() {
                if !running.iter().any(|task| (task.name, task.server) == (name, server)) {
                    self.use_cases.spawn_worker(name, server);
                }
            }
        }
        self.executor.start_spawned();
    }

    fn resume_or_advance(&mut self, end: OffsetDateTime) -> Result<(), String> {
        if !self.executor.resume_one() {
            self.executor.advance(end, || self.next_work());
        }
        if self.executor.resumptions > MAX_RESUMPTIONS {
            return Err("the tasks do not become idle".into());
        }
        match self.stores.ledger().first_violation() {
            Some(violation) => Err(violation.clone()),
            None => Ok(()),
        }
    }

    /// Lets the time pass.
    pub(super) fn let_time_pass(&mut self, time: Duration) -> Result<(), String> {
        let end = self.scheduler.now() + time;
        while self.scheduler.now() < end {
            self.resume_or_advance(end)?;
        }
        Ok(())
    }

    /// Does one random step, and describes it.
    fn step(&mut self) -> Result<String, String> {
        if self.has_messages && self.scheduler.percent(MESSAGE_STEPS) {
            return Ok(self.message_step());
        }
        Ok(match self.scheduler.below(100) {
            0..35 => {
                let (account, id) = self.scheduler.pick(&self.campaigns).unwrap();
                let first = self.campaign_command(account, id);
                // Another member may change the campaign at the same time.
                match self.scheduler.percent(30) {
                    true => format!("{first}, {}", self.campaign_command(account, id)),
                    false => first,
                }
            }
            35..50 => {
                let account = self.scheduler.pick(&self.accounts).unwrap();
                let first = self.billing_command(account);
                match self.scheduler.percent(20) {
                    true => format!("{first}, {}", self.billing_command(account)),
                    false => first,
                }
            }
            50..62 => self.payment_step(),
            62..70 => self.endpoint_command(),
            70..74 => self.contact_step(),
            74..88 => self.task_step(),
            88..94 => self.failure_rate_step(),
            _ => self.time_step()?,
        })
    }

    /// Spawns the request of a client.
    pub(super) fn command(&mut self, future: impl Future<Output = ()> + 'static) {
        let server = 1 + self.scheduler.below(2);
        self.executor.spawn("command", server, future.boxed_local());
    }

    fn campaign_command(&mut self, account: AccountId, id: CampaignId) -> String {
        let (use_cases, tenant) = (self.use_cases.clone(), tenant(account));
        let campaigns = use_cases.campaigns.clone();
        let name = match self.scheduler.below(12) {
            0..3 => {
                self.command(async move { drop(campaigns.enqueue_start(&tenant, id).await) });
                "send"
            }
            3..6 => {
                self.command(async move {
                    let dispatcher = use_cases.dispatcher();
                    let started = campaigns.start(&tenant, id, Some(dispatcher.worker.id)).await;
                    if let Ok(run) = started {
                        dispatch(&dispatcher, run).await;
                    }
                });
                "execute"
            }
            6 => {
                self.command(async move { drop(campaigns.pause(&tenant, id).await) });
                "pause"
            }
            7..9 => {
                self.command(async move { drop(campaigns.resume(&tenant, id).await) });
                "resume"
            }
            9 => {
                self.command(async move { drop(campaigns.cancel(&tenant, id).await) });
                "cancel"
            }
            _ => {
                let request = RetryRequest::default();
                self.command(async move { drop(campaigns.retry_failed(&tenant, id, request).await) });
                "retry"
            }
        };
        format!("{name} campaign {id}")
    }

    /// Resumes a paused run, or cancels it if it may not resume.
    pub(super) fn resume_or_cancel(&mut self, account: AccountId, id: CampaignId) {
        let (campaigns, tenant) = (self.use_cases.campaigns.clone(), tenant(account));
        self.command(async move {
            if campaigns.resume(&tenant, id).await.is_err() {
                drop(campaigns.cancel(&tenant, id).await);
            }
        });
    }

    fn billing_command(&mut self, account: AccountId) -> String {
        let (billing, tenant) = (self.use_cases.billing.clone(), tenant(account));
        let plan = self.scheduler.pick(&["starter", "growth"]).unwrap();
        let name = match self.scheduler.below(6) {
            0..3 => {
                let billing_type = self.scheduler.pick(&["PIX", "BOLETO", "CREDIT_CARD"]).unwrap();
                let input = SubscribeInput::for_tests(plan, billing_type);
                self.command(async move { drop(billing.subscribe(&tenant, input).await) });
                "subscribe"
            }
            3 => {
                let cycle = self.scheduler.pick(&["MONTHLY", "YEARLY"]).unwrap();
                let input = PlanChangeInput {
                    plan: Some(plan.to_owned()),
                    cycle: Some(cycle.to_owned()),
                };
                self.command(async move { drop(billing.change(&tenant, &input).await) });
                "change plan"
            }
            _ => {
                self.command(async move { drop(billing.cancel(&tenant).await) });
                "cancel subscription"
            }
        };
        format!("{name} of account {account}")
    }

    /// The payer pays or is late, the gateway creates a payment of the next period, or it ends a subscription.
    fn payment_step(&mut self) -> String {
        use PaymentStatus::{Confirmed, Overdue, Pending, Received};
        let mut state = self.gateway.state();
        let live = state.subscriptions.iter().filter(|(_, row)| !row.deleted);
        let live: Vec<String> = live.map(|(_, row)| row.id.clone()).collect();
        let Some(subject) = self.scheduler.pick(&live) else {
            return "no payment".into();
        };
        let count = state.payments.len();
        let payments = state.payments.iter_mut();
        let mut payments: Vec<&mut GatewayPayment> = payments
            .filter(|row| row.subscription.as_ref() == Some(&subject))
            .collect();
        let at = self.scheduler.below(payments.len());
        let payment = &mut *payments[at];
        match (self.scheduler.below(8), &payment.status) {
            (0, _) => {
                let next = GatewayPayment {
                    id: format!("{}_{count}", payment.id),
                    status: Pending,
                    ..payment.clone()
                };
                state.payments.push(next);
                format!("the gateway adds a payment to {subject}")
            }
            (1, Pending) => {
                payment.status = Overdue;
                let payment = payment.clone();
                drop(state);
                self.post_payment(&payment);
                format!("{} is overdue", payment.id)
            }
            (1, _) => {
                let mut rows = state.subscriptions.iter_mut();
                rows.find(|(_, row)| row.id == subject).unwrap().1.deleted = true;
                drop(state);
                self.post(&subject, GatewayEventKind::Inactivated, None);
                format!("the gateway ends {subject}")
            }
            (_, status) => {
                payment.status = match status {
                    Pending if self.scheduler.percent(50) => Confirmed,
                    _ => Received,
                };
                let payment = payment.clone();
                drop(state);
                self.post_payment(&payment);
                format!("{} is {}", payment.id, payment.status.as_str())
            }
        }
    }

    /// Posts the event of a payment's status.
    fn post_payment(&mut self, payment: &GatewayPayment) {
        let kind = match payment.status {
            PaymentStatus::Confirmed => GatewayEventKind::Confirmed,
            PaymentStatus::Overdue => GatewayEventKind::Overdue,
            PaymentStatus::Received | PaymentStatus::ReceivedInCash => GatewayEventKind::Received,
            PaymentStatus::Pending | PaymentStatus::Other(_) => return,
        };
        let subject = payment.subscription.clone().unwrap();
        self.post(&subject, kind, Some(payment));
    }

    /// Creates an event of the payment gateway, and posts it several times.
    fn post(&mut self, subject: &str, kind: GatewayEventKind, payment: Option<&GatewayPayment>) {
        let id = payment.map_or(subject, |payment| payment.id.as_str());
        let key = format!("{id} {}", kind.as_str());
        if !self.posted.insert(key.clone()) {
            return;
        }
        let snapshot = |payment: &GatewayPayment| PaymentSnapshot {
            id: payment.id.clone(),
            billing_type: Some(payment.billing_type.clone()),
            value: payment.value,
            status: Some(payment.status.clone()),
            ..PaymentSnapshot::default()
        };
        let event = GatewayEvent {
            key: key.clone(),
            event: kind.as_str().to_owned(),
            subject: Some(subject.to_owned()),
            data: GatewayEventData {
                kind,
                payment: payment.map(snapshot),
                created_at: self.scheduler.now().replace_nanosecond(0).ok(),
            },
        };
        self.unacknowledged.lock().unwrap().insert(key, event.clone());
        (0..1 + self.scheduler.below(4)).for_each(|_| self.deliver(event.clone()));
    }

    /// Delivers an event of the payment gateway once.
    fn deliver(&mut self, event: GatewayEvent) {
        let (events, unacknowledged) = (self.use_cases.gateway_events.clone(), self.unacknowledged.clone());
        let (scheduler, delay) = (self.scheduler.clone(), self.scheduler.below(20));
        self.command(async move {
            let delay = Duration::seconds(i64::try_from(delay).unwrap());
            scheduler.sleep_for(delay, Wait::Busy).await;
            let received = events.receive(&event, scheduler.now()).await;
            if let Ok(stored) = received {
                unacknowledged.lock().unwrap().remove(&event.key);
                let subject = event.subject.clone().unwrap_or_default();
                drop(events.apply_received(stored.as_ref(), &subject).await);
            }
        });
    }

    /// Posts the events that the payment gateway owes.
    pub(super) fn post_again(&mut self) {
        let payments = self.gateway.state().payments.clone();
        payments.iter().for_each(|payment| self.post_payment(payment));
        let events: Vec<GatewayEvent> = self.unacknowledged.lock().unwrap().values().cloned().collect();
        events.into_iter().for_each(|event| self.deliver(event));
    }
}
