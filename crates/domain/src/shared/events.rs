//! What a change tells the rest of the system. Events commit with the change and leave through the outbox.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{UserId, redacted_debug, string_enum};

string_enum! {
    /// Where an event goes: each kind is relayed by itself, so that one whose place fails holds up no other.
    EventKind {
        /// Into the audit log.
        Audit = "audit",
        /// Into the notifications.
        Notification = "notification",
        /// To the account's webhook endpoints.
        Webhook = "webhook",
    }
}

string_enum! {
    /// What an account can have told to its webhook endpoints.
    WebhookKind {
        MessageReceived = "message.received",
        MessageSent = "message.sent",
        MessageDelivered = "message.delivered",
        MessageRead = "message.read",
        MessageFailed = "message.failed",
        CampaignStarted = "campaign.started",
        CampaignFinished = "campaign.finished",
        CampaignCancelled = "campaign.cancelled",
        ContactCreated = "contact.created",
        ContactUpdated = "contact.updated",
        ContactDeleted = "contact.deleted",
        TemplateStatusChanged = "template.status_changed",
        TemplateCategoryChanging = "template.category_changing",
        SubscriptionChanged = "subscription.changed",
        OrderRecorded = "order.recorded",
        MetricRecorded = "metric.recorded",
        /// Nothing happened: somebody tries an endpoint out.
        TestPing = "test.ping",
    }
}

/// One effect of a change, to be carried out by the relay exactly once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// A row of the audit log.
    Audit(Audit),
    /// A notification inside the product.
    Notification(NotificationDraft),
    /// What the account's webhook endpoints are told.
    Webhook(WebhookEventBatch),
}

impl Event {
    /// One event of a kind an item. Kept only where an endpoint of the account wants that kind.
    pub fn webhook(kind: WebhookKind, items: Vec<Value>) -> Self {
        Self::Webhook(WebhookEventBatch { kind, items })
    }
}

/// What was done to an audited thing. All words are published; `restore` and `export` are written by nothing so far, and
/// may be filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditAction {
    Create,
    Update,
    Delete,
    Restore,
    Login,
    Export,
}

impl AuditAction {
    /// The stored and published word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Restore => "restore",
            Self::Login => "login",
            Self::Export => "export",
        }
    }
}

/// A row of the audit log, but for its id, account and time.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Audit {
    /// Who did it; none when the system did.
    pub user_id: Option<UserId>,
    /// What was done.
    pub action: AuditAction,
    /// To what kind of thing, for example `campaign`.
    pub entity_type: String,
    /// To which one.
    pub entity_id: Option<Uuid>,
    /// What changed.
    pub changes: Option<Value>,
    /// From which address.
    pub ip_address: Option<String>,
    /// Where it was done in support mode: the address of the platform administrator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub support_admin: Option<String>,
}

redacted_debug!(Audit {
    user_id,
    action,
    entity_type,
    entity_id
});

impl Audit {
    /// What the log keeps as changes: with the administrator who did it in support mode, where one did.
    pub fn recorded_changes(&self) -> Option<Value> {
        let Some(admin) = &self.support_admin else {
            return self.changes.clone();
        };
        let mut fields = match self.changes.clone() {
            Some(Value::Object(fields)) => fields,
            Some(value) => Map::from_iter([("changes".to_owned(), value)]),
            None => Map::new(),
        };
        fields.insert("support_admin".to_owned(), Value::from(admin.as_str()));
        Some(Value::Object(fields))
    }

    /// The same entry, saying what changed.
    #[must_use]
    pub fn with_changes(mut self, changes: Value) -> Self {
        self.changes = Some(changes);
        self
    }
}

/// How a notification is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NotificationKind {
    Success,
    Info,
    Warning,
    Error,
}

impl NotificationKind {
    /// The stored and published word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A notification inside the product, but for its id, account and time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotificationDraft {
    /// How it is shown.
    #[serde(rename = "type")]
    pub kind: NotificationKind,
    /// One line.
    pub title: String,
    /// One or two sentences.
    pub message: String,
    /// What a program needs to act on it.
    pub data: Value,
}

/// Events of one kind that one change made: each item is an event of its own to the receivers.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct WebhookEventBatch {
    /// Of what kind.
    #[serde(rename = "type")]
    pub kind: WebhookKind,
    /// What each says: ids and what changed, as published in `docs/webhooks.md`.
    pub items: Vec<Value>,
}

redacted_debug!(WebhookEventBatch { kind });

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The store tells kinds apart by the word that an event is stored with.
    #[test]
    fn outbox_event_is_stored_with_its_kind() {
        let audit = Audit {
            user_id: None,
            action: AuditAction::Create,
            entity_type: "campaign".into(),
            entity_id: None,
            changes: None,
            ip_address: None,
            support_admin: None,
        };
        let notification = NotificationDraft {
            kind: NotificationKind::Info,
            title: "t".into(),
            message: "m".into(),
            data: json!({}),
        };
        let webhook = Event::webhook(WebhookKind::MessageSent, vec![json!({ "id": 1 })]);
        let kinds = [Event::Audit(audit), Event::Notification(notification), webhook];
        let kinds = kinds.map(|event| json!(event)["kind"].clone());
        assert_eq!(
            kinds.as_slice(),
            EventKind::ALL.iter().map(|kind| json!(kind)).collect::<Vec<_>>()
        );
    }

    #[test]
    fn audit_changes_include_the_support_admin() {
        let audit = |changes: Option<Value>, admin: Option<&str>| Audit {
            user_id: None,
            action: AuditAction::Update,
            entity_type: "campaign".into(),
            entity_id: None,
            changes,
            ip_address: None,
            support_admin: admin.map(str::to_owned),
        };
        let root = Some("root@example.com");
        for (changes, admin, recorded) in [
            (None, None, None),
            (Some(json!({ "a": 1 })), None, Some(json!({ "a": 1 }))),
            (None, root, Some(json!({ "support_admin": "root@example.com" }))),
            (
                Some(json!({ "a": 1 })),
                root,
                Some(json!({ "a": 1, "support_admin": "root@example.com" })),
            ),
            (
                Some(json!(7)),
                root,
                Some(json!({ "changes": 7, "support_admin": "root@example.com" })),
            ),
        ] {
            assert_eq!(audit(changes, admin).recorded_changes(), recorded);
        }
        // What an earlier version left waiting names nobody.
        let old = json!({ "user_id": null, "action": "create", "entity_type": "x", "entity_id": null,
                          "changes": null, "ip_address": null });
        assert_eq!(serde_json::from_value::<Audit>(old).unwrap().support_admin, None);
    }

    /// Statements that record many changes at once write this form themselves.
    #[test]
    fn webhook_event_batch_has_a_stable_json_form() {
        let event = Event::webhook(WebhookKind::MessageSent, vec![json!({ "id": 1 }), json!({ "id": 2 })]);
        let stored = json!({ "kind": "webhook", "type": "message.sent", "items": [{ "id": 1 }, { "id": 2 }] });
        assert_eq!(json!(event), stored);
        assert_eq!(serde_json::from_value::<Event>(stored).unwrap(), event);
        assert_eq!(WebhookKind::ALL.len(), 17);
    }
}
