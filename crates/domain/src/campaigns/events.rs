//! The webhook events of campaigns, and of messages: campaign sends and replies.

use serde::Serialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Campaign, CampaignStatus, RunReport, Trigger};
use crate::messaging::{AddressKind, SendStatus};
use crate::shared::{CampaignId, ContactId, ConversationId, Event, WebhookKind, redacted_debug};

/// `campaign.started`. `recipients` counts the whole audience, or the sends of a retry.
pub fn started_event(campaign: &Campaign, trigger: Trigger, recipients: i64) -> Event {
    let item = json!({ "id": campaign.id, "name": campaign.name, "template_id": campaign.template_id,
                       "trigger": trigger.as_str(), "simulated": campaign.simulated, "recipients": recipients });
    Event::webhook(WebhookKind::CampaignStarted, vec![item])
}

/// `campaign.finished`. The published field `ended_early` is always null: a run that WhatsApp rejects pauses instead.
pub(super) fn finished_event(campaign: &Campaign, report: &RunReport) -> Event {
    let item = json!({ "id": campaign.id, "name": campaign.name, "status": campaign.status,
                       "simulated": report.simulated, "total": report.total, "sent": report.sent,
                       "failed": report.failed, "ended_early": null });
    Event::webhook(WebhookKind::CampaignFinished, vec![item])
}

pub(super) fn cancelled_event(campaign: &Campaign, previous: CampaignStatus) -> Event {
    let item = json!({ "id": campaign.id, "name": campaign.name, "previous_status": previous });
    Event::webhook(WebhookKind::CampaignCancelled, vec![item])
}

/// The status of a message that was sent, as the `message.*` webhook events publish it.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct MessageStatusEvent {
    /// The id of the send or of the reply.
    pub id: Uuid,
    /// None for a reply.
    pub campaign_id: Option<CampaignId>,
    /// None for a campaign send.
    pub conversation_id: Option<ConversationId>,
    pub contact_id: ContactId,
    /// WhatsApp's id of the message, if known.
    pub wa_message_id: Option<String>,
    /// The current status. Skipped statuses have no event: read implies delivered.
    pub status: SendStatus,
    /// WhatsApp's error code, if the message failed with one.
    pub error_code: Option<i64>,
    pub error_message: Option<String>,
    /// The kind of address that the message left to, if it left.
    pub address: Option<AddressKind>,
    /// The client's own key of a direct message. None: the message is none, and the event has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_reference: Option<Option<String>>,
}

redacted_debug!(MessageStatusEvent {
    id,
    campaign_id,
    status,
    error_code
});

impl MessageStatusEvent {
    /// Groups messages into at most one webhook event per kind, in the order of the statuses.
    pub fn events(messages: &[Self]) -> Vec<Event> {
        let kinds = [
            (SendStatus::Sent, WebhookKind::MessageSent),
            (SendStatus::Delivered, WebhookKind::MessageDelivered),
            (SendStatus::Read, WebhookKind::MessageRead),
            (SendStatus::Failed, WebhookKind::MessageFailed),
        ];
        let groups = kinds.into_iter().map(|(status, kind)| {
            let of_kind = messages.iter().filter(|message| message.status == status);
            (kind, of_kind.map(|message| json!(message)).collect::<Vec<Value>>())
        });
        groups
            .filter(|(_, items)| !items.is_empty())
            .map(|(kind, items)| Event::webhook(kind, items))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: u128, status: SendStatus) -> MessageStatusEvent {
        MessageStatusEvent {
            id: Uuid::from_u128(id),
            campaign_id: Some(CampaignId(Uuid::nil())),
            conversation_id: None,
            contact_id: ContactId(Uuid::nil()),
            wa_message_id: Some("wamid".into()),
            status,
            error_code: None,
            error_message: None,
            address: None,
            client_reference: None,
        }
    }

    #[test]
    fn message_events_are_grouped_by_kind_without_pending_ones() {
        use SendStatus::{Failed, Pending, Read, Sent};
        let events = MessageStatusEvent::events(&[
            message(1, Read),
            message(2, Sent),
            message(3, Pending),
            message(4, Read),
            message(5, Failed),
        ]);
        let kinds_and_ids: Vec<_> = events
            .iter()
            .map(|event| {
                let Event::Webhook(webhook) = event else {
                    panic!("{event:?}")
                };
                let last_digit = |item: &Value| item["id"].as_str().unwrap().chars().last().unwrap();
                let ids = webhook.items.iter().map(last_digit).collect::<String>();
                (webhook.kind.as_str(), ids)
            })
            .collect();
        let expected = [("message.sent", "2"), ("message.read", "14"), ("message.failed", "5")];
        assert_eq!(kinds_and_ids, expected.map(|(kind, ids)| (kind, ids.to_owned())));
    }

    #[test]
    fn message_event_has_its_published_json() {
        let events = MessageStatusEvent::events(&[message(1, SendStatus::Sent)]);
        assert_eq!(
            json!(events),
            json!([{ "kind": "webhook", "type": "message.sent", "items": [{
                "id": "00000000-0000-0000-0000-000000000001",
                "campaign_id": "00000000-0000-0000-0000-000000000000", "conversation_id": null,
                "contact_id": "00000000-0000-0000-0000-000000000000", "wa_message_id": "wamid", "status": "sent",
                "error_code": null, "error_message": null, "address": null }] }])
        );
    }
}
