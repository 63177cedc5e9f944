//! The in-memory stores of a simulation behind their ports. They share a clock and an outbox. A call suspends its task and
//! acts at once; then it moves the events that it appended to the outbox, and suspends the task again. The other modules
//! implement the ports for [`Stores`], with the planted bugs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use time::OffsetDateTime;

use super::bugs::SimulationBug;
use super::executor::Scheduler;
use super::ledger::Ledger;
use crate::billing::in_memory::{BillingTables, InMemoryBilling, InMemoryBillingAccount};
use crate::billing::{PlanEntitlement, Subscription, SubscriptionState};
use crate::campaigns::in_memory::{InMemoryRuns, RunTables};
use crate::direct_messages::in_memory::MessageTables;
use crate::direct_messages::month_of;
use crate::messaging::{ErrorClass, ErrorCodes};
use crate::shared::{AccountId, Clock, ContactId, Event, StoreError, WebhookKind};
use crate::webhooks::in_memory::{InMemoryOutboxEvent, InMemoryWebhooks, WebhookTables};

/// The longest suspension before a call acts, and after it, in milliseconds.
const STORE_LATENCY: usize = 4;

/// The error code of WhatsApp for a contact that has opted out.
pub(super) const OPTED_OUT: i64 = 131_050;

const CODES: ErrorCodes = ErrorCodes {
    codes: &[(ErrorClass::OptedOut, &[OPTED_OUT])],
    ranges: &[],
};

/// How often other systems fail, in percent of their calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FailureRates {
    pub(super) store: usize,
    pub(super) whatsapp: usize,
    pub(super) payments: usize,
    pub(super) receivers: usize,
}

/// What a call writes.
#[derive(Clone, Copy)]
pub(super) enum Written {
    /// Campaigns, their runs and sends. The events belong to this account.
    Runs(AccountId),
    /// Subscriptions and gateway events.
    Billing,
    /// Endpoints, deliveries and the outbox.
    Webhooks,
    /// Direct messages and their queues.
    Messages,
}

pub(super) struct Stores {
    pub(super) scheduler: Scheduler,
    pub(super) runs: InMemoryRuns,
    pub(super) billing: InMemoryBilling,
    pub(super) webhooks: Arc<InMemoryWebhooks>,
    messages: Mutex<MessageTables>,
    /// When each contact has last written.
    pub(super) inbound: Mutex<BTreeMap<(AccountId, ContactId), OffsetDateTime>>,
    pub(super) bug: Option<SimulationBug>,
    pub(super) failure_rates: Mutex<FailureRates>,
    pub(super) ledger: Mutex<Ledger>,
}

impl Stores {
    pub(super) fn new(scheduler: Scheduler, bug: Option<SimulationBug>) -> Self {
        let now = scheduler.now();
        let mut runs = RunTables::new(now, CODES);
        if let Some(SimulationBug::Runs(bug)) = bug {
            runs.bug = Some(bug);
        }
        let mut messages = MessageTables::new(now);
        if let Some(SimulationBug::Messages(bug)) = bug {
            messages.bug = Some(bug);
        }
        Self {
            scheduler,
            runs: InMemoryRuns::new(runs),
            billing: InMemoryBilling::new(BillingTables::new(now)),
            webhooks: Arc::new(InMemoryWebhooks::new(WebhookTables::new(now))),
            messages: Mutex::new(messages),
            inbound: Mutex::default(),
            bug,
            failure_rates: Mutex::default(),
            ledger: Mutex::default(),
        }
    }

    pub(super) fn has_bug(&self, bug: SimulationBug) -> bool {
        self.bug == Some(bug)
    }

    pub(super) fn failure_rates(&self) -> FailureRates {
        *self.failure_rates.lock().unwrap()
    }

    /// Lock it before the tables of runs.
    pub(super) fn messages(&self) -> MutexGuard<'_, MessageTables> {
        self.messages.lock().unwrap()
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    /// Sets the clock of every store.
    pub(super) fn set_clocks(&self) {
        let now = self.scheduler.now();
        let mut messages = self.messages();
        let mut runs = self.runs.tables();
        (messages.now, runs.now) = (now, now);
        let month = month_of(now);
        for (account, row) in &mut runs.accounts {
            row.direct_messages = messages.used(*account, month);
        }
        self.billing.tables().now = now;
        self.webhooks.tables().now = now;
    }

    /// Runs a call that writes, and commits it.
    pub(super) async fn write<T: Send>(
        &self,
        label: &'static str,
        written: Written,
        action: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.call(label, async {
            let output = action.await;
            self.commit(written);
            output
        })
        .await
    }

    /// Runs a call of a store. It may fail: half of the failures come before the call acts, the others after it.
    pub(super) async fn call<T: Send>(
        &self,
        label: &'static str,
        action: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.scheduler.latency(label, STORE_LATENCY).await;
        let fails = self.scheduler.percent(self.failure_rates().store);
        let fails_before = fails && self.scheduler.percent(50);
        let unavailable = || Err(StoreError::Unavailable("injected".into()));
        if fails_before {
            return unavailable();
        }
        self.set_clocks();
        let output = action.await;
        self.scheduler.latency(label, STORE_LATENCY).await;
        match fails {
            true => output.and_then(|_| unavailable()),
            false => output,
        }
    }

    /// Ends a call that has written: moves its events to the outbox, and checks the change.
    pub(super) fn commit(&self, written: Written) {
        match written {
            Written::Runs(account) => {
                let events = std::mem::take(&mut self.runs.tables().events);
                self.append(account, &events);
                self.check_runs();
            }
            Written::Billing => {
                for (account, row) in &mut self.billing.tables().accounts {
                    self.append(*account, &std::mem::take(&mut row.events));
                }
                self.ledger()
                    .check_billing(&self.billing.tables(), &self.webhooks.tables());
            }
            Written::Messages => {
                let events = std::mem::take(&mut self.messages().events);
                for (account, event) in events {
                    self.append(account, &[event]);
                }
                self.ledger().check_messages(&self.messages(), &self.webhooks.tables());
            }
            Written::Webhooks => self.ledger().check_deliveries(&self.webhooks.tables()),
        }
    }

    /// Checks runs after a change that appends no event.
    pub(super) fn check_runs(&self) {
        let runs = self.runs.tables();
        if !runs.events.is_empty() {
            let violation = format!("events without an account: {:?}", runs.events);
            self.ledger().violation(violation);
        }
        self.ledger().check_runs(&runs, &self.webhooks.tables());
    }

    /// Appends events of an account to the outbox.
    fn append(&self, account: AccountId, events: &[Event]) {
        let mut webhooks = self.webhooks.tables();
        for event in events {
            let is_end = matches!(event, Event::Webhook(batch) if batch.kind == WebhookKind::CampaignFinished);
            let times = match self.bug {
                Some(SimulationBug::EventLost) if is_end => 0,
                Some(SimulationBug::EventAppendedTwice) if is_end => 2,
                _ => 1,
            };
            (0..times).for_each(|_| webhooks.append(account, std::slice::from_ref(event)));
        }
    }

    /// Relays the outbox in one transaction. False: no event waited.
    pub(super) async fn relay(&self) -> Result<bool, StoreError> {
        let has_webhook_events = self.webhooks.tables().outbox.iter().any(is_webhook_event);
        match self.bug {
            Some(SimulationBug::RelayDeletesFirst) if has_webhook_events => self.relay_deleting_first().await,
            Some(SimulationBug::RelayWritesFirst) if has_webhook_events => self.relay_writing_first().await,
            _ => {
                let relay = async {
                    let has_events = !self.webhooks.tables().outbox.is_empty();
                    if has_events {
                        self.relay_now();
                        self.commit(Written::Webhooks);
                    }
                    Ok(has_events)
                };
                self.call("relay", relay).await
            }
        }
    }

    /// The bug [`SimulationBug::RelayDeletesFirst`].
    async fn relay_deleting_first(&self) -> Result<bool, StoreError> {
        let delete = async {
            let mut webhooks = self.webhooks.tables();
            Ok(webhooks.outbox.extract_if(.., |row| is_webhook_event(row)).collect())
        };
        let deleted: Vec<InMemoryOutboxEvent> = self.write("relay: delete", Written::Webhooks, delete).await?;
        self.write("relay: write", Written::Webhooks, async {
            self.webhooks.tables().outbox.extend(deleted);
            self.relay_now();
            Ok(true)
        })
        .await
    }

    /// The bug [`SimulationBug::RelayWritesFirst`].
    async fn relay_writing_first(&self) -> Result<bool, StoreError> {
        let write = async {
            let rows = self.webhooks.tables().outbox.clone();
            self.relay_now();
            let rows: Vec<_> = rows.into_iter().filter(is_webhook_event).collect();
            let count = rows.len();
            self.webhooks.tables().outbox.splice(..0, rows);
            Ok(count)
        };
        let written = self.write("relay: write", Written::Webhooks, write).await?;
        self.write("relay: delete", Written::Webhooks, async {
            let mut left = written;
            let is_written = |row: &mut InMemoryOutboxEvent| {
                let deletes = is_webhook_event(row) && left > 0;
                left -= usize::from(deletes);
                deletes
            };
            let mut webhooks = self.webhooks.tables();
            webhooks.outbox.extract_if(.., is_written).for_each(drop);
            Ok(true)
        })
        .await
    }

    /// Moves every event of the outbox: webhook events to deliveries, the others to the ledger.
    fn relay_now(&self) {
        let mut webhooks = self.webhooks.tables();
        webhooks.relay();
        let others: Vec<InMemoryOutboxEvent> = webhooks.outbox.drain(..).collect();
        let mut ledger = self.ledger();
        ledger.events_relayed(&mut webhooks, self.has_bug(SimulationBug::RelayIgnoresSubscription));
        for row in others {
            if let Event::Notification(notification) = &row.event
                && let Some(Value::String(payment)) = notification.data.get("payment_id")
            {
                *ledger
                    .notifications
                    .entry(format!("{}: {payment}", notification.title))
                    .or_default() += 1;
            }
        }
    }

    /// The account's plan, as billing stores it.
    pub(super) fn entitlement(&self, account: AccountId) -> PlanEntitlement {
        entitlement_of(&self.billing.tables().accounts[&account])
    }
}

fn is_webhook_event(row: &InMemoryOutboxEvent) -> bool {
    matches!(row.event, Event::Webhook(_))
}

pub(super) fn entitlement_of(account: &InMemoryBillingAccount) -> PlanEntitlement {
    let subscriptions = account.subscriptions.values().filter(|row| !row.is_attempt());
    let state = |row: &Subscription| SubscriptionState {
        plan: row.plan.clone(),
        status: row.status,
        current_period_end: row.current_period_end,
    };
    PlanEntitlement {
        plan: account.plan.clone(),
        granted: account.granted_plan.clone(),
        subscriptions: subscriptions.map(state).collect(),
    }
}
