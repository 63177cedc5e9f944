//! The webhook events of ingestion. Receivers get one event for each recorded order or metric event.

use serde_json::json;

use super::{EventDraft, Order, OrderDraft};
use crate::shared::{ContactId, Event, WebhookKind, timestamp};

/// The `order.recorded` events of new and changed orders, each with the draft that reported it.
pub fn orders_recorded<'a>(orders: impl Iterator<Item = (&'a OrderDraft, &'a Order)>) -> Event {
    let item = |(draft, order): (&OrderDraft, &Order)| {
        json!({ "id": order.id, "external_id": draft.external_id, "platform": order.platform,
                "status": order.status, "total": order.total, "contact_id": order.contact_id,
                "campaign_id": order.attribution.campaign_id, "automation_id": order.attribution.automation_id,
                "link_id": order.attribution.link_id, "placed_at": timestamp::format(order.placed_at),
                "paid_at": order.paid_at.map(timestamp::format) })
    };
    Event::webhook(WebhookKind::OrderRecorded, orders.map(item).collect())
}

/// The `metric.recorded` events of new metric events, each with its contact.
pub fn metrics_recorded<'a>(events: impl Iterator<Item = (&'a EventDraft, Option<ContactId>)>) -> Event {
    let item = |(draft, contact): (&EventDraft, Option<ContactId>)| {
        json!({ "id": draft.id, "metric_name": draft.metric_name, "contact_id": contact, "value": draft.value,
                "currency": draft.currency, "source": draft.source,
                "occurred_at": timestamp::format(draft.occurred_at) })
    };
    Event::webhook(WebhookKind::MetricRecorded, events.map(item).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;
    use crate::ingestion::{Attribution, OrderStatus, Who};
    use crate::shared::{Amount, CampaignId, MetricEventId, OrderId};

    fn items(event: Event, kind: WebhookKind) -> Vec<Value> {
        let Event::Webhook(batch) = event else {
            panic!("not a webhook event")
        };
        assert_eq!(batch.kind, kind);
        batch.items
    }

    #[test]
    fn recorded_order_has_the_published_fields() {
        let draft = OrderDraft {
            platform: "loja".into(),
            external_id: "p-1".into(),
            phone: None,
            status: OrderStatus::Paid,
            total: Amount::from(10),
            items: Vec::new(),
            gateway_fee: None,
            campaign_id: None,
            automation_id: None,
            link_code: None,
            placed_at: OffsetDateTime::UNIX_EPOCH,
            paid_at: None,
        };
        let campaign = CampaignId(Uuid::from_u128(2));
        let attribution = Attribution::from_message(Some(campaign));
        let order = Order::merged(OrderId(Uuid::from_u128(1)), &draft, None, attribution, None);
        let event = orders_recorded([(&draft, &order)].into_iter());
        assert_eq!(
            items(event, WebhookKind::OrderRecorded),
            [
                json!({ "id": Uuid::from_u128(1), "external_id": "p-1", "platform": "loja", "status": "paid", "total": 10,
                     "contact_id": null, "campaign_id": campaign, "automation_id": null, "link_id": null,
                     "placed_at": "1970-01-01T00:00:00.000Z", "paid_at": "1970-01-01T00:00:00.000Z" })
            ]
        );
    }

    #[test]
    fn recorded_metric_has_the_published_fields() {
        let contact = ContactId(Uuid::from_u128(2));
        let draft = EventDraft {
            id: MetricEventId(Uuid::from_u128(1)),
            metric_name: "placed_order".into(),
            display_name: Some("Pedido".into()),
            category: None,
            who: Who::Contact(contact),
            value: Some(Amount::from(3)),
            currency: None,
            source: "api".into(),
            properties: Map::new(),
            occurred_at: OffsetDateTime::UNIX_EPOCH,
        };
        let event = metrics_recorded([(&draft, Some(contact))].into_iter());
        assert_eq!(
            items(event, WebhookKind::MetricRecorded),
            [
                json!({ "id": Uuid::from_u128(1), "metric_name": "placed_order", "contact_id": contact, "value": 3,
                     "currency": null, "source": "api", "occurred_at": "1970-01-01T00:00:00.000Z" })
            ]
        );
    }
}
