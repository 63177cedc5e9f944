//! The webhook event of inbound messages.

use serde_json::{Value, json};

use super::InboundMessage;
use crate::shared::{ContactId, ConversationId, Event, MessageId, ProfileId, WebhookKind, timestamp};

/// An inbound message that was stored for the first time.
#[derive(Clone, Copy)]
pub struct ReceivedMessage<'a> {
    pub id: MessageId,
    pub conversation_id: ConversationId,
    pub contact_id: ContactId,
    /// The number that received it.
    pub profile_id: Option<ProfileId>,
    pub message: &'a InboundMessage,
}

impl ReceivedMessage<'_> {
    fn published(&self) -> Value {
        let InboundMessage {
            wa_message_id,
            at,
            kind,
            text,
            referral,
            ..
        } = self.message;
        json!({ "id": self.id, "conversation_id": self.conversation_id, "contact_id": self.contact_id,
                "profile_id": self.profile_id, "type": kind, "text": text, "wa_message_id": wa_message_id,
                "referral": referral, "created_at": timestamp::format(*at) })
    }
}

/// `message.received`, in the order in which the contacts wrote.
pub fn received_event(mut messages: Vec<ReceivedMessage<'_>>) -> Event {
    messages.sort_by_key(|received| (received.message.at, received.id.0));
    let items = messages.iter().map(ReceivedMessage::published).collect();
    Event::webhook(WebhookKind::MessageReceived, items)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::Sender;
    use super::*;

    #[test]
    fn received_event_has_its_published_json_in_order_of_time() {
        let message = |second: u8| InboundMessage {
            wa_message_id: format!("wamid.{second}"),
            sender: Sender {
                wa_id: None,
                user_id: None,
                name: None,
            },
            at: datetime!(2026-03-01 12:00 UTC).replace_second(second).unwrap(),
            kind: "text".into(),
            text: Some("Oi".into()),
            can_opt_out: true,
            referral: None,
            payload: json!({ "context": "wamid.0" }),
        };
        let (later, earlier) = (message(9), message(1));
        let received = |id: u128, message| ReceivedMessage {
            id: Uuid::from_u128(id).into(),
            conversation_id: Uuid::from_u128(2).into(),
            contact_id: Uuid::from_u128(3).into(),
            profile_id: None,
            message,
        };
        let Event::Webhook(batch) = received_event(vec![received(5, &later), received(6, &earlier)]) else {
            panic!("not a webhook event")
        };
        assert_eq!(batch.kind, WebhookKind::MessageReceived);
        assert_eq!(
            batch.items[0],
            json!({ "id": Uuid::from_u128(6), "conversation_id": Uuid::from_u128(2), "contact_id": Uuid::from_u128(3),
                    "profile_id": null, "type": "text", "text": "Oi", "wa_message_id": "wamid.1", "referral": null,
                    "created_at": "2026-03-01T12:00:01.000Z" })
        );
        assert_eq!(batch.items[1]["wa_message_id"], "wamid.9");
    }
}
