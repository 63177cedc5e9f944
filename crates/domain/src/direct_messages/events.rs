//! The webhook event of a cancelled message. The other events of direct messages are those of every message.

use serde_json::json;

use super::DirectMessage;
use crate::shared::{Event, WebhookKind};

/// `message.cancelled`.
pub fn cancelled_event(message: &DirectMessage) -> Event {
    let item = json!({ "id": message.id, "contact_id": message.contact_id,
                       "client_reference": message.client_reference });
    Event::webhook(WebhookKind::MessageCancelled, vec![item])
}
