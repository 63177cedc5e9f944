//! The webhook events of contacts.

use serde::Serialize;
use serde_json::json;
use time::OffsetDateTime;

use crate::shared::{ContactId, Event, WebhookKind, redacted_debug, timestamp};

/// A contact as the `contact.*` webhook events publish it.
#[derive(Clone, PartialEq, Serialize)]
pub struct ContactEvent {
    pub id: ContactId,
    pub name: String,
    pub phone: Option<String>,
    pub email: Option<String>,
    pub wa_user_id: Option<String>,
    #[serde(with = "timestamp::option")]
    pub opted_out_at: Option<OffsetDateTime>,
    #[serde(with = "timestamp")]
    pub updated_at: OffsetDateTime,
}

redacted_debug!(ContactEvent { id });

impl ContactEvent {
    /// Receivers get one event for each contact.
    pub fn event(kind: WebhookKind, contacts: &[Self]) -> Event {
        Event::webhook(kind, contacts.iter().map(|contact| json!(contact)).collect())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn contact_event_has_the_published_fields() {
        let contact = ContactEvent {
            id: ContactId(Uuid::nil()),
            name: "Bia".into(),
            phone: Some("+5511961234567".into()),
            email: None,
            wa_user_id: None,
            opted_out_at: None,
            updated_at: OffsetDateTime::UNIX_EPOCH,
        };
        let Event::Webhook(batch) = ContactEvent::event(WebhookKind::ContactUpdated, &[contact]) else {
            panic!("not a webhook event")
        };
        assert_eq!(batch.kind, WebhookKind::ContactUpdated);
        assert_eq!(
            batch.items,
            [
                json!({ "id": Uuid::nil(), "name": "Bia", "phone": "+5511961234567", "email": null, "wa_user_id": null,
                     "opted_out_at": null, "updated_at": "1970-01-01T00:00:00.000Z" })
            ]
        );
    }
}
