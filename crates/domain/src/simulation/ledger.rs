//! What happened in a simulation, and the checks of every change. The first violation ends the simulation.

use std::collections::{BTreeMap, BTreeSet};

use time::{Duration, OffsetDateTime};
use uuid::Uuid;

use super::executor::TaskId;
use super::message_ledger::MessageHistory;
use super::whatsapp::RATE;
use crate::billing::PublishedSubscription;
use crate::billing::in_memory::BillingTables;
use crate::campaigns::in_memory::{RunTables, SendKey};
use crate::campaigns::{CampaignStatus, PAIR_INTERVAL, QueuedRun, StartedSends};
use crate::messaging::SendStatus;
use crate::shared::{AccountId, CampaignId, SendId, SubscriptionId, WebhookEventId, WebhookId, WebhookKind, timestamp};
use crate::webhooks::in_memory::{InMemoryDelivery, InMemoryDeliveryState, InMemoryEndpoint, WebhookTables};
use crate::webhooks::{Attempt, DeliveryKey, DeliveryState, Direction};

/// The longest time between the start of a send and its request, if no task is stalled: the lead of the start and the
/// latency.
const MAX_START_DELAY: Duration = Duration::milliseconds(150);

/// A request to WhatsApp that sends a message.
pub(super) struct SendRequest<'a> {
    pub(super) run: QueuedRun,
    pub(super) send: SendId,
    pub(super) to: &'a str,
    pub(super) number: &'a str,
    pub(super) at: OffsetDateTime,
    /// Whether a stall of the task made it late.
    pub(super) is_late: bool,
    pub(super) task: TaskId,
}

#[derive(Default)]
pub(super) struct Ledger {
    violations: Vec<String>,
    /// The status of each campaign, and whether a prepared run of it is in the queue.
    campaigns: BTreeMap<CampaignId, (CampaignStatus, bool)>,
    sends: BTreeMap<SendKey, SendStatus>,
    /// The messages of each send that may have arrived since it was last reset by a retry.
    possible_sends: BTreeMap<SendId, u32>,
    /// The started sends whose contact had opted out.
    unreachable: BTreeSet<SendId>,
    /// The sends of each task whose response has arrived since its last request for them.
    pub(super) responses: BTreeMap<TaskId, BTreeSet<SendId>>,
    /// The times of each number's requests that were not late.
    request_times: BTreeMap<String, Vec<OffsetDateTime>>,
    /// The time and the run of the last message of each account and number to each contact.
    pairs: BTreeMap<(AccountId, String, String), (OffsetDateTime, QueuedRun)>,
    subscriptions: BTreeMap<SubscriptionId, PublishedSubscription>,
    /// The number of periods that each subscription gained.
    pub(super) periods: BTreeMap<SubscriptionId, usize>,
    deliveries: BTreeMap<DeliveryKey, InMemoryDelivery>,
    pub(super) successes: BTreeSet<DeliveryKey>,
    events: BTreeSet<WebhookEventId>,
    /// The webhook events that the changes must have caused.
    pub(super) expected_events: Vec<String>,
    /// The notifications about each payment, by title.
    pub(super) notifications: BTreeMap<String, usize>,
    pub(super) messages: MessageHistory,
}

/// The state before sends are started.
pub(super) struct StartFacts {
    /// Whether the run is neither paused nor ended, and this worker holds it.
    may_start: bool,
    waiting: BTreeSet<SendId>,
}

impl StartFacts {
    pub(super) fn read(tables: &RunTables, run: QueuedRun, worker: Uuid) -> Self {
        let id = run.campaign_id;
        let waiting = tables.sends_of(id).filter(|(_, send)| send.waits());
        Self {
            may_start: tables.goes_on(id) && tables.holder(id) == Some(worker),
            waiting: waiting.map(|(_, send)| send.id).collect(),
        }
    }
}

/// The key by which expected and stored events are compared.
pub(super) fn event_key(account: AccountId, kind: &str, data: &serde_json::Value) -> String {
    let fields = ["id", "status", "plan", "cycle", "value", "current_period_end"];
    let is_subscription = kind == WebhookKind::SubscriptionChanged.as_str();
    let fields = fields.iter().take(if is_subscription { 6 } else { 1 });
    let values: Vec<String> = fields.map(|field| data[field].to_string()).collect();
    format!("{account} {kind} {}", values.join(" "))
}

pub(super) fn subscribes(row: &InMemoryEndpoint, account: AccountId, kind: &str) -> bool {
    let webhook = &row.stored.webhook;
    let has_kind = webhook.events.iter().any(|event| event == kind || event == "*");
    row.account_id == account && webhook.direction == Direction::Outbound && has_kind
}

impl Ledger {
    pub(super) fn violation(&mut self, violation: String) {
        self.violations.push(violation);
    }

    pub(super) fn first_violation(&self) -> Option<&String> {
        self.violations.first()
    }

    /// Expects a webhook event, if an endpoint subscribes to it.
    pub(super) fn expect_event(
        &mut self,
        webhooks: &WebhookTables,
        account: AccountId,
        kind: WebhookKind,
        data: &serde_json::Value,
    ) {
        let mut endpoints = webhooks.endpoints.values();
        if endpoints.any(|row| subscribes(row, account, kind.as_str())) {
            self.expected_events.push(event_key(account, kind.as_str(), data));
        }
    }

    pub(super) fn check_runs(&mut self, runs: &RunTables, webhooks: &WebhookTables) {
        use CampaignStatus::{Cancelled, Completed, Partial, Sending, Sent};
        if let Err(violation) = runs.check_sums() {
            self.violation(violation);
        }
        let mut started = BTreeSet::new();
        for (id, row) in &runs.campaigns {
            let is_prepared = row.queue_entry.as_ref().is_some_and(|entry| entry.prepared);
            let (status, account) = (row.campaign.status, row.campaign.account_id);
            let Some((before, was_prepared)) = self.campaigns.insert(*id, (status, is_prepared)) else {
                continue;
            };
            let data = serde_json::json!({ "id": id });
            if is_prepared && !was_prepared {
                started.insert(*id);
                self.expect_event(webhooks, account, WebhookKind::CampaignStarted, &data);
            }
            if was_prepared && !is_prepared {
                // Only runs in the queue keep the interval to the messages of other runs.
                self.pairs.retain(|_, (_, run)| run.campaign_id != *id);
            }
            if before == Sending && matches!(status, Completed | Partial | Sent) {
                self.expect_event(webhooks, account, WebhookKind::CampaignFinished, &data);
            }
            if before != Cancelled && status == Cancelled {
                self.expect_event(webhooks, account, WebhookKind::CampaignCancelled, &data);
            }
        }
        for (key, send) in &runs.sends {
            if self.sends.get(key) == Some(&send.status) {
                continue;
            }
            let Some(before) = self.sends.insert(*key, send.status) else {
                continue;
            };
            if before.advance(send.status).is_some() {
                continue;
            }
            if (before, send.status) == (SendStatus::Failed, SendStatus::Pending) && started.contains(&key.0) {
                self.possible_sends.remove(&send.id);
            } else {
                self.violation(format!("a send went from {before} to {}", send.status));
            }
        }
    }

    /// `limit`: the month's messages of the account's plan.
    pub(super) fn run_started(&mut self, runs: &RunTables, id: CampaignId, limit: i64) {
        let account = &runs.accounts[&runs.campaigns[&id].campaign.account_id];
        let used = account.used();
        if used > limit {
            self.violation(format!("{used} messages are used and reserved of {limit}"));
        }
    }

    pub(super) fn sends_started(&mut self, runs: &RunTables, facts: &StartFacts, started: &StartedSends) {
        for send in &started.sends {
            if !facts.may_start {
                self.violation(format!("{send} starts although the run stopped or has another holder"));
            }
            if !facts.waiting.contains(send) {
                self.violation(format!("{send} starts although it was started or has ended"));
            }
            let key = runs.key_of(*send).unwrap();
            let account = &runs.accounts[&runs.campaigns[&key.0].campaign.account_id];
            match account.contacts[&key.1].opted_out {
                true => self.unreachable.insert(*send),
                false => self.unreachable.remove(send),
            };
        }
    }

    /// A worker has recorded the result of each response before it ends the run.
    pub(super) fn run_finishes(&mut self, runs: &RunTables, id: CampaignId, task: TaskId) {
        let responses = self.responses.get(&task).cloned().unwrap_or_default();
        let open = runs
            .sends_of(id)
            .find(|(_, send)| send.is_open() && responses.contains(&send.id));
        if let Some((_, send)) = open {
            self.violation(format!("the run ends, and the result of {} is not recorded", send.id));
        }
    }

    pub(super) fn send_requested(&mut self, request: &SendRequest<'_>) {
        let SendRequest { send, at, run, .. } = *request;
        let possible_sends = self.possible_sends.entry(send).or_default();
        *possible_sends += 1;
        if *possible_sends > 1 {
            self.violation(format!("{send} is sent again and may have arrived before"));
        }
        if self.unreachable.contains(&send) {
            self.violation(format!("{send} is sent to a contact who opted out"));
        }
        self.responses.entry(request.task).or_default().remove(&send);
        let pair = (run.account_id, request.number.to_owned(), request.to.to_owned());
        if request.is_late {
            self.pairs.remove(&pair);
            return;
        }
        self.check_rate(request.number, at);
        let is_in_queue = self
            .campaigns
            .get(&run.campaign_id)
            .is_some_and(|(_, is_prepared)| *is_prepared);
        let last = match is_in_queue {
            true => self.pairs.insert(pair, (at, run)),
            false => self.pairs.remove(&pair),
        };
        if let Some((before, other)) = last
            && other != run
            && at - before + MAX_START_DELAY < PAIR_INTERVAL
        {
            self.violation(format!("two campaigns send to {} within {}", request.to, at - before));
        }
    }

    /// Checks the rate of a number that sends a message, unless a stall made the message late.
    pub(super) fn check_rate(&mut self, number: &str, at: OffsetDateTime) {
        let times = self.request_times.entry(number.to_owned()).or_default();
        times.push(at);
        let last_second = times.iter().rev().take_while(|time| **time + Duration::SECOND > at);
        let within_second = last_second.count();
        if within_second > usize::from(RATE) {
            self.violation(format!(
                "number {number} sends {within_second} messages in a second, at most {RATE} are allowed"
            ));
        }
    }

    /// WhatsApp rejected the message, so that it did not arrive.
    pub(super) fn send_rejected(&mut self, request: &SendRequest<'_>) {
        let pair = (request.run.account_id, request.number.to_owned(), request.to.to_owned());
        self.pairs.remove(&pair);
        *self.possible_sends.entry(request.send).or_default() -= 1;
    }

    pub(super) fn check_billing(&mut self, billing: &BillingTables, webhooks: &WebhookTables) {
        for (account, row) in &billing.accounts {
            if row.subscriptions.values().filter(|row| row.status.is_live()).count() > 1 {
                self.violation(format!("account {account} has two live subscriptions"));
            }
        }
        for row in billing.subscriptions() {
            let now = PublishedSubscription::from(row);
            let before = self.subscriptions.insert(row.id, now.clone());
            if before.as_ref().and_then(|before| before.current_period_end) < now.current_period_end {
                *self.periods.entry(row.id).or_default() += 1;
            }
            let was_attempt = PublishedSubscription {
                is_attempt: true,
                ..now.clone()
            };
            if !now.is_attempt && before.unwrap_or(was_attempt) != now {
                let end = now.current_period_end.map(timestamp::format);
                let data = serde_json::json!({ "id": row.id, "status": now.status, "plan": now.plan,
                    "cycle": now.cycle, "value": now.value.0, "current_period_end": end });
                self.expect_event(webhooks, row.account_id, WebhookKind::SubscriptionChanged, &data);
            }
        }
    }

    /// Checks the events of a relay: each new one has a delivery to each endpoint that subscribes to it.
    pub(super) fn events_relayed(&mut self, webhooks: &mut WebhookTables, ignores_subscription: bool) {
        let new: Vec<_> = webhooks
            .events
            .values()
            .filter(|row| !self.events.contains(&row.event.id))
            .collect();
        let new: Vec<_> = new.into_iter().map(|row| row.event.clone()).collect();
        for event in new {
            self.events.insert(event.id);
            let key = |endpoint_id: WebhookId| DeliveryKey {
                account_id: event.account_id,
                event_id: event.id,
                endpoint_id,
            };
            if ignores_subscription && let Some(delivery) = webhooks.deliveries.values().next().cloned() {
                let others = webhooks
                    .endpoints
                    .iter()
                    .filter(|(_, row)| row.account_id == event.account_id);
                let others: Vec<DeliveryKey> = others.map(|(id, _)| key(*id)).collect();
                for key in others {
                    webhooks.deliveries.entry(key).or_insert(InMemoryDelivery {
                        claim: 0,
                        ..delivery.clone()
                    });
                }
            }
            let endpoints = webhooks.endpoints.iter();
            let endpoints = endpoints
                .filter(|(_, row)| row.stored.webhook.is_active && subscribes(row, event.account_id, &event.kind));
            let expected: BTreeSet<DeliveryKey> = endpoints.map(|(id, _)| key(*id)).collect();
            let range = key(WebhookId(Uuid::nil()))..=key(WebhookId(Uuid::max()));
            let rows = webhooks.deliveries.range(range).map(|(key, row)| (*key, row.clone()));
            let rows: BTreeMap<DeliveryKey, InMemoryDelivery> = rows.collect();
            if !rows.keys().eq(&expected) {
                self.violation(format!("event {} has other deliveries than its subscribers", event.id));
            }
            self.deliveries.extend(rows);
        }
    }

    pub(super) fn check_deliveries(&mut self, webhooks: &WebhookTables) {
        let now = webhooks.now;
        for (key, row) in &webhooks.deliveries {
            let Some(before) = self.deliveries.insert(*key, row.clone()) else {
                self.violation(format!("{key:?} appears without an event"));
                continue;
            };
            if before.claim == row.claim {
                continue;
            }
            if before.leased && before.next_attempt_at > now {
                self.violation(format!("{key:?} is claimed while another claim holds it"));
            }
            if self.successes.contains(key) {
                self.violation(format!("{key:?} is claimed after its success"));
            }
        }
        let removed = self
            .deliveries
            .keys()
            .filter(|key| !webhooks.deliveries.contains_key(key));
        let removed: Vec<DeliveryKey> = removed.copied().collect();
        for key in removed {
            self.deliveries.remove(&key);
            if !self.successes.contains(&key) && webhooks.endpoints.contains_key(&key.endpoint_id) {
                self.violation(format!("{key:?} is removed without a success"));
            }
        }
    }

    /// Checks the effect of a recorded attempt. `before` and `after`: its delivery. `is_only`: no other attempt of it was
    /// recorded in the same transaction.
    pub(super) fn attempt_recorded(
        &mut self,
        attempt: &Attempt,
        before: Option<&InMemoryDelivery>,
        after: Option<&InMemoryDelivery>,
        is_only: bool,
    ) {
        let Some(before) = before else { return };
        let state = |row: &InMemoryDelivery| (row.state, row.attempts, row.leased, row.claim, row.next_attempt_at);
        if before.claim != attempt.claim {
            // The batch may also disable the endpoint, which drops its deliveries.
            let is_dropped = after.is_some_and(|after| after.state == InMemoryDeliveryState::Dropped);
            if after.map(state) != Some(state(before)) && !is_dropped && is_only {
                self.violation(format!("an attempt of an old claim changes {:?}", attempt.key));
            }
            return;
        }
        if attempt.state == DeliveryState::Delivered {
            self.successes.insert(attempt.key);
        } else if before.leased && after.is_some_and(|after| after.attempts != before.attempts + 1) {
            self.violation(format!("an attempt of {:?} does not count", attempt.key));
        }
    }
}
