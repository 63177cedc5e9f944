//! The webhook event of inbound messages.

use serde_json::{Value, json};

use super::{InboundMessage, NewMessage};
use crate::shared::{Event, ProfileId, WebhookKind, timestamp};

/// An inbound message that was stored for the first time.
#[derive(Clone, Copy)]
pub struct ReceivedMessage<'a> {
    /// The number that received it.
    pub profile_id: Option<ProfileId>,
    pub new: &'a NewMessage,
}

impl ReceivedMessage<'_> {
    fn published(&self) -> Value {
        let InboundMessage {
            wa_message_id,
            at,
            kind,
            text,
            referral,
            caption,
            ..
        } = &self.new.message;
        let media = self.new.published_file().map(|file| [file]);
        json!({ "id": self.new.id, "conversation_id": self.new.conversation_id, "contact_id": self.new.contact_id,
                "profile_id": self.profile_id, "type": kind, "text": text, "wa_message_id": wa_message_id,
                "media": media, "caption": caption, "context": self.new.context, "referral": referral,
                "created_at": timestamp::format(*at) })
    }
}

/// `message.received`, in the order in which the contacts wrote.
pub fn received_event(mut messages: Vec<ReceivedMessage<'_>>) -> Event {
    messages.sort_by_key(|received| (received.new.message.at, received.new.id.0));
    let items = messages.iter().map(ReceivedMessage::published).collect();
    Event::webhook(WebhookKind::MessageReceived, items)
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;
    use uuid::Uuid;

    use super::super::{Direction, MessageContext, Sender};
    use super::*;
    use crate::media::{AnnouncedFile, FileKind};

    #[test]
    fn received_event_has_its_published_json_in_order_of_time() {
        let message = |second: u8| InboundMessage {
            wa_message_id: format!("wamid.{second}"),
            sender: Sender {
                wa_id: None,
                user_id: None,
                name: None,
                ..Sender::default()
            },
            at: datetime!(2026-03-01 12:00 UTC).replace_second(second).unwrap(),
            kind: "text".into(),
            text: Some("Oi".into()),
            can_opt_out: true,
            answered_wa_id: None,
            referral: None,
            payload: json!({ "context": "wamid.0" }),
            caption: None,
            interactive: None,
            quoted: None,
            file: None,
        };
        let new = |id: u128, message: InboundMessage| NewMessage {
            id: Uuid::from_u128(id).into(),
            conversation_id: Uuid::from_u128(2).into(),
            contact_id: Uuid::from_u128(3).into(),
            direction: Direction::Inbound,
            message,
            file: None,
            context: None,
        };
        let file = AnnouncedFile {
            kind: FileKind::Image,
            wa_media_id: "1".into(),
            mime_type: Some("image/jpeg".into()),
            file_name: None,
            sha256: None,
        };
        let later = NewMessage {
            file: Some((Uuid::from_u128(7).into(), file)),
            context: Some(MessageContext {
                message_id: None,
                wa_message_id: "wamid.0".into(),
            }),
            ..new(5, message(9))
        };
        let earlier = new(6, message(1));
        let received = |new| ReceivedMessage { profile_id: None, new };
        let Event::Webhook(batch) = received_event(vec![received(&later), received(&earlier)]) else {
            panic!("not a webhook event")
        };
        assert_eq!(batch.kind, WebhookKind::MessageReceived);
        assert_eq!(
            batch.items[0],
            json!({ "id": Uuid::from_u128(6), "conversation_id": Uuid::from_u128(2), "contact_id": Uuid::from_u128(3),
                    "profile_id": null, "type": "text", "text": "Oi", "wa_message_id": "wamid.1", "referral": null,
                    "media": null, "caption": null, "context": null, "created_at": "2026-03-01T12:00:01.000Z" })
        );
        assert_eq!(
            batch.items[1]["media"],
            json!([{ "id": Uuid::from_u128(7), "type": "image", "mime_type": "image/jpeg", "file_name": null,
                     "size": null, "sha256": null, "state": "pending", "reason": null, "expires_at": null }])
        );
        let context = json!({ "message_id": null, "wa_message_id": "wamid.0" });
        assert_eq!(
            (&batch.items[1]["wa_message_id"], &batch.items[1]["context"]),
            (&json!("wamid.9"), &context)
        );
    }
}
