//! The rules of deliveries: claims, attempts, the health of endpoints, and deliveries on request.

use std::collections::BTreeMap;

use time::{Duration, OffsetDateTime};

use super::super::{
    Attempt, ClaimRequest, ClaimedDelivery, DeliveryKey, DeliveryState, Direction, DisabledReason, Health,
    HealthUpdate, WebhookEvent, WebhookLog,
};
use super::tables::{
    InMemoryDelivery, InMemoryDeliveryState, InMemoryEndpoint, InMemoryEvent, InMemoryLog, WebhookTables, first_id_at,
};
use crate::shared::{AccountId, Event, RowOutcome, WebhookEventId, WebhookId};

impl WebhookTables {
    /// The deliveries that a claim may lease, apart from its own limit: of each endpoint those that have been due
    /// longest, up to the endpoint's limit.
    pub fn claimable(&self, request: &ClaimRequest) -> BTreeMap<WebhookId, Vec<DeliveryKey>> {
        let limits: BTreeMap<WebhookId, i64> = request.endpoints.iter().copied().collect();
        let mut queues: BTreeMap<WebhookId, Vec<(OffsetDateTime, DeliveryKey)>> = BTreeMap::new();
        for (key, row) in self.deliveries.iter().filter(|(_, row)| row.is_due(self.now)) {
            let queue = queues.entry(key.endpoint_id).or_default();
            queue.push((row.next_attempt_at, *key));
        }
        let is_served =
            |row: &InMemoryEndpoint| row.is_deliverable() && !self.suspended_accounts.contains(&row.account_id);
        queues.retain(|id, _| self.endpoints.get(id).is_some_and(is_served));
        let first_of = |(id, mut queue): (WebhookId, Vec<(OffsetDateTime, DeliveryKey)>)| {
            queue.sort_unstable();
            let limit = limits.get(&id).copied().unwrap_or(request.others);
            let keys = queue.into_iter().map(|(_, key)| key);
            (id, keys.take(usize::try_from(limit).unwrap_or(0)).collect())
        };
        queues.into_iter().map(first_of).collect()
    }

    pub fn claim(&mut self, request: &ClaimRequest, lease: Duration) -> Vec<ClaimedDelivery> {
        let keys = self.claimable(request).into_values().flatten();
        let keys: Vec<DeliveryKey> = keys.take(usize::try_from(request.limit).unwrap_or(0)).collect();
        self.lease(&keys, lease)
    }

    /// Leases these deliveries, and removes those whose event is gone.
    pub fn lease(&mut self, keys: &[DeliveryKey], lease: Duration) -> Vec<ClaimedDelivery> {
        let mut claimed: Vec<ClaimedDelivery> = keys.iter().filter_map(|key| self.lease_one(*key, lease)).collect();
        claimed.sort_by_key(|claimed| (claimed.occurred_at, claimed.key));
        claimed
    }

    fn lease_one(&mut self, key: DeliveryKey, lease: Duration) -> Option<ClaimedDelivery> {
        let Some(WebhookEvent {
            kind, timestamp, data, ..
        }) = self.event(key.account_id, key.event_id).map(|row| row.event.clone())
        else {
            self.deliveries.remove(&key);
            return None;
        };
        let (claim, now) = (self.next_claim(), self.now);
        let InMemoryEndpoint { stored, health, .. } = self.endpoint(key.account_id, key.endpoint_id)?.clone();
        let row = self.deliveries.get_mut(&key)?;
        (row.leased, row.claim, row.next_attempt_at) = (true, claim, now + lease);
        let mut secrets = stored.secrets;
        secrets.previous.take_if(|(_, until)| *until <= now);
        Some(ClaimedDelivery {
            key,
            claim,
            attempts: row.attempts,
            name: stored.webhook.name,
            url: stored.webhook.url.unwrap_or_default(),
            secrets,
            health,
            kind,
            occurred_at: timestamp,
            data,
        })
    }

    pub fn finish(&mut self, attempts: &[Attempt], health_updates: &[(AccountId, WebhookId, HealthUpdate)]) {
        attempts.iter().for_each(|attempt| self.record(attempt));
        for (account, id, health_update) in health_updates {
            match health_update {
                HealthUpdate::Recovered => self.set_health(*account, *id, Health::Well, |_| true),
                HealthUpdate::Failing { known, since, at } => {
                    let failing = Health::Failing {
                        since: *since,
                        last: *at,
                    };
                    self.set_health(*account, *id, failing, |stored| stored.since() == known.since());
                }
                HealthUpdate::Disabled { .. } => {}
            }
        }
        for (account, id, health_update) in health_updates {
            if let HealthUpdate::Disabled { known, reason, events } = health_update {
                self.disable(*account, *id, *known, *reason, events);
            }
        }
    }

    /// Logs an attempt once, and applies its result if its claim is the latest. A success also counts after the lease
    /// has ended.
    fn record(&mut self, attempt: &Attempt) {
        let (key, now) = (attempt.key, self.now);
        let next_attempt_at = match attempt.state {
            DeliveryState::Waiting(delay) => Some(now + delay),
            DeliveryState::Delivered | DeliveryState::Failed => None,
        };
        let log = outbound_log(attempt, next_attempt_at);
        self.logs.entry(attempt.log_id).or_insert(log);
        let is_delivered = attempt.state == DeliveryState::Delivered;
        let is_held = |row: &&mut InMemoryDelivery| row.claim == attempt.claim && (row.leased || is_delivered);
        let Some(row) = self.deliveries.get_mut(&key).filter(is_held) else {
            return;
        };
        if is_delivered {
            self.deliveries.remove(&key);
            return;
        }
        *row = InMemoryDelivery {
            state: match next_attempt_at {
                Some(_) => InMemoryDeliveryState::Waiting,
                None => InMemoryDeliveryState::Failed,
            },
            attempts: attempt.number,
            next_attempt_at: next_attempt_at.unwrap_or(now),
            leased: false,
            claim: row.claim,
            failed_at: Some(attempt.at),
        };
    }

    fn set_health(&mut self, account: AccountId, id: WebhookId, health: Health, guard: impl Fn(Health) -> bool) {
        if let Some(row) = self.endpoint_mut(account, id).filter(|row| guard(row.health)) {
            row.health = health;
        }
    }

    fn disable(&mut self, account: AccountId, id: WebhookId, known: Health, reason: DisabledReason, events: &[Event]) {
        let now = self.now;
        let Some(row) = self.endpoint_mut(account, id) else {
            return;
        };
        let is_known = reason == DisabledReason::Gone || row.health.since() == known.since();
        let webhook = &mut row.stored.webhook;
        if !webhook.is_active || !is_known {
            return;
        }
        webhook.is_active = false;
        (webhook.disabled_at, webhook.disabled_reason) = (Some(now), Some(reason));
        webhook.updated_at = now;
        row.stored.version += 1;
        self.drop_waiting(id);
        self.append(account, events);
    }

    pub fn release(&mut self, claims: &[(DeliveryKey, i64)]) {
        let now = self.now;
        for (key, claim) in claims {
            let row = self.deliveries.get_mut(key);
            if let Some(row) = row.filter(|row| row.claim == *claim && row.leased) {
                (row.leased, row.next_attempt_at) = (false, now);
            }
        }
    }

    /// The abandoned deliveries that a purge may remove.
    pub fn purgeable(&self, older_than: Duration) -> Vec<DeliveryKey> {
        let end = first_id_at(self.now - older_than);
        let is_old = |key: &DeliveryKey| key.event_id.0.as_u128() < end;
        let rows = self.deliveries.iter();
        rows.filter(|(key, row)| row.state != InMemoryDeliveryState::Waiting && is_old(key))
            .map(|(key, _)| *key)
            .collect()
    }

    pub(super) fn sweep(&mut self, older_than: Duration, limit: i64) -> usize {
        let purged = self.purgeable(older_than).into_iter();
        let purged = purged.take(usize::try_from(limit).unwrap_or(0));
        purged.filter_map(|key| self.deliveries.remove(&key)).count()
    }

    pub(super) fn ping(&mut self, account: AccountId, id: WebhookId, event: &WebhookEvent) -> RowOutcome {
        let row = InMemoryEvent {
            event: event.clone(),
            seq: None,
        };
        self.events.insert(event.id, row);
        let enqueued = self.redeliver(account, id, event.id);
        if enqueued == RowOutcome::Missing {
            self.events.remove(&event.id);
        }
        enqueued
    }

    pub(super) fn redeliver(&mut self, account: AccountId, id: WebhookId, event: WebhookEventId) -> RowOutcome {
        let endpoint = self.endpoint(account, id);
        let accepts = endpoint.is_some_and(InMemoryEndpoint::is_deliverable);
        if !accepts || self.event(account, event).is_none() {
            return RowOutcome::Missing;
        }
        let (now, key) = (
            self.now,
            DeliveryKey {
                account_id: account,
                event_id: event,
                endpoint_id: id,
            },
        );
        let row = self.deliveries.entry(key).or_insert(InMemoryDelivery::new(now));
        row.enqueue_again(now);
        RowOutcome::Done
    }

    pub(super) fn recover(&mut self, account: AccountId, id: WebhookId, since: OffsetDateTime, slice: i64) -> i64 {
        let is_failed = |row: &InMemoryDelivery| !row.leased && row.failed_at.is_some_and(|at| at >= since);
        let rows = self.deliveries.iter();
        let rows = rows.filter(|(key, row)| (key.account_id, key.endpoint_id) == (account, id) && is_failed(row));
        let mut failed: Vec<(Option<OffsetDateTime>, DeliveryKey)> =
            rows.map(|(key, row)| (row.failed_at, *key)).collect();
        failed.sort_unstable();
        for batch in failed.chunks(usize::try_from(slice).unwrap_or(usize::MAX).max(1)) {
            for (_, key) in batch {
                if let Some(row) = self.deliveries.get_mut(key) {
                    row.enqueue_again(self.now);
                }
            }
            // Every batch is a transaction of its own.
            self.now += Duration::MICROSECOND;
        }
        i64::try_from(failed.len()).unwrap_or(i64::MAX)
    }
}

impl InMemoryDelivery {
    /// Makes the delivery due from its first attempt, unless an attempt is in flight.
    fn enqueue_again(&mut self, now: OffsetDateTime) {
        (self.state, self.failed_at) = (InMemoryDeliveryState::Waiting, None);
        if !self.leased {
            (self.attempts, self.next_attempt_at) = (0, now);
        }
    }
}

fn outbound_log(attempt: &Attempt, next_attempt_at: Option<OffsetDateTime>) -> InMemoryLog {
    InMemoryLog {
        account_id: attempt.key.account_id,
        event_id: Some(attempt.key.event_id),
        log: WebhookLog {
            id: attempt.log_id,
            endpoint_id: attempt.key.endpoint_id,
            direction: Direction::Outbound,
            event_type: attempt.kind.clone(),
            payload: serde_json::Value::Null,
            response_status: attempt.status.map(i32::from),
            attempt: i32::try_from(attempt.number).unwrap_or(i32::MAX),
            duration_ms: i32::try_from(attempt.duration.whole_milliseconds()).ok(),
            error: attempt.error.clone(),
            message_id: attempt.key.event_id.to_string(),
            next_attempt_at,
            created_at: attempt.at,
        },
    }
}
