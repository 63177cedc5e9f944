//! The rules of endpoints and of the outbox.

use super::super::{DeliveryKey, Health, StoredWebhook, Webhook, WebhookEvent};
use super::tables::{
    InMemoryDelivery, InMemoryDeliveryState, InMemoryEndpoint, InMemoryEvent, InMemoryOutboxEvent, WebhookTables,
    event_id,
};
use crate::shared::{
    AccountId, Event, InsertOutcome, Page, PageQuery, RowOutcome, UpdateOutcome, WebhookEventBatch, WebhookId,
};

impl WebhookTables {
    pub(super) fn page(&self, account: AccountId, query: PageQuery) -> Page<Webhook> {
        let rows = self.endpoints.values().filter(|row| row.account_id == account);
        let mut webhooks: Vec<Webhook> = rows.map(|row| row.stored.webhook.clone()).collect();
        webhooks.sort_unstable_by_key(|webhook| std::cmp::Reverse((webhook.created_at, webhook.id)));
        let total = i64::try_from(webhooks.len()).unwrap_or(i64::MAX);
        let [offset, limit] = [query.offset(), query.limit()].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        Page::new(query, webhooks.into_iter().skip(offset).take(limit).collect(), total)
    }

    pub fn insert(
        &mut self,
        account_id: AccountId,
        webhook: &StoredWebhook,
        at_most: i64,
        events: &[Event],
    ) -> InsertOutcome {
        let count = self
            .endpoints
            .values()
            .filter(|row| row.account_id == account_id)
            .count();
        if i64::try_from(count).is_ok_and(|count| count >= at_most) {
            return InsertOutcome::Full;
        }
        let row = InMemoryEndpoint {
            account_id,
            stored: webhook.clone(),
            health: Health::Well,
        };
        self.endpoints.insert(webhook.webhook.id, row);
        self.append(account_id, events);
        InsertOutcome::Done
    }

    pub(super) fn update(
        &mut self,
        account: AccountId,
        webhook: &StoredWebhook,
        events: &[Event],
    ) -> UpdateOutcome<()> {
        let (id, is_active) = (webhook.webhook.id, webhook.webhook.is_active);
        let Some(row) = self.endpoint_mut(account, id) else {
            return UpdateOutcome::Missing;
        };
        if row.stored.version != webhook.version {
            return UpdateOutcome::Stale;
        }
        if is_active && !row.stored.webhook.is_active {
            row.health = Health::Well;
        }
        let created_at = row.stored.webhook.created_at;
        row.stored.clone_from(webhook);
        row.stored.webhook.created_at = created_at;
        row.stored.version += 1;
        if !is_active {
            self.drop_waiting(id);
        }
        self.append(account, events);
        UpdateOutcome::Done(())
    }

    pub(super) fn delete(&mut self, account: AccountId, id: WebhookId, events: &[Event]) -> RowOutcome {
        if self.endpoint(account, id).is_none() {
            return RowOutcome::Missing;
        }
        self.endpoints.remove(&id);
        self.deliveries.retain(|key, _| key.endpoint_id != id);
        self.append(account, events);
        RowOutcome::Done
    }

    pub(super) fn drop_waiting(&mut self, id: WebhookId) {
        let now = self.now;
        let of_endpoint = self.deliveries.iter_mut().filter(|(key, _)| key.endpoint_id == id);
        for (_, row) in of_endpoint.filter(|(_, row)| row.state == InMemoryDeliveryState::Waiting) {
            row.state = InMemoryDeliveryState::Dropped;
            row.leased = false;
            row.failed_at = Some(now);
        }
    }

    /// Appends outbox events. A webhook event requires a subscriber and at least one item.
    pub fn append(&mut self, account_id: AccountId, events: &[Event]) {
        for event in events {
            let is_stored = match event {
                Event::Webhook(WebhookEventBatch { kind, items }) => {
                    let mut endpoints = self.endpoints.values();
                    !items.is_empty() && endpoints.any(|row| row.subscribes(account_id, kind.as_str()))
                }
                Event::Audit(_) | Event::Notification(_) => true,
            };
            if is_stored {
                self.outbox.push(InMemoryOutboxEvent {
                    account_id,
                    event: event.clone(),
                    created_at: self.now,
                });
            }
        }
    }

    /// Moves the webhook events of the outbox to the feeds, and enqueues their deliveries.
    pub fn relay(&mut self) {
        let is_webhook = |row: &mut InMemoryOutboxEvent| matches!(row.event, Event::Webhook(_));
        let relayed: Vec<_> = self.outbox.extract_if(.., is_webhook).collect();
        for InMemoryOutboxEvent {
            account_id,
            event,
            created_at,
        } in relayed
        {
            let Event::Webhook(WebhookEventBatch { kind, items }) = event else {
                continue;
            };
            for data in items {
                let seq = self.next_seq();
                let event = WebhookEvent {
                    id: event_id(created_at, seq),
                    kind: kind.as_str().to_owned(),
                    timestamp: created_at,
                    account_id,
                    data,
                };
                self.fan_out(InMemoryEvent { event, seq: Some(seq) });
            }
        }
    }

    fn fan_out(&mut self, row: InMemoryEvent) {
        let (account_id, event_id, kind) = (row.event.account_id, row.event.id, &row.event.kind);
        let endpoints = self.endpoints.iter();
        let endpoints = endpoints.filter(|(_, row)| row.is_deliverable() && row.subscribes(account_id, kind));
        for (id, _) in endpoints {
            let key = DeliveryKey {
                account_id,
                event_id,
                endpoint_id: *id,
            };
            self.deliveries.insert(key, InMemoryDelivery::new(self.now));
        }
        self.events.insert(event_id, row);
    }
}
