//! The in-memory stores of a simulation behind their ports. They share a clock and an outbox: a call suspends its task,
//! acts at once, moves the events that it appended to the outbox, and suspends the task again.

use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;

use super::bugs::SimulationBug;
use super::executor::Scheduler;
use super::ledger::Ledger;
use crate::billing::in_memory::{BillingTables, InMemoryBilling, InMemoryBillingAccount};
use crate::billing::{PlanEntitlement, Subscription, SubscriptionState};
use crate::campaigns::in_memory::{InMemoryRuns, RunTables};
use crate::messaging::{ErrorClass, ErrorCodes};
use crate::shared::{AccountId, Clock, Event, StoreError, WebhookKind};
use crate::webhooks::in_memory::{InMemoryOutboxEvent, InMemoryWebhooks, WebhookTables};

/// The longest time of a store's call, before and after it acts, in milliseconds.
const STORE_LATENCY: usize = 4;

/// The error codes that WhatsApp returns in a simulation.
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

pub(super) struct Stores {
    pub(super) scheduler: Scheduler,
    pub(super) runs: InMemoryRuns,
    pub(super) billing: InMemoryBilling,
    pub(super) webhooks: Arc<InMemoryWebhooks>,
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
        Self {
            scheduler,
            runs: InMemoryRuns::new(runs),
            billing: InMemoryBilling::new(BillingTables::new(now)),
            webhooks: Arc::new(InMemoryWebhooks::new(WebhookTables::new(now))),
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

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    /// Sets the clock of every store.
    pub(super) fn set_clocks(&self) {
        let now = self.scheduler.now();
        self.runs.tables().now = now;
        self.billing.tables().now = now;
        self.webhooks.tables().now = now;
    }

    /// Runs a call that writes runs. `account`: the account of the events that it appends.
    pub(super) async fn write_runs<T: Send>(
        &self,
        label: &'static str,
        account: AccountId,
        action: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.read(label, async {
            let output = action.await;
            self.commit_runs(Some(account));
            output
        })
        .await
    }

    /// Runs a call that writes subscriptions or gateway events.
    pub(super) async fn write_billing<T: Send>(
        &self,
        label: &'static str,
        action: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.read(label, async {
            let output = action.await;
            self.commit_billing();
            output
        })
        .await
    }

    /// Runs a call that writes endpoints, deliveries or the outbox.
    pub(super) async fn write_webhooks<T: Send>(
        &self,
        label: &'static str,
        action: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.read(label, async {
            let output = action.await;
            self.commit_webhooks();
            output
        })
        .await
    }

    /// Runs a call of a store that only reads.
    pub(super) async fn read<T: Send>(
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

    /// Moves the events of runs to the outbox, and checks the change.
    pub(super) fn commit_runs(&self, account: Option<AccountId>) {
        let events = std::mem::take(&mut self.runs.tables().events);
        match account {
            Some(account) => self.append(account, &events),
            None if events.is_empty() => {}
            None => self
                .ledger()
                .violation(format!("events without an account: {events:?}")),
        }
        self.ledger().check_runs(&self.runs.tables(), &self.webhooks.tables());
    }

    fn commit_billing(&self) {
        for (account, row) in &mut self.billing.tables().accounts {
            self.append(*account, &std::mem::take(&mut row.events));
        }
        self.ledger()
            .check_billing(&self.billing.tables(), &self.webhooks.tables());
    }

    pub(super) fn commit_webhooks(&self) {
        self.ledger().check_deliveries(&self.webhooks.tables());
    }

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

    /// One transaction of a relay. False: no event waited.
    pub(super) async fn relay(&self) -> Result<bool, StoreError> {
        let is_webhook = |row: &InMemoryOutboxEvent| matches!(row.event, Event::Webhook(_));
        let waits = self.webhooks.tables().outbox.iter().any(is_webhook);
        if self.has_bug(SimulationBug::RelayDeletesFirst) && waits {
            let delete = async {
                Ok(self
                    .webhooks
                    .tables()
                    .outbox
                    .extract_if(.., |row| is_webhook(row))
                    .collect())
            };
            let deleted: Vec<InMemoryOutboxEvent> = self.write_webhooks("relay: delete", delete).await?;
            self.write_webhooks("relay: write", async {
                self.webhooks.tables().outbox.extend(deleted);
                self.relay_now();
                Ok(())
            })
            .await?;
            return Ok(true);
        }
        if self.has_bug(SimulationBug::RelayWritesFirst) && waits {
            let write = async {
                let rows = self.webhooks.tables().outbox.clone();
                self.relay_now();
                let rows: Vec<_> = rows.into_iter().filter(is_webhook).collect();
                let count = rows.len();
                self.webhooks.tables().outbox.splice(..0, rows);
                Ok(count)
            };
            let written = self.write_webhooks("relay: write", write).await?;
            self.write_webhooks("relay: delete", async {
                let mut left = written;
                let mut is_written = |row: &mut InMemoryOutboxEvent| {
                    let deletes = is_webhook(row) && left > 0;
                    left -= usize::from(deletes);
                    deletes
                };
                self.webhooks
                    .tables()
                    .outbox
                    .extract_if(.., &mut is_written)
                    .for_each(drop);
                Ok(())
            })
            .await?;
            return Ok(true);
        }
        let relay = async {
            let waits = !self.webhooks.tables().outbox.is_empty();
            if waits {
                self.relay_now();
                self.commit_webhooks();
            }
            Ok(waits)
        };
        self.read("relay", relay).await
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
