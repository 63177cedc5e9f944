//! The end of a simulation: nothing fails any more, the workers finish their work, and the result is checked.

use std::collections::BTreeMap;

use time::{Duration, OffsetDateTime};

use super::ledger::event_key;
use super::steps::Simulation;
use super::stores::{FailureRates, entitlement_of};
use super::workers::UNKNOWN_TTL;
use crate::billing::{FREE_PLAN, PaymentStatus, Subscription, SubscriptionStatus, remaining_plan};
use crate::campaigns::CampaignStatus;
use crate::direct_messages::DirectStatus;
use crate::shared::{AccountId, CampaignId, Clock};
use crate::webhooks::in_memory::InMemoryDeliveryState;

/// The most periods of six hours until no work is left: deliveries are retried for up to 28 hours, and abandoned
/// attempts are looked up for a day.
const MAX_PERIODS: usize = 16;

/// The fewest periods: until each unpaid subscription was checked.
const MIN_PERIODS: usize = 6;

/// The most attempts of a delivery.
const MAX_ATTEMPTS: u32 = 8;

impl Simulation {
    /// Ends all failures and stalls, waits until no work is left, and checks the result.
    pub(super) fn quiesce(&mut self) -> Result<(), String> {
        *self.stores.failure_rates.lock().unwrap() = FailureRates::default();
        self.executor.end_stalls();
        self.stores.webhooks.tables().suspended_accounts.clear();
        self.stores
            .runs
            .tables()
            .accounts
            .values_mut()
            .for_each(|row| row.suspended = false);
        for period in 1..=MAX_PERIODS {
            self.start_workers();
            self.post_again();
            for (account, id) in self.campaigns.clone() {
                self.resume_or_cancel_if_paused(account, id);
            }
            self.executor.start_spawned();
            self.let_time_pass(Duration::hours(6))?;
            if period >= MIN_PERIODS && self.open_work().is_none() {
                return self.check_result();
            }
        }
        Err(format!("work is left: {}", self.open_work().unwrap_or_default()))
    }

    fn resume_or_cancel_if_paused(&mut self, account: AccountId, id: CampaignId) {
        let is_paused = self.stores.runs.tables().campaigns[&id].campaign.paused_at.is_some();
        if is_paused {
            self.resume_or_cancel(account, id);
        }
    }

    /// When a store has work for idle workers next.
    pub(super) fn next_work(&self) -> Option<OffsetDateTime> {
        let (runs, webhooks, billing) = (
            self.stores.runs.tables(),
            self.stores.webhooks.tables(),
            self.stores.billing.tables(),
        );
        let leases = runs.campaigns.values().filter_map(|row| row.queue_entry.as_ref());
        let leases = leases.map(|entry| entry.leased_until + Duration::SECOND);
        let unknown = runs.sends.values().filter(|send| send.is_open());
        let unknown = unknown.filter_map(|send| Some(send.unknown_at? + UNKNOWN_TTL));
        let deliveries = webhooks.deliveries.values();
        let deliveries = deliveries.filter(|row| row.state == InMemoryDeliveryState::Waiting);
        let deliveries = deliveries.map(|row| row.next_attempt_at);
        let events = billing.waiting_events().filter_map(|event| event.due_at);
        let subscriptions = billing.subscriptions().flat_map(|row| {
            let lapse = row.current_period_end.filter(|_| row.lapsed_at.is_none());
            [
                row.pending.as_ref().map(|pending| pending.check_at),
                row.check_at,
                lapse,
            ]
        });
        let now = self.scheduler.now();
        let messages = self.stores.messages();
        let queues = messages.queues.values().filter_map(|queue| match queue.worker {
            Some(_) => Some(queue.leased_until + Duration::SECOND),
            None => queue.due_at,
        });
        let open = messages.messages.values().filter(|row| row.is_open());
        let open = open.filter_map(|row| Some(row.message.started_at? + UNKNOWN_TTL));
        let unknown = unknown.chain(queues).chain(open);
        let times = leases.chain(unknown).chain(deliveries).chain(events);
        times.chain(subscriptions.flatten()).filter(|at| *at > now).min()
    }

    /// Work that is not done.
    fn open_work(&self) -> Option<String> {
        let (runs, webhooks, billing) = (
            self.stores.runs.tables(),
            self.stores.webhooks.tables(),
            self.stores.billing.tables(),
        );
        let run = runs
            .campaigns
            .values()
            .find(|row| row.queue_entry.is_some() || row.campaign.status == CampaignStatus::Sending)
            .map(|row| {
                format!(
                    "campaign {} is {}, {:?}",
                    row.campaign.id, row.campaign.status, row.queue_entry
                )
            });
        let unknown = runs
            .sends
            .values()
            .find(|send| send.is_open())
            .map(|send| format!("{send:?}"));
        let outbox = webhooks.outbox.first().map(|row| format!("{row:?}"));
        let mut deliveries = webhooks.deliveries.iter();
        let delivery = deliveries.find(|(_, row)| row.leased || row.state == InMemoryDeliveryState::Waiting);
        let delivery = delivery.map(|delivery| format!("{delivery:?}"));
        let event = billing.waiting_events().next().map(|event| format!("{event:?}"));
        let intent = billing.subscriptions().find(|row| row.pending.is_some());
        let intent = intent.map(|row| format!("{row:?}"));
        let messages = self.stores.messages();
        let message = messages
            .messages
            .values()
            .find(|row| row.message.status == DirectStatus::Pending);
        let message = message.map(|row| format!("{row:?}"));
        let queue = messages.queues.iter().next().map(|queue| format!("{queue:?}"));
        let unknown = unknown.or(message).or(queue);
        run.or(unknown).or(outbox).or(delivery).or(event).or(intent)
    }

    fn check_result(&self) -> Result<(), String> {
        self.check_campaigns()?;
        self.stores.ledger().check_ends()?;
        self.check_events()?;
        self.check_subscriptions()?;
        self.check_payments()
    }

    fn check_campaigns(&self) -> Result<(), String> {
        let tables = self.stores.runs.tables();
        for (id, row) in &tables.campaigns {
            let is_cancelled = row.campaign.status == CampaignStatus::Cancelled;
            if let Some((_, send)) = tables.sends_of(*id).find(|(_, send)| send.waits() && !is_cancelled) {
                let status = row.campaign.status;
                return Err(format!("campaign {id} is {status}, and a send was not tried: {send:?}"));
            }
            let counts = row.counts.unwrap_or_default();
            if row.campaign.status == CampaignStatus::Completed && counts.sent + counts.failed + counts.accepted() == 0
            {
                return Err(format!("campaign {id} is completed with {counts:?}"));
            }
        }
        match tables.accounts.iter().find(|(_, row)| row.reserved != 0) {
            Some((id, row)) => Err(format!("account {id} has {} reservations", row.reserved)),
            None => Ok(()),
        }
    }

    fn check_events(&self) -> Result<(), String> {
        let (tables, ledger) = (self.stores.webhooks.tables(), self.stores.ledger());
        let stored = tables.events.values().filter(|row| row.seq.is_some());
        let stored = stored.map(|row| event_key(row.event.account_id, &row.event.kind, &row.event.data));
        let mut differences: BTreeMap<String, i32> = BTreeMap::new();
        stored.for_each(|key| *differences.entry(key).or_default() += 1);
        let expected = ledger.expected_events.iter().cloned();
        expected.for_each(|key| *differences.entry(key).or_default() -= 1);
        if let Some((key, difference)) = differences.iter().find(|(_, difference)| **difference != 0) {
            return Err(format!("event {key}: {difference} more than expected"));
        }
        let mut deliveries = tables.deliveries.iter();
        match deliveries.find(|(_, row)| row.attempts > MAX_ATTEMPTS) {
            Some((key, row)) => Err(format!("{key:?} had {} attempts", row.attempts)),
            None => Ok(()),
        }
    }

    fn check_subscriptions(&self) -> Result<(), String> {
        let (tables, state) = (self.stores.billing.tables(), self.gateway.state());
        let now = self.scheduler.now();
        for (id, account) in &tables.accounts {
            let entitlement = entitlement_of(account);
            let live = account.subscriptions.values().find(|row| row.status.is_live());
            let plan = match live {
                Some(live) => live.plan.as_str(),
                None => remaining_plan(&entitlement.subscriptions, now).unwrap_or(FREE_PLAN),
            };
            if account.plan != plan {
                let subscriptions = &account.subscriptions;
                return Err(format!(
                    "account {id} has the plan {}, expected {plan}: {subscriptions:?}",
                    account.plan
                ));
            }
        }
        for (reference, remote) in &state.subscriptions {
            let local = tables.subscriptions().find(|row| row.id == *reference);
            if remote.deleted {
                // Only an event can make a subscription live that the gateway has deleted.
                let has_event = |row: &Subscription| row.last_event.is_some();
                if let Some(row) = local.filter(|row| row.status.is_live() && !has_event(row)) {
                    return Err(format!("{remote:?} is deleted, and {row:?} is live"));
                }
                continue;
            }
            let is_live =
                |row: &&Subscription| row.status.is_live() && row.gateway_subscription_id.as_ref() == Some(&remote.id);
            let Some(local) = local.filter(is_live) else {
                return Err(format!("{} is charged, but the subscription is {local:?}", remote.id));
            };
            if (remote.value, remote.cycle) != (Some(local.value), Some(local.cycle)) {
                return Err(format!("{remote:?} differs from {local:?}"));
            }
        }
        Ok(())
    }

    fn check_payments(&self) -> Result<(), String> {
        let (tables, state, ledger) = (self.stores.billing.tables(), self.gateway.state(), self.stores.ledger());
        let paid = |status: &PaymentStatus| matches!(status, PaymentStatus::Confirmed | PaymentStatus::Received);
        for row in tables.subscriptions() {
            let account = &tables.accounts[&row.account_id];
            let stored = || {
                account
                    .payments
                    .iter()
                    .filter(|payment| payment.subscription_id == row.id)
            };
            let periods = ledger.periods.get(&row.id).copied().unwrap_or_default();
            let credited = stored().filter(|payment| payment.credited).count() + usize::from(row.period_granted);
            if periods != credited {
                return Err(format!(
                    "subscription {} has {periods} periods and {credited} payments",
                    row.id
                ));
            }
            let remote = state
                .payments
                .iter()
                .filter(|payment| payment.subscription == row.gateway_subscription_id);
            let remote = remote.filter(|payment| payment.subscription.is_some() && paid(&payment.status));
            for payment in remote.filter(|_| row.status == SubscriptionStatus::Active) {
                let mut rows = stored().filter(|stored| stored.gateway_payment_id == payment.id);
                if !rows.next().is_some_and(|stored| stored.credited) || rows.next().is_some() {
                    return Err(format!("{} of {} is not credited once", payment.id, row.id));
                }
            }
        }
        match ledger.notifications.iter().find(|(_, times)| **times > 2) {
            Some((notification, times)) => Err(format!("{times} notifications: {notification}")),
            None => Ok(()),
        }
    }
}
